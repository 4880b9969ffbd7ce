"""Rotary embeddings as operations on elements."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, floats

#: Sines are at least this far from zero, so that cosines can be divided by them: far below a float32's rounding.
LEAST_SINE = 1e-9


class Rotations(Rewrite):
    """RotaryEmbedding(x, cos, sin, places) -> Rotary(x, ratio, sine): (x * cos / sin + swapped x) * sin, one kernel.

    `ratio` and `sine` are the rows of float32 tables at these places, gathered once for all layers. The cosines and
    sines are constants that rotate whole heads. A sine of 0 is replaced by 1e-9.
    """

    roots = ("RotaryEmbedding",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
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
