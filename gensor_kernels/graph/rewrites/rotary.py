"""Rotary embeddings as operations on elements."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec

from .base import Rewrite, floats, producers

#: Sines are at least this far from zero, so that cosines can be divided by them: far below a float32's rounding.
LEAST_SINE = 1e-9


class Rotaries(Rewrite):
    """RotaryEmbedding(x, cos, sin, places) -> Rotary(x, ratio, sine): (x * cos / sin + swapped x) * sin, one kernel.

    `ratio` and `sine` are the rows of float32 tables at these places, gathered once for all layers. The cosines and
    sines are constants that rotate whole heads. A sine of 0 is replaced by 1e-9.
    """

    def apply(self, graph: Graph) -> bool:
        """Replace the first such node."""
        for place, node in enumerate(graph.nodes):
            if node.op == "RotaryEmbedding" and self._fits(graph, node):
                rows, position = self._tables(graph, node), (*node.inputs, "")[3]
                gathered = [self._gather(graph, row, position) for row in rows]
                inputs = (node.inputs[0], *(name for name, _ in gathered))
                found = Node("Rotary", inputs, node.outputs, node.attributes, node.name, joined=node.joined)
                graph.nodes[place : place + 1] = [*(each for _, nodes in gathered for each in nodes), found]
                return True
        return False

    def _gather(self, graph: Graph, table: str, position: str) -> tuple[str, list[Node]]:
        """Return the name of the rows of a table, and the node that gathers them where there is none yet."""
        name = f"{table}[{position}]"
        if not position or name in producers(graph):
            return (name if position else table), []
        places = graph.shape(position) or (None, None)
        graph.specs[name] = Spec(np.dtype(np.float32), (*places, graph.constants[table].shape[1]))
        return name, [Node("Gather", (table, position), (name,), {"axis": 0}, name)]

    def _fits(self, graph: Graph, node: Node) -> bool:
        cosine, sine = (graph.constants.get(each) for each in node.inputs[1:3])
        shape = graph.shape(node.inputs[0])
        if cosine is None or sine is None or shape is None or not floats(graph, node.inputs[0]):
            return False
        rank = 2 if (*node.inputs, "")[3] else 3
        last = shape[-1]
        if cosine.shape != sine.shape or cosine.ndim != rank or not isinstance(last, int):
            return False
        head = last if len(shape) == 4 else last // (node.attributes.get("num_heads") or 1)
        turned = node.attributes.get("rotary_embedding_dim") or head
        return turned == head == 2 * cosine.shape[-1]

    def _tables(self, graph: Graph, node: Node) -> tuple[str, str]:
        """Return the names of the ratios and sines of both halves of a head; one pair for equal inputs."""
        interleaved = bool(node.attributes.get("interleaved", 0))
        names = tuple(f"{'+'.join(node.inputs[1:3])}.{kind}{'.pairs' * interleaved}" for kind in ("ratio", "sine"))
        if names[0] not in graph.constants:
            cosine, sine = (graph.constants[each].astype(np.float64) for each in node.inputs[1:3])
            parts = [np.stack(pair, -1 if interleaved else -2) for pair in ((cosine, cosine), (-sine, sine))]
            c, s = (each.reshape(*cosine.shape[:-1], -1) for each in parts)
            s = np.where(np.abs(s) < LEAST_SINE, LEAST_SINE, s)
            for name, table in zip(names, (c / s, s), strict=True):
                graph.constants[name] = table.astype(np.float32)
        return names[0], names[1]
