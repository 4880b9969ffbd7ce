"""Rotary embeddings as exporters write them, and as operations on elements."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.ir.links import Links

from .base import floats, is_last, number, other_operand, rule


@rule("RotaryEmbeddings", "Concat")
def find_rotary(links: Links, node: Node) -> bool:
    """x * cos + Concat(-x2, x1) * sin -> RotaryEmbedding(x, cos, sin), where x1 and x2 are the halves of x's last axis.

    x has the axes (batch, heads, rows, head). cos and sin are constants of shape (1 or batch, 1, rows, head) whose
    halves are equal: the node reads one half of each, (batch, rows, head / 2).
    """
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


#: Sines are at least this far from zero, so that cosines can be divided by them: far below a float32's rounding.
LEAST_SINE = 1e-9


@rule("Rotations", "RotaryEmbedding")
def rotate_elements(links: Links, node: Node) -> bool:
    """RotaryEmbedding(x, cos, sin, places) -> Rotary(x, ratio, sine): (x * cos / sin + swapped x) * sin, one kernel.

    `ratio` and `sine` are the rows of float32 tables at these places, gathered once for all layers. The cosines and
    sines are constants that rotate whole heads. A sine of 0 is replaced by 1e-9.
    """
    if not _fits(links.graph, node):
        return False
    rows, position = _tables(links.graph, node), node.input(3)
    gathers = [] if not position else [_gather(links.graph, row, position) for row in rows]
    names = [each.outputs[0] for each in gathers] or rows
    fresh = [each for each in gathers if links.maker(each.outputs[0]) is None]
    turned = Node("Rotary", (node.inputs[0], *names), node.outputs, node.attributes, node.name, joined=node.joined)
    links.replace(node, *fresh, turned)
    return True


def _gather(graph: Graph, table: str, position: str) -> Node:
    """Return the node that gathers the rows of a table."""
    name = f"{table}[{position}]"
    places = graph.shape(position) or (None, None)
    graph.specs[name] = Spec(np.dtype(np.float32), (*places, graph.constants[table].shape[1]))
    return Node("Gather", (table, position), (name,), {"axis": 0}, name)


def _fits(graph: Graph, node: Node) -> bool:
    """Return whether cosines and sines of whole heads are constant."""
    cosine, sine = (graph.constants.get(each) for each in node.inputs[1:3])
    shape = graph.shape(node.inputs[0])
    if cosine is None or sine is None or shape is None or not floats(graph, node.inputs[0]):
        return False
    rank, last = 2 if node.input(3) else 3, shape[-1]
    if cosine.shape != sine.shape or cosine.ndim != rank or not isinstance(last, int):
        return False
    head = last if len(shape) == 4 else last // (node.attribute("num_heads") or 1)
    return (node.attribute("rotary_embedding_dim") or head) == head == 2 * cosine.shape[-1]


def _tables(graph: Graph, node: Node) -> tuple[str, str]:
    """Return the names of the ratios and sines of both halves of a head; one pair for equal inputs."""
    interleaved = bool(node.attribute("interleaved"))
    stem = "+".join(node.inputs[1:3]) + ".pairs" * interleaved
    ratio, factor = f"{stem}.ratio", f"{stem}.sine"
    if ratio not in graph.constants:
        cosine, sine = (graph.constants[each].astype(np.float64) for each in node.inputs[1:3])
        parts = [np.stack(pair, -1 if interleaved else -2) for pair in ((cosine, cosine), (-sine, sine))]
        c, s = (each.reshape(*cosine.shape[:-1], -1) for each in parts)
        s = np.where(np.abs(s) < LEAST_SINE, LEAST_SINE, s)
        graph.constants |= {ratio: (c / s).astype(np.float32), factor: s.astype(np.float32)}
    return ratio, factor
