"""Element-wise operators that kernels compute, alone or after a product."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.elementwise import STEPS

from .base import Potential, Rewrite, broadcasts, floats, number

#: Operators of two tensors, by operation.
PAIRS = {"Add": "add", "Mul": "mul", "Sub": "sub", "Div": "div"}

Found = tuple[str, tuple[Step, ...]]


class Activations(Rewrite):
    """Relu(x) -> Elementwise(x; relu); Add(x, y) -> Elementwise(x; add y); Clip(x, 0, 6) -> Elementwise(x; relu6).

    x - y is (-y) + x or, as x + (-c), an addition; x / c is a scale; HardSigmoid and HardSwish are a shifted and scaled
    relu6; Where(keep, x, c) is a mask. If both operands have the shape of the result, x is the one computed last, whose
    kernel can then compute the operation.
    """

    roots = (*STEPS, *PAIRS, "Gelu", "Swish", "Clip", "HardSigmoid", "HardSwish", "Where")

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        if not floats(links.graph, node.outputs[0]):
            return False
        found = _chain(links, node)
        if found is None or not links.graph.shape(found[0]):
            return False
        links.replace(node, Node("Elementwise", (found[0],), node.outputs, {}, node.name, found[1], (node.op,)))
        return True


def _chain(links: Links, node: Node) -> Found | None:
    graph, x = links.graph, node.inputs[0]
    if node.op in STEPS:
        return x, (Step(STEPS[node.op]),)
    if node.op == "Gelu":
        return x, (Step("gelu_tanh" if node.attribute("approximate") == "tanh" else "gelu"),)
    if node.op == "Swish":
        return (x, (Step("silu"),)) if node.attribute("alpha") == 1 else None
    if node.op == "Clip":
        low, high = (number(graph, each) if each else None for each in (*node.inputs[1:], "", "")[:2])
        return (x, (Step("relu6"),)) if (low, high) == (0.0, 6.0) else None
    if node.op == "HardSwish":
        return x, (*_hard(graph, node, 1 / 6, 0.5), Step("mul", x))
    if node.op == "HardSigmoid":
        return x, _hard(graph, node, node.attribute("alpha"), node.attribute("beta"))
    return _where(graph, node) if node.op == "Where" else _pair(links, node)


def _hard(graph: Graph, node: Node, alpha: float, beta: float) -> tuple[Step, ...]:
    """Return max(0, min(1, alpha * x + beta)) as steps: relu6 reaches to 6."""
    spec = graph.spec(node.inputs[0])
    assert spec is not None
    term = Step("add", graph.add(node.outputs[0] + ".term", np.array(6 * beta, spec.dtype)))
    first = () if alpha == 1 / 6 else (Step("scale", "", 6 * alpha),)
    return (*first, term, Step("relu6"), Step("scale", "", 1 / 6))


def _where(graph: Graph, node: Node) -> Found | None:
    keep, x, fill = node.inputs
    value, shape = number(graph, fill), graph.shape(keep)
    result = graph.spec(node.outputs[0])
    if value is None or result is None or shape is None or result.shape is None:
        return None
    if (other := number(graph, x)) is not None and (extents := graph.static(node.outputs[0])):
        x = graph.add(node.outputs[0] + ".other", np.broadcast_to(np.array(other, result.dtype), extents))
    if graph.spec(x) != result:
        return None
    tail = result.shape[len(result.shape) - len(shape) :]
    if len(shape) > len(result.shape) or any(a not in (1, b) for a, b in zip(shape, tail, strict=True)):
        return None
    return x, (Step("mask", keep, value),)


def _pair(links: Links, node: Node) -> Found | None:
    graph, result = links.graph, links.graph.spec(node.outputs[0])
    whole = [each for each in node.inputs if result is not None and graph.spec(each) == result]
    if not whole:
        return None
    x = max(whole, key=links.when)
    first = node.inputs[0] == x
    other = node.inputs[1] if first else node.inputs[0]
    factor = number(graph, other)
    if node.op == "Div":
        return (x, (Step("scale", "", 1 / factor),)) if first and factor else None
    if node.op == "Mul" and factor is not None:
        return x, (Step("scale", "", factor),)
    if not broadcasts(graph, other, node.outputs[0]):
        return None
    if node.op == "Sub":
        if not first:  # other - x
            return x, (Step("scale", "", -1.0), Step("add", other))
        if graph.spec(other) == result:  # x - other, as -other + x
            return other, (Step("scale", "", -1.0), Step("add", x))
        return None
    return x, (Step(PAIRS[node.op], other),)
