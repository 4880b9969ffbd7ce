"""Shapes of tensors by the rules of the ONNX standard; a node that breaks them is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import ModelError
from gensor_kernels.graph.failures import REMEDY, fail
from gensor_kernels.graph.ir.graph import OPSET, Spec
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import onnx

    from gensor_kernels.graph.ir.graph import Graph, Node

#: Values of an attribute by its name, preceded by the operator's if operators differ.
WORDS = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""),
    "reduction": ("none", "add", "mul", "max", "min"),
    "approximate": ("none", "tanh"),
    "direction": ("forward", "reverse", "bidirectional"),
    "BitShift.direction": ("LEFT", "RIGHT"),
    "DepthToSpace.mode": ("DCR", "CRD"),
    "Pad.mode": ("constant", "reflect", "edge", "wrap"),
}
#: Elements up to which shapes depend on the elements of a constant.
MOST_ELEMENTS = 1024


def infer(graph: Graph, node: Node) -> None:
    """Store unknown dtypes and shapes of a node's results in the graph, if they follow from its inputs.

    ModelError if the node breaks a rule of its operator: an axis that does not exist, sizes that do not add up.
    """
    import onnx
    from onnx import shape_inference

    _check(graph, node)
    single = node.op == "Range"  # onnx's own expansions give it vectors of one number
    types: dict[str, Any] = {name: _type(graph.spec(name), single) for name in node.inputs if name}
    if not onnx.defs.has(node.op) or None in types.values():
        return
    constants = {name: graph.constants[name] for name in types if name in graph.constants}
    data = {
        name: onnx.numpy_helper.from_array(value.reshape(()) if single and value.size == 1 else value, name)
        for name, value in constants.items()
        if value.size <= MOST_ELEMENTS and value.dtype != object
    }
    try:
        schema = onnx.defs.get_schema(node.op, OPSET)
        made = onnx.helper.make_node(node.op, node.inputs, node.outputs, node.name)
        for name, value in node.attributes.items():
            if name in schema.attributes and value is not None:
                made.attribute.append(_attribute(name, value, schema.attributes[name].type))
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        found = shape_inference.infer_node_outputs(schema, made, types, data, opset_imports=opsets)
    except shape_inference.InferenceError as error:
        fail(f"node {shown(node.name)} ({node})", error, REMEDY)
    except Exception:  # computing the node will raise the error
        return
    for name, each in found.items():
        if each.HasField("tensor_type") and graph.static(name) is None:
            known, dtype = graph.shape(name), onnx.helper.tensor_dtype_to_np_dtype(each.tensor_type.elem_type)
            if each.tensor_type.HasField("shape"):
                extents = tuple(_extent(dim) for dim in each.tensor_type.shape.dim)
                alike = known is not None and len(known) == len(extents)
                known = tuple(map(_better, extents, known or ())) if alike else extents
            graph.specs[name] = Spec(dtype, known)


def _extent(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def _better(new: int | str | None, old: int | str | None) -> int | str | None:
    """Return the extent that says more: a number, or else a name."""
    return new if isinstance(new, int) or old is None else old


def _check(graph: Graph, node: Node) -> None:
    """Raise ModelError where a node breaks a rule of its operator that onnx does not check."""
    wrong = None
    for name, value in node.attributes.items():
        words = WORDS.get(f"{node.op}.{name}", WORDS.get(name))
        if words is not None and value not in words:
            wrong = f"{name} is {shown(value)}, which is none of {', '.join(filter(None, words))}"
    if node.op in ("Conv", "ConvTranspose"):
        taps, weights = node.attribute("kernel_shape"), graph.static(node.inputs[1])
        if taps is not None and weights is not None and tuple(taps) != weights[2:]:
            wrong = f"kernel_shape is {tuple(taps)}, and the weights have the shape {weights}"
    if wrong:
        raise ModelError(f"node {shown(node.name)} ({node}): {wrong}; {REMEDY}")


def _type(spec: Spec | None, single: bool) -> onnx.TypeProto | None:
    """Return the TypeProto of a tensor, or None if its dtype is unknown; `single` makes a scalar of one number."""
    from onnx import helper

    if spec is None or spec.dtype == object:
        return None
    shape = () if single and spec.shape == (1,) else spec.shape
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(spec.dtype), shape)


def _attribute(name: str, value: Any, kind: Any) -> onnx.AttributeProto:
    from onnx import helper, numpy_helper

    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, value, attr_type=kind.value)
