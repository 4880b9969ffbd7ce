"""Nodes, dtypes and shapes of onnx-ir as those of a Graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.graph.ir.graph import Extents, Node
from gensor_kernels.shown import printable

if TYPE_CHECKING:
    import onnx_ir as ir

#: Domains of the ONNX standard's own operators.
STANDARD = ("", "ai.onnx")


def node_of(node: Any, number: int) -> Node:
    """Return a node of onnx-ir, which also reads what graphs within it read; `number` names it if it has no name."""
    inputs = ("" if each is None else each.name for each in (*node.inputs, *outer_values(node)))
    attributes = {name: _attribute(value) for name, value in node.attributes.items()}
    name = printable(node.name or f"{node.op_type}_{number}")  # tables and errors show it
    return Node(node.op_type, tuple(inputs), tuple(each.name for each in node.outputs), attributes, name)


def outer_values(node: ir.Node) -> list[ir.Value]:
    """Return the values of outer graphs that the branches of a node read."""
    branches = [each.as_graph() for each in node.attributes.values() if each.type.name == "GRAPH"]
    inner = [each for branch in branches for each in branch]
    own = {value for each in inner for value in each.outputs}
    own.update(value for branch in branches for value in (*branch.inputs, *branch.initializers.values()))
    read = [value for each in inner for value in (*each.inputs, *outer_values(each))]
    read += [value for branch in branches for value in branch.outputs]
    return [each for each in dict.fromkeys(read) if each is not None and each not in own]


def dtype_of(dtype: ir.DataType | None) -> Dtype:
    """Return a dtype of onnx-ir as NumPy's; `object` for text and unknown types."""
    try:
        return np.dtype(object if dtype is None else dtype.numpy())
    except (TypeError, ValueError):
        return np.dtype(object)


def extents_of(shape: ir.Shape | None) -> Extents | None:
    """Return a shape of onnx-ir as numbers and names."""
    if shape is None:
        return None
    return tuple(each if isinstance(each, int) else each.value for each in shape)


def _attribute(attribute: ir.Attr) -> Any:
    value = attribute.value
    if hasattr(value, "numpy"):
        return value.numpy()
    return value if isinstance(value, (int, float, str)) or value is None else tuple(value)
