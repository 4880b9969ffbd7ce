"""A model of a few nodes, computed on the emulator after the rules and by onnxruntime without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import gensor_kernels
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import by_onnxruntime, nodes_of, proto

RNG = np.random.default_rng(0)
TOLERANCE = {"float16": 4e-3, "float32": 1e-5}
VIEWS = ("Reshape", "Transpose", "Split", "Slice")


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Return normal numbers."""
    return RNG.standard_normal(shape).astype(dtype)


def check(
    text: str, inputs: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
) -> Graph:
    """Return the graph after the rules, whose results agree with onnxruntime's of the model as it is written.

    Only inputs and constants that the nodes read are part of the model. Results that no node reads are its outputs, and
    those of `outputs`.
    """
    nodes = nodes_of(text)
    reads = {name for node in nodes for name in node.input}
    given = {name: array for name, array in inputs.items() if name in reads}
    results = [name for node in nodes for name in node.output if name not in reads or name in outputs]
    kinds = {name: (str(array.dtype), array.shape) for name, array in given.items()}
    made = proto(nodes, kinds, results, {name: each for name, each in constants.items() if name in reads})
    model = Model(Source(made), "model")
    with gensor_kernels.emulated("sm_87"):
        plan = model._plan(given)
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
    """Return the names of the operations in the epilogues of all nodes."""
    return [step.name for node in graph.nodes for step in node.epilogue]
