"""A model of a few nodes, computed on the emulator behind the rules and by onnxruntime without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

import gensor_kernels
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import proto

RNG = np.random.default_rng(0)
TOLERANCE = {"float16": 4e-3, "float32": 1e-5}


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Return normal numbers."""
    return RNG.standard_normal(shape).astype(dtype)


def checked(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
) -> Graph:
    """Return the graph behind the rules, whose results agree with onnxruntime's of the model as it is written."""
    import onnxruntime

    given = {name: (str(array.dtype), array.shape) for name, array in inputs.items()}
    made = proto(nodes, given, outputs, constants)
    model = Model(Source(made), "model")
    with gensor_kernels.emulated("sm_87"):
        plan = model._plan(inputs)
        found = plan.run(inputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    for ours, theirs in zip(found, session.run(None, dict(inputs)), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        most = TOLERANCE[str(theirs.dtype)]
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), most, most)
    return plan.graph


def operators(graph: Graph) -> list[str]:
    """Return the operators of a graph's nodes, views aside."""
    return [each.op for each in graph.nodes if each.op not in ("Reshape", "Transpose", "Split", "Slice")]


def rules(graph: Graph) -> set[str]:
    """Return the names of the rules that changed a graph."""
    return {each.rule for each in graph.decisions if each.applied}
