"""Small models for tests, computed on the emulator and by onnxruntime."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.readers.onnx_file import Source

OPSET = 20
node = helper.make_node

TOLERANCE = {"float16": 4e-3, "float32": 1e-5}
VIEWS = ("Reshape", "Transpose", "Split", "Slice")


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Return the nodes of a text in onnx's syntax: "a = MatMul(x, w); y = Softmax<axis=1>(a)"."""
    return [onnx.parser.parse_node(each) for each in text.split(";")]


def proto(
    nodes: str | Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Sequence[str] | Mapping[str, Sequence[int | str]],
    constants: Mapping[str, np.ndarray] = {},
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Return a model; inputs are (dtype, shape) by name, results have the dtype of the first; `load` needs shapes."""
    nodes = nodes_of(nodes) if isinstance(nodes, str) else list(nodes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name, (dtype, _) in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], shape) for name, (_, shape) in inputs.items()]
    first = next(iter(kinds.values()))
    shapes = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    results = [helper.make_tensor_value_info(name, first, shape) for name, shape in shapes.items()]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "model", given, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def model(*args, **keywords) -> Model:
    return Model(Source(proto(*args, **keywords)), "model")


def by_onnxruntime(made: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the results of onnxruntime on the CPU without its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, dict(inputs))


@cache
def _generator(module: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(module.encode()))


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Draw normal numbers for the module that calls, the same ones whichever modules were imported before."""
    module = sys._getframe(1).f_globals["__name__"]
    return _generator(module).standard_normal(shape).astype(dtype)


def check(
    text: str, inputs: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
) -> Graph:
    """Return the graph after the rules; its results, on the emulator, agree with those of onnxruntime without rules.

    Only inputs and constants that the nodes read are part of the model. Results that no node reads are its outputs, and
    those of `outputs`.
    """
    nodes = nodes_of(text)
    reads = {name for node in nodes for name in node.input}
    given = {name: array for name, array in inputs.items() if name in reads}
    results = [name for node in nodes for name in node.output if name not in reads or name in outputs]
    kinds = {name: (str(array.dtype), array.shape) for name, array in given.items()}
    made = proto(nodes, kinds, results, {name: each for name, each in constants.items() if name in reads})
    plan = Model(Source(made), "model")._plan(given)
    found = plan.run(given)
    for ours, theirs in zip(found, by_onnxruntime(made, given), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        tolerance = TOLERANCE.get(str(theirs.dtype), 0)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), tolerance, tolerance)
    return plan.graph


def operators(graph: Graph, views: bool = False) -> str:
    """Return the operators of a graph's nodes and what each computes besides: "Conv + Add, Relu"; views left out."""
    return ", ".join(str(each) for each in graph.nodes if each.op != "Layout" and (views or each.op not in VIEWS))


def steps(graph: Graph) -> list[str]:
    return [step.name for node in graph.nodes for step in node.epilogue]
