"""Nodes, dtypes and shapes of protobufs and of onnx-ir as those of a Graph."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.ir.graph import Extents, Graph, Node, Spec, memory_of
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.shown import printable, shown

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

#: Arrays of constants by name, apart from the operators.
Weights: TypeAlias = MutableMapping[str, np.ndarray]
#: Domains of the ONNX standard's own operators.
STANDARD = ("", "ai.onnx")


def graph_of(model: onnx.ModelProto, weights: Weights, inputs: Mapping[str, Spec]) -> Graph | None:
    """Return the Graph of a lifted model, or None for one with operators that are taken out on onnx-ir, or refused."""
    from onnx import numpy_helper

    results = [each.name for each in model.graph.output]
    wanted, names, nodes, constants = set(results), dict[str, int](), list[Node](), dict(weights)
    for each in model.graph.initializer:
        if each.name not in weights:
            constants[each.name] = numpy_helper.to_array(each)
    for number, each in reversed([*enumerate(model.graph.node)]):
        if wanted.isdisjoint(each.output):
            continue
        attributes = {field.name: _value(field) for field in each.attribute}
        if each.domain not in STANDARD or any(value is None for value in attributes.values()):
            return None
        if each.op_type == "Constant":
            constants[each.output[0]] = np.asarray(*attributes.values())
        elif each.op_type not in LOWERINGS:
            return None
        else:
            wanted.update(each.input)
            nodes.append(Node(each.op_type, tuple(each.input), tuple(each.output), attributes, _name(each, number)))
    made = {name for node in nodes for name in node.outputs}
    if not made.issuperset(results) or len({*results}) < len(results):  # it is a copy
        return None
    for place, node in enumerate(nodes):
        names[node.name] = count = names.get(node.name, -1) + 1
        if count:
            nodes[place] = replace(node, name=f"{node.name}_{count}")
    constants = {name: value for name, value in constants.items() if name in wanted and name not in inputs}
    known = (each for each in (*model.graph.value_info, *model.graph.output) if each.type.tensor_type.elem_type)
    specs = {each.name: spec_of(each) for each in known if each.name in made}
    specs |= {name: specs[name]._replace(shape=None) for name in results if name in specs}  # all are inferred again
    return Graph(nodes[::-1], dict(inputs), results, constants, specs, weight_bytes=memory_of(constants.values()))


def _name(node: onnx.NodeProto | ir.Node, number: int) -> str:
    return printable(node.name or f"{node.op_type}_{number}")  # tables and errors show it


def _value(attribute: onnx.AttributeProto) -> Any:
    """Return the value of an attribute, as Python's or an array; None for graphs and the like."""
    from onnx import AttributeProto, helper, numpy_helper

    if attribute.ref_attr_name:
        return None
    value, of_constant = helper.get_attribute_value(attribute), attribute.name.startswith("value_")
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    if attribute.type in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        return np.asarray(value, np.float32) if of_constant else value if isinstance(value, float) else tuple(value)
    if attribute.type in (AttributeProto.INT, AttributeProto.INTS):
        return np.asarray(value, np.int64) if of_constant else value if isinstance(value, int) else tuple(value)
    if attribute.type == AttributeProto.STRING and not of_constant:
        return value.decode()
    if attribute.type == AttributeProto.STRINGS and not of_constant:
        return tuple(each.decode() for each in value)
    return None


def spec_of(value: onnx.ValueInfoProto) -> Spec:
    """Return the Spec of a ValueInfoProto; UnsupportedError for sequences and the like."""
    from onnx import helper

    if not value.type.HasField("tensor_type"):
        raise UnsupportedError(f"{shown(value.name)} is no tensor: sequences and optional values are not served")
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            each.dim_value if each.HasField("dim_value") else each.dim_param or None for each in tensor.shape.dim
        )
    try:
        return Spec(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape)
    except KeyError:
        raise ModelError(f"{shown(value.name)} has the unknown type {tensor.elem_type}") from None


def node_of(node: Any, number: int) -> Node:
    """Return a node of onnx-ir, which also reads what graphs within it read; `number` names it if it has no name."""
    inputs = ("" if each is None else each.name for each in (*node.inputs, *outer_values(node)))
    attributes = {name: _attribute(value) for name, value in node.attributes.items()}
    return Node(node.op_type, tuple(inputs), tuple(each.name for each in node.outputs), attributes, _name(node, number))


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


def constants_of(model: Graph | ir.Model) -> dict[str, np.ndarray]:
    """Return the constants of a model by name."""
    if isinstance(model, Graph):
        return model.constants
    values = model.graph.initializers.items()
    return {name: np.asarray(each.const_value.numpy()) for name, each in values if each.const_value is not None}
