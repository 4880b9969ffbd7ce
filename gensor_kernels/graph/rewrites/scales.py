"""Numbers that operands of a product are multiplied with."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, floats, products


class Scales(Rewrite):
    """MatMul(a * s, b * t) -> MatMul(a, b) * (s * t), with numbers s and t.

    The kernel scales its sum in the accumulator's type. In exported attention of 16 bits, both the queries and the keys
    are multiplied by the root of the scale.
    """

    roots = ("MatMul",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        graph = links.graph
        spec = graph.spec(node.outputs[0])
        if node.epilogue or spec is None or not spec.shape or not floats(graph, node.outputs[0]):
            return False
        (a, s), (b, t) = (_factor_of(links, each) for each in node.inputs)
        if (a, b) == node.inputs:
            return False
        scaled = links.fresh(node.outputs[0] + ".product", node.outputs[0])
        factor = graph.add(node.outputs[0] + ".scale", np.array(s * t, np.float64))
        product = Node("MatMul", (a, b), (scaled,), {}, node.name)
        links.replace(node, product, Node("Mul", (scaled, factor), node.outputs, {}, node.name))
        return True


def _factor_of(links: Links, name: str) -> tuple[str, float]:
    """Return a tensor and its factor; others may also read the product."""
    node = links.maker(name, "Mul", "Div")
    if node is None or node.epilogue:
        return name, 1.0
    for value, factor in products(links.graph, node):
        same = links.graph.spec(value) == links.graph.spec(name)
        if factor and np.isfinite(factor) and same and value not in links.graph.constants:
            return value, factor
    return name, 1.0
