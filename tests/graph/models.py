"""Small models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source

OPSET = 20


def proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Sequence[str] | Mapping[str, Sequence[int | str]],
    constants: Mapping[str, np.ndarray] = {},
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Return a model; inputs are (dtype, shape) by name, and results have the dtype of the first.

    onnx's checker, which `load` asks, wants the shapes of results, too.
    """
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name, (dtype, _) in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], shape) for name, (_, shape) in inputs.items()]
    first = next(iter(kinds.values()))
    shapes = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    results = [helper.make_tensor_value_info(name, first, shape) for name, shape in shapes.items()]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "model", given, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def model(*args, **keywords) -> Model:
    """Return the loaded model of `proto`."""
    return Model(Source(proto(*args, **keywords)), "model")


node = helper.make_node
