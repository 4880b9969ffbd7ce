"""Zeros around an image."""

from __future__ import annotations

from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, number


class Paddings(Rewrite):
    """Conv(Pad(x, pads)) -> Conv(x) with these pads, where spatial axes are padded with zeros."""

    roots = ("Conv",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        pad = links.plain(node.inputs[0], "Pad")
        pads = None if pad is None else _zeros(links.graph, pad)
        if pad is None or pads is None or node.attribute("auto_pad") != "NOTSET":
            return False
        own = node.attribute("pads") or (0,) * len(pads)
        attributes = node.attributes | {"pads": tuple(a + b for a, b in zip(own, pads, strict=True))}
        links.change(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)
        links.drop(pad.outputs)
        return True


def _zeros(graph: Graph, pad: Node) -> tuple[int, ...] | None:
    """Return the (begins, ends) of the spatial axes of a Pad node, None for other padding."""
    if pad.attribute("mode") != "constant":
        return None
    if (pad.input(2) and number(graph, pad.input(2)) != 0) or pad.input(3):
        return None
    if pad.inputs[1] not in graph.constants:
        return None
    pads = [int(each) for each in graph.constants[pad.inputs[1]]]
    half = len(pads) // 2
    if min(pads) < 0 or any(pads[:2]) or any(pads[half : half + 2]):
        return None
    return (*pads[2:half], *pads[half + 2 :])
