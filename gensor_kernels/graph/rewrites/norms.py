"""Layer norms and RMS norms as exporters write them, and those of a product's rows in its kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.operators.types.epilogue import MAX_STEPS

from .base import floats, is_last, last_axis, number, operators_of, other_operand, rule


class MeanSquare(NamedTuple):
    """mean(x ** 2) + eps."""

    x: str
    eps: float


class Quotient(NamedTuple):
    """The node that divides x by a root, or multiplies it by the inverse."""

    x: str
    node: Node


@rule("LayerNorms", "Sqrt")
def find_layer_norms(links: Links, node: Node) -> bool:
    """(x - mean) / sqrt(mean((x - mean) ** 2) + eps) * w + b -> LayerNormalization(x, w, b), over the last axis."""
    variance, quotient = _mean_square(links, node), _quotient(links, node)
    if variance is None or quotient is None or quotient.x != variance.x:
        return False
    difference = links.maker(variance.x, "Sub")
    if difference is None:
        return False
    x, mean = difference.inputs[0], links.maker(difference.inputs[1], "ReduceMean")
    if mean is None or mean.inputs[0] != x or not last_axis(links.graph, mean):
        return False
    return _put_norm(links, node, "LayerNormalization", ("Mul", "Add"), x, quotient.node, variance.eps)


@rule("RMSNorms", "Sqrt")
def find_rms_norms(links: Links, node: Node) -> bool:
    """x / sqrt(mean(x ** 2) + eps) * w -> RMSNormalization(x, w), over the last axis.

    The inverse root may be a Reciprocal. Casts to float32 and back around the norm disappear: its kernel computes in
    float32.
    """
    square, quotient = _mean_square(links, node), _quotient(links, node)
    if square is None or quotient is None or quotient.x != square.x:
        return False
    return _put_norm(links, node, "RMSNormalization", ("Mul",), square.x, quotient.node, square.eps)


def _mean_square(links: Links, root: Node) -> MeanSquare | None:
    """Return the argument of a root, if it is the mean of squares over the last axis plus eps."""
    graph, added = links.graph, links.maker(root.inputs[0], "Add")
    if added is None:
        return None
    for value, constant in (added.inputs, added.inputs[::-1]):
        eps, mean = number(graph, constant), links.maker(value, "ReduceMean")
        if eps is None or not eps > 0 or mean is None or not last_axis(graph, mean):
            continue
        square = links.maker(mean.inputs[0], "Pow", "Mul")
        if square is None:
            continue
        x = square.inputs[0]
        if square.inputs[1] == x if square.op == "Mul" else number(graph, square.inputs[1]) == 2:
            return MeanSquare(x, eps)
    return None


def _quotient(links: Links, root: Node) -> Quotient | None:
    """Return the only use of a root, if it is x / root, x * (1 / root) or x * Reciprocal(root)."""
    result = root.outputs[0]
    if (divided := links.reader(result, "Div")) is not None and divided.inputs[1] == result:
        if number(links.graph, divided.inputs[0]) != 1:
            return Quotient(divided.inputs[0], divided)
        inverse: Node | None = divided
    else:
        inverse = links.reader(result, "Reciprocal")
    product = None if inverse is None else links.reader(inverse.outputs[0], "Mul")
    if inverse is None or product is None or product.inputs[0] == product.inputs[1]:
        return None
    return Quotient(other_operand(product, inverse.outputs[0]), product)


def _uncast(links: Links, x: str, last: Node) -> tuple[str, Node]:
    """Return the tensor before a Cast to float32, and the Cast back after the norm, if both exist, else `x`, `last`."""
    cast, graph = links.maker(x, "Cast"), links.graph
    if cast is None or not floats(graph, cast.inputs[0]):
        return x, last
    own, wide = graph.spec(cast.inputs[0]), graph.spec(x)
    if own is None or wide is None or (own.dtype.itemsize, wide.dtype.name) != (2, "float32"):
        return x, last
    weighted = links.reader(last.outputs[0], "Mul")
    back = links.reader(last.outputs[0], "Cast")
    if back is not None and graph.spec(back.outputs[0]) == own:
        return cast.inputs[0], back
    if weighted is not None and (back := links.reader(weighted.outputs[0], "Cast")) is not None:
        weight = graph.constants.get(other_operand(weighted, last.outputs[0]))
        narrow = None if weight is None else weight.astype(own.dtype)
        if narrow is None or graph.spec(back.outputs[0]) != own or (narrow.astype(np.float32) != weight).any():
            return x, last
        # The weight after the Cast instead of before it.
        name = graph.add(weighted.outputs[0] + ".weight", narrow)
        between = links.fresh(last.outputs[0] + ".narrow", cast.inputs[0])
        narrowed = Node("Cast", last.outputs, (between,), back.attributes, back.name)
        links.replace(back, narrowed, Node("Mul", (between, name), back.outputs, {}, weighted.name))
        return cast.inputs[0], narrowed
    return x, last


def _put_norm(links: Links, root: Node, op: str, affine: tuple[str, ...], x: str, last: Node, eps: float) -> bool:
    """Replace `last`, the end of a norm of `x`, by a node `op`; return whether that was possible.

    Constant operands of the nodes `affine` that follow become the weight and the bias.
    """
    graph, shape = links.graph, links.graph.static(x)
    if not shape:
        return False
    x, last = _uncast(links, x, last)
    spec = graph.spec(x)
    if spec is None or not floats(graph, x) or graph.spec(last.outputs[0]) != spec:
        return False
    operands: list[str] = []
    for each in affine:
        node = links.reader(last.outputs[0], each)
        operand = "" if node is None else other_operand(node, last.outputs[0])
        constant = graph.constants.get(operand)
        if node is None or constant is None or constant.shape != shape[-1:] or constant.dtype != spec.dtype:
            break
        operands.append(operand)
        last = node
    if not operands:
        operands.append(graph.add(last.outputs[0] + ".ones", np.ones(shape[-1], spec.dtype)))
    attributes = {"axis": -1, "epsilon": eps}
    links.replace(last, Node(op, (x, *operands), last.outputs, attributes, root.name))
    return True


#: Norms of an epilogue, and the default of their epsilon, by operator.
NORMS = {"LayerNormalization": "layernorm", "RMSNormalization": "rmsnorm"}


@rule("NormedProducts", *NORMS)
def join_norms(links: Links, node: Node) -> bool:
    """LayerNormalization(MatMul(a, b), w, c) -> MatMul(a, b; layernorm, mul w, add c); also RMS norms.

    The rule applies if the kernel, whose blocks hold whole rows, is predicted to be faster than both.
    """
    graph, product = links.graph, links.maker(node.inputs[0], "MatMul")
    shape = graph.static(node.inputs[0])
    if product is None or shape is None or not links.alone(node.inputs[0]) or len(node.outputs) > 1:
        return False
    if not is_last(node.attribute("axis"), shape):
        return False
    operands = [each for each in node.inputs[1:] if each]
    spec = graph.spec(node.inputs[0])
    vector = None if spec is None else spec._replace(shape=shape[-1:])
    if any(graph.spec(each) != vector for each in operands):
        return False
    norm = Step(NORMS[node.op], "", float(node.attribute("epsilon")))
    steps = (*product.epilogue, norm, *map(Step, ("mul", "add"), operands))
    if len(steps) - 1 > MAX_STEPS or any(step.name in NORMS.values() for step in product.epilogue):
        return False
    taken = Node("MatMul", product.inputs, node.outputs, {}, product.name, steps, operators_of(product, node))
    links.is_slower([taken], [product, node])
    before, after = links.predicted
    if before is None or after is None or after >= before:
        links.why = "the norm in the product is predicted to be no faster" if before is not None else ""
        return False
    links.take_in(product, node, epilogue=steps, joined=taken.joined)
    return True
