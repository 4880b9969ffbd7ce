"""Nodes that change nothing in inference."""

from __future__ import annotations

from gensor_kernels.graph.ir.graph import Graph

from .base import Rewrite, rename


class Aliases(Rewrite):
    """Dropout(x), Identity(x) -> x; Sum(a, b, c) -> Add(Add(a, b), c)."""

    def apply(self, graph: Graph) -> bool:
        """Remove all such nodes whose result is not the graph's own."""
        changed = False
        for place in reversed(range(len(graph.nodes))):
            node = graph.nodes[place]
            result = node.outputs[0]
            plain = node.op == "Identity" or (node.op == "Dropout" and len(node.inputs) < 3 and len(node.outputs) == 1)
            if plain and result not in graph.outputs:
                del graph.nodes[place]
                rename(graph, result, node.inputs[0])
                changed = True
            elif node.op == "Sum" and len(node.inputs) == 2:
                graph.replaced(place, op="Add")
                changed = True
        return changed
