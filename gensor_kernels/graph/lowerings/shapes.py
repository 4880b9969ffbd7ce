"""Shapes that the optimiser leaves unknown: behind views by constants, element-wise operators and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.graph.ir.graph import Spec

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node

Shape = tuple[int, ...]

#: Operators whose result has the shape of all inputs together, and those whose result has the first input's.
TOGETHER = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "Where", "PRelu", "And", "Or", "Xor"),
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
)
ALIKE = (
    *("Abs", "Cast", "Ceil", "Clip", "Cos", "CumSum", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("HardSwish", "Identity", "IsInf", "IsNaN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Neg", "Not"),
    *("RMSNormalization", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Sqrt"),
    *("Swish", "Tanh"),
)
BOOLEANS = ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")


def known(graph: Graph, name: str) -> Shape | None:
    """Return the shape of a tensor whose extents are all known."""
    shape = graph.shape(name)
    if shape is None or not all(isinstance(each, int) for each in shape):
        return None
    return tuple(each for each in shape if isinstance(each, int))


def infer(graph: Graph, node: Node) -> None:
    """Note the dtype and shape of a node's first result, where they follow from its inputs and were not known."""
    if not node.outputs or known(graph, node.outputs[0]) is not None or node.op not in RULES:
        return
    shapes = [known(graph, each) if each else () for each in node.inputs]
    dtype = _dtype(graph, node)
    if dtype is None or not shapes or any(each is None for each in shapes):
        return
    try:
        found = RULES[node.op](graph, node, [each for each in shapes if each is not None])
    except Exception:  # the node itself says what is wrong with it
        return
    if found is not None:
        graph.specs[node.outputs[0]] = Spec(dtype, found)


def _dtype(graph: Graph, node: Node) -> np.dtype | None:
    spec = graph.specs.get(node.outputs[0])
    if spec is not None:
        return spec.dtype
    if node.op in BOOLEANS:
        return np.dtype(bool)
    if node.op == "Cast":
        return None
    first = graph.spec(node.inputs[1 if node.op == "Where" else 0])
    return None if first is None else first.dtype


def _numbers(graph: Graph, node: Node, place: int) -> list[int]:
    """Return the numbers of a constant input; ValueError if it is none."""
    constant = graph.constants.get(node.inputs[place]) if len(node.inputs) > place else None
    if constant is None:
        raise ValueError
    return [int(each) for each in constant.ravel()]


def _reshaped(graph: Graph, node: Node, shapes: list[Shape]) -> Shape | None:
    (given, *_), wanted = shapes, _numbers(graph, node, 1)
    if not node.attributes.get("allowzero", 0):
        wanted = [given[place] if each == 0 else each for place, each in enumerate(wanted)]
    rest = math.prod(each for each in wanted if each != -1)
    found = tuple(math.prod(given) // max(rest, 1) if each == -1 else each for each in wanted)
    return found if math.prod(found) == math.prod(given) else None


def _transposed(graph: Graph, node: Node, shapes: list[Shape]) -> Shape:
    order = node.attributes.get("perm", tuple(reversed(range(len(shapes[0])))))
    return tuple(shapes[0][each] for each in order)


def _unsqueezed(graph: Graph, node: Node, shapes: list[Shape]) -> Shape:
    axes = _numbers(graph, node, 1)
    rank = len(shapes[0]) + len(axes)
    extents, places = iter(shapes[0]), {each % rank for each in axes}
    return tuple(1 if place in places else next(extents) for place in range(rank))


def _squeezed(graph: Graph, node: Node, shapes: list[Shape]) -> Shape:
    axes = {each % len(shapes[0]) for each in _numbers(graph, node, 1)}
    return tuple(extent for place, extent in enumerate(shapes[0]) if place not in axes)


def _multiplied(graph: Graph, node: Node, shapes: list[Shape]) -> Shape | None:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        return None
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def _gathered(graph: Graph, node: Node, shapes: list[Shape]) -> Shape:
    x, indices = shapes
    axis = node.attributes.get("axis", 0) % len(x)
    return (*x[:axis], *indices, *x[axis + 1 :])


def _concatenated(graph: Graph, node: Node, shapes: list[Shape]) -> Shape:
    axis = node.attributes["axis"] % len(shapes[0])
    return (*shapes[0][:axis], sum(each[axis] for each in shapes), *shapes[0][axis + 1 :])


def _together(graph: Graph, node: Node, shapes: list[Shape]) -> Shape:
    return np.broadcast_shapes(*shapes)


#: (graph, node, shapes of the inputs) -> shape of the first result, by operator.
RULES: dict[str, Callable[..., Shape | None]] = {
    **dict.fromkeys(ALIKE, lambda graph, node, shapes: shapes[0]),
    **dict.fromkeys(TOGETHER, _together),
    "Concat": _concatenated,
    "Expand": lambda graph, node, shapes: np.broadcast_shapes(shapes[0], tuple(_numbers(graph, node, 1))),
    "Gather": _gathered,
    "MatMul": _multiplied,
    "Reshape": _reshaped,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
