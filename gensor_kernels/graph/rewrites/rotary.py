"""Rotary embeddings as exporters write them."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, floats, is_last, number, other_operand


class RotaryEmbeddings(Rewrite):
    """x * cos + Concat(-x2, x1) * sin -> RotaryEmbedding(x, cos, sin), where x1 and x2 are the halves of x's last axis.

    x has the axes (batch, heads, rows, head). cos and sin are constants of shape (1 or batch, 1, rows, head) whose
    halves are equal: the node reads one half of each, (batch, rows, head / 2).
    """

    roots = ("Concat",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        graph, turned = links.graph, node.outputs[0]
        x = _rotation_source(links, node)
        scaled = links.reader(turned, "Mul")
        shape = None if x is None else graph.static(x)
        if x is None or scaled is None or shape is None or len(shape) != 4 or not floats(graph, x):
            return False
        last = links.reader(scaled.outputs[0], "Add")
        other = None if last is None else links.maker(other_operand(last, scaled.outputs[0]), "Mul")
        if last is None or other is None or x not in other.inputs or not links.alone(other.outputs[0]):
            return False
        if graph.spec(last.outputs[0]) != graph.spec(x):
            return False
        cosine, sine = (_half(links, each, shape) for each in (other_operand(other, x), other_operand(scaled, turned)))
        if cosine is None or sine is None:
            return False
        names = graph.add(last.outputs[0] + ".cos", cosine), graph.add(last.outputs[0] + ".sin", sine)
        links.replace(last, Node("RotaryEmbedding", (x, *names), last.outputs, {}, node.name))
        return True


def _rotation_source(links: Links, node: Node) -> str | None:
    """Return x of Concat(-x2, x1) along the last axis."""
    shape = links.graph.static(node.outputs[0])
    if len(node.inputs) != 2 or not shape or not is_last(node.attribute("axis"), shape) or shape[-1] % 2:
        return None
    negated = links.maker(node.inputs[0], "Neg")
    halves = [None if negated is None else _cut(links, negated.inputs[0]), _cut(links, node.inputs[1])]
    if halves[0] is None or halves[1] is None or halves[0][0] != halves[1][0]:
        return None
    half = shape[-1] // 2
    fits = links.graph.static(halves[0][0]) == shape and (halves[0][1:], halves[1][1:]) == (
        (half, half * 2),
        (0, half),
    )
    return halves[0][0] if fits else None


def _cut(links: Links, name: str) -> tuple[str, int, int] | None:
    """Return (x, begin, end) of a part of x along its last axis."""
    node = links.maker(name, "Slice", "Split")
    shape = None if node is None else links.graph.static(node.inputs[0])
    if node is None or not shape:
        return None
    if node.op == "Split":
        parts = [links.graph.static(each) for each in node.outputs]
        if not is_last(node.attribute("axis"), shape) or any(part is None for part in parts):
            return None
        extents = [part[-1] for part in parts if part]
        place = node.outputs.index(name)
        return node.inputs[0], sum(extents[:place]), sum(extents[: place + 1])
    numbers = [number(links.graph, each) for each in node.inputs[1:]]
    if len(numbers) < 3 or any(each is None for each in numbers) or (len(numbers) > 3 and numbers[3] != 1):
        return None
    begin, end, axis = (int(each) for each in numbers[:3] if each is not None)
    if not is_last(axis, shape):
        return None
    begin, end, _ = slice(begin, end).indices(shape[-1])
    return node.inputs[0], begin, end


def _half(links: Links, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return half of a constant (batch, 1, rows, head) as (batch, rows, head / 2), if both halves are equal."""
    constant = links.graph.constants.get(name)
    if constant is None or constant.ndim > 4:
        return None
    whole = constant.reshape((1,) * (4 - constant.ndim) + constant.shape)
    if whole.shape[1] != 1 or whole.shape[3] != shape[3] or whole.shape[2] not in (1, shape[2]):
        return None
    first, second = np.split(whole[:, 0], 2, axis=-1)
    if (first != second).any() or whole.shape[0] not in (1, shape[0]):
        return None
    return np.ascontiguousarray(np.broadcast_to(first, (shape[0], shape[2], shape[3] // 2)))
