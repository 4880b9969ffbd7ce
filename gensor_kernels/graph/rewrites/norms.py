"""Layer norms and RMS norms as exporters write them."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, floats, last_axis, number, other_operand


class LayerNorms(Rewrite):
    """(x - mean) / sqrt(mean((x - mean) ** 2) + eps) * w + b -> LayerNormalization(x, w, b), over the last axis."""

    roots = ("Sqrt",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        found = _mean_square(links, node)
        divided = _quotient(links, node)
        if found is None or divided is None:
            return False
        centred, eps, last = found[0], found[1], divided[1]
        difference = links.maker(centred, "Sub")
        inner = None if difference is None else links.maker(difference.inputs[1], "ReduceMean")
        if divided[0] != centred or difference is None or inner is None or inner.inputs[0] != difference.inputs[0]:
            return False
        shape = links.graph.static(difference.inputs[0])
        if not shape or not last_axis(links.graph, inner):
            return False
        x, last = _uncast(links, difference.inputs[0], last)
        return _put_norm(links, node, ("LayerNormalization", ("Mul", "Add")), x, last, shape[-1], eps)


class RMSNorms(Rewrite):
    """x / sqrt(mean(x ** 2) + eps) * w -> RMSNormalization(x, w), over the last axis.

    The inverse root may be a Reciprocal. Casts to float32 and back around the norm disappear: its kernel computes in
    float32.
    """

    roots = ("Sqrt",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        found = _mean_square(links, node)
        divided = _quotient(links, node)
        if found is None or divided is None or divided[0] != found[0]:
            return False
        shape = links.graph.static(found[0])
        if not shape:
            return False
        x, last = _uncast(links, found[0], divided[1])
        return _put_norm(links, node, ("RMSNormalization", ("Mul",)), x, last, shape[-1], found[1])


def _mean_square(links: Links, root: Node) -> tuple[str, float] | None:
    """Return (x, eps) of sqrt(mean(x ** 2) + eps)."""
    graph, added = links.graph, links.maker(root.inputs[0], "Add")
    if added is None:
        return None
    for value, constant in (added.inputs, added.inputs[::-1]):
        eps, mean = number(graph, constant), links.maker(value, "ReduceMean")
        if eps is None or not eps > 0 or mean is None or not last_axis(graph, mean):
            continue
        square = links.maker(mean.inputs[0], "Pow", "Mul")
        if square is None:
            continue
        x = square.inputs[0]
        if square.inputs[1] == x if square.op == "Mul" else number(graph, square.inputs[1]) == 2:
            return x, eps
    return None


def _quotient(links: Links, root: Node) -> tuple[str, Node] | None:
    """Return (x, node) of the node that computes x / root."""
    result = root.outputs[0]
    if (divided := links.reader(result, "Div")) is not None and divided.inputs[1] == result:
        if number(links.graph, divided.inputs[0]) != 1:
            return divided.inputs[0], divided
        inverse: Node | None = divided
    else:
        inverse = links.reader(result, "Reciprocal")
    product = None if inverse is None else links.reader(inverse.outputs[0], "Mul")
    if inverse is None or product is None or product.inputs[0] == product.inputs[1]:
        return None
    return other_operand(product, inverse.outputs[0]), product


def _uncast(links: Links, x: str, last: Node) -> tuple[str, Node]:
    """Return the tensor before a Cast to float32, and the Cast back after the norm, if both exist."""
    cast, graph = links.maker(x, "Cast"), links.graph
    if cast is None or not floats(graph, cast.inputs[0]):
        return x, last
    own, wide = graph.spec(cast.inputs[0]), graph.spec(x)
    if own is None or wide is None or (own.dtype.itemsize, wide.dtype.name) != (2, "float32"):
        return x, last
    weighted = links.reader(last.outputs[0], "Mul")
    back = links.reader(last.outputs[0], "Cast")
    if back is not None and graph.spec(back.outputs[0]) == own:
        return cast.inputs[0], back
    if weighted is not None and (back := links.reader(weighted.outputs[0], "Cast")) is not None:
        weight = graph.constants.get(other_operand(weighted, last.outputs[0]))
        narrow = None if weight is None else weight.astype(own.dtype)
        if narrow is None or graph.spec(back.outputs[0]) != own or (narrow.astype(np.float32) != weight).any():
            return x, last
        # The weight after the Cast instead of before it.
        name = graph.add(weighted.outputs[0] + ".weight", narrow)
        between = links.fresh(last.outputs[0] + ".narrow", own)
        narrowed = Node("Cast", last.outputs, (between,), back.attributes, back.name)
        links.replace(back, narrowed, Node("Mul", (between, name), back.outputs, {}, weighted.name))
        return cast.inputs[0], narrowed
    return x, last


def _put_norm(
    links: Links, root: Node, kind: tuple[str, tuple[str, ...]], x: str, last: Node, extent: int, eps: float
) -> bool:
    """Put the norm in place of its last node, with the weight and the bias after it if they are constants."""
    graph, spec = links.graph, links.graph.spec(x)
    if spec is None or not floats(graph, x) or graph.spec(last.outputs[0]) != spec:
        return False
    operands: list[str] = []
    for op in kind[1]:
        node = links.reader(last.outputs[0], op)
        found = "" if node is None else other_operand(node, last.outputs[0])
        constant = graph.constants.get(found)
        if node is None or constant is None or constant.shape != (extent,) or constant.dtype != spec.dtype:
            break
        operands.append(found)
        last = node
    if not operands:
        operands.append(graph.add(last.outputs[0] + ".ones", np.ones(extent, spec.dtype)))
    attributes = {"axis": -1, "epsilon": eps}
    links.replace(last, Node(kind[0], (x, *operands), last.outputs, attributes, root.name))
    return True
