"""Zeros around an image."""

from __future__ import annotations

from gensor_kernels.graph.ir.graph import Graph

from .base import Rewrite, alone, number, producers


class Paddings(Rewrite):
    """Conv(Pad(x, pads)) -> Conv(x) with these pads, where spatial axes are padded with zeros."""

    def apply(self, graph: Graph) -> bool:
        """Fold all such nodes."""
        made = producers(graph)
        for place, node in enumerate(graph.nodes):
            position = made.get(node.inputs[0]) if node.op == "Conv" else None
            if position is None or not alone(graph, node.inputs[0]):
                continue
            pad = graph.nodes[position]
            pads = _zeros(graph, position)
            if pads is None or node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET"):
                continue
            own = node.attributes.get("pads", (0,) * len(pads))
            attributes = node.attributes | {"pads": tuple(a + b for a, b in zip(own, pads, strict=True))}
            graph.replaced(place, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)
            del graph.nodes[position]
            return True
        return False


def _zeros(graph: Graph, position: int) -> tuple[int, ...] | None:
    """Return the (begins, ends) of the spatial axes of a Pad node, None for other nodes and other padding."""
    pad = graph.nodes[position]
    if pad.op != "Pad" or pad.attributes.get("mode", "constant") not in ("constant", b"constant"):
        return None
    filled = pad.inputs[2] if len(pad.inputs) > 2 else ""
    if (filled and number(graph, filled) != 0) or (len(pad.inputs) > 3 and pad.inputs[3]):
        return None
    if pad.inputs[1] not in graph.constants:
        return None
    pads = [int(each) for each in graph.constants[pad.inputs[1]]]
    half = len(pads) // 2
    if min(pads) < 0 or any(pads[:2]) or any(pads[half : half + 2]):
        return None
    return (*pads[2:half], *pads[half + 2 :])
