"""Shapes of tensors by the rules of the ONNX standard; a node that breaks them is refused."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
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
#: Results of nodes, by all that they depend on, and how many are kept: a graph is inferred when it is read, and for the
#: sizes of a call.
_inferred: dict[Hashable, tuple[Spec | None, ...]] = {}
MOST_KNOWN = 4096


def infer(graph: Graph, node: Node) -> None:
    """Store unknown dtypes and shapes of a node's results in the graph, if they follow from its inputs.

    ModelError if the node breaks a rule of its operator: an axis that does not exist, sizes that do not add up.
    """
    import onnx
    from onnx import shape_inference

    _check(graph, node)
    single = node.op == "Range"  # onnx's own expansions give it vectors of one number
    specs = [graph.spec(name) if name else None for name in node.inputs]
    if not onnx.defs.has(node.op) or any(
        name and (spec is None or spec.dtype == object) for name, spec in zip(node.inputs, specs, strict=True)
    ):
        return
    data = {
        place: value.reshape(()) if single and value.size == 1 else value
        for place, name in enumerate(node.inputs)
        if (value := graph.constants.get(name)) is not None and value.size <= MOST_ELEMENTS and value.dtype != object
    }
    key = (node.op, key_of(node.attributes), *map(key_of, specs), key_of(data), *map(bool, node.outputs))
    found = _inferred.get(key)
    if found is None:
        if len(_inferred) >= MOST_KNOWN:
            _inferred.clear()
        try:
            found = _inferred[key] = _outputs(node, [spec and _type(spec, single) for spec in specs], data)
        except shape_inference.InferenceError as error:
            fail(f"node {shown(node.name)} ({node})", error, REMEDY)
        except Exception:  # computing the node will raise the error
            return
    for name, each in zip(node.outputs, found, strict=False):
        if each is not None and graph.static(name) is None:
            known, extents = graph.shape(name), each.shape
            alike = known is not None and extents is not None and len(known) == len(extents)
            known = tuple(map(_better, extents or (), known or ())) if alike else known if extents is None else extents
            graph.specs[name] = Spec(each.dtype, known)


def _outputs(node: Node, types: Sequence[Any], data: Mapping[int, np.ndarray]) -> tuple[Spec | None, ...]:
    """Return what the standard's rules say of a node's results, None where they say nothing."""
    import onnx
    from onnx import shape_inference

    schema = onnx.defs.get_schema(node.op, OPSET)
    made = onnx.helper.make_node(node.op, node.inputs, node.outputs, node.name)
    for name, value in node.attributes.items():
        if name in schema.attributes and value is not None:
            made.attribute.append(_attribute(name, value, schema.attributes[name].type))
    names = {name: each for name, each in zip(node.inputs, types, strict=True) if name}
    constants = {node.inputs[place]: onnx.numpy_helper.from_array(each) for place, each in data.items()}
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    found = shape_inference.infer_node_outputs(schema, made, names, constants, opset_imports=opsets)
    specs: list[Spec | None] = []
    for name in node.outputs:
        each = found[name].tensor_type if name in found and found[name].HasField("tensor_type") else None
        shape = tuple(map(_extent, each.shape.dim)) if each is not None and each.HasField("shape") else None
        specs.append(None if each is None else Spec(onnx.helper.tensor_dtype_to_np_dtype(each.elem_type), shape))
    return tuple(specs)


def key_of(value: Any) -> Hashable:
    """Return a key of an attribute, of a constant, or of several of them by name."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, blake2b(value.tobytes(), digest_size=16).digest()
    if isinstance(value, dict):
        return tuple((name, key_of(each)) for name, each in sorted(value.items()))
    return type(value), value


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


def _type(spec: Spec, single: bool) -> onnx.TypeProto:
    """Return the TypeProto of a tensor; `single` makes a scalar of one number."""
    from onnx import helper

    shape = () if single and spec.shape == (1,) else spec.shape
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(spec.dtype), shape)


def _attribute(name: str, value: Any, kind: Any) -> onnx.AttributeProto:
    from onnx import helper, numpy_helper

    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, value, attr_type=kind.value)
