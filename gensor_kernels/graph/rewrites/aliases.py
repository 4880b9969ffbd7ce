"""Nodes without effect in inference, and operators with a simpler form."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, floats


class Aliases(Rewrite):
    """Dropout(x), Identity(x), a Cast to x's own dtype, an Expand to x's own shape -> x; Sum(a, b) -> Add(a, b)."""

    roots = ("Identity", "Dropout", "Sum", "Cast", "Expand", "Reshape", "Where")

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        if node.op == "Sum":
            return len(node.inputs) == 2 and bool(links.change(node, op="Add"))
        return node.op != "Where" and _changes_nothing(links, node) and links.bypass(node, node.inputs[0])


def _changes_nothing(links: Links, node: Node) -> bool:
    if len(node.outputs) > 1:
        return False
    if node.op in ("Identity", "Dropout"):
        return node.op == "Identity" or len(node.inputs) < 3
    given, found = links.graph.spec(node.inputs[0]), links.graph.spec(node.outputs[0])
    if node.op == "Cast":
        return given is not None and found is not None and given.dtype == found.dtype
    first = links.graph.static(node.inputs[0])
    return first is not None and first == links.graph.static(node.outputs[0])


class Constants(Rewrite):
    """x - c -> x + (-c); x / c -> x * (1 / c), of floating-point tensors; -x -> x * (-1).

    Reciprocals of 16-bit constants are used only if they are exact.
    """

    roots = ("Sub", "Div", "Neg")

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        graph = links.graph
        spec = graph.spec(node.outputs[0])
        if spec is None or not floats(graph, node.outputs[0]):
            return False
        if node.op == "Neg":
            factor = graph.add(node.outputs[0] + ".sign", np.array(-1, spec.dtype))
            return bool(links.change(node, op="Mul", inputs=(node.inputs[0], factor)))
        constant = graph.constants.get(node.inputs[1])
        if constant is None or node.inputs[0] in graph.constants:
            return False
        if node.op == "Sub":
            name = graph.add(node.inputs[1] + ".negative", -constant)
            return bool(links.change(node, op="Add", inputs=(node.inputs[0], name)))
        if constant.size == 1:
            return False  # Scales and Activations take the exact quotient
        wide = constant.astype(np.float64)
        with np.errstate(all="ignore"):
            inverse = (1 / wide).astype(constant.dtype)
        if not np.isfinite(inverse).all() or (
            constant.dtype.itemsize < 4 and (inverse.astype(float) * wide != 1).any()
        ):
            return False
        return bool(
            links.change(node, op="Mul", inputs=(node.inputs[0], graph.add(node.inputs[1] + ".inverse", inverse)))
        )
