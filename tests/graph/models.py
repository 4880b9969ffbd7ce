"""Small models for tests."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source

OPSET = 20


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
    """Return a model; inputs are (dtype, shape) by name, and results have the dtype of the first.

    `load` runs onnx's checker, which also needs the shapes of results.
    """
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
    """Return the loaded model of `proto`."""
    return Model(Source(proto(*args, **keywords)), "model")


def by_onnxruntime(made: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the results of onnxruntime on the CPU without its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, dict(inputs))


def hide_packages(monkeypatch: Any, *packages: str) -> None:
    """Make imports of some packages fail as if they were not installed."""
    real = builtins.__import__

    def refuse(name: str, *args: Any, **keywords: Any) -> Any:
        if name.split(".")[0] in packages:
            raise ModuleNotFoundError(f"no module {name}", name=name)
        return real(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)


node = helper.make_node
