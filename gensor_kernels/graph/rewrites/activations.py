"""Element-wise operators that kernels compute, alone or behind a product."""

from __future__ import annotations

from gensor_kernels.graph.ir.graph import Graph, Node, Step

from .base import Rewrite, broadcasts, floats, number, producers

#: Operations of an epilogue, by operator without further arguments.
PLAIN = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
#: Operators of two tensors, by operation.
PAIRS = {"Add": "add", "Mul": "mul"}


class Activations(Rewrite):
    """Relu(x) -> Elementwise(x; relu); Add(x, y) -> Elementwise(x; add y); Clip(x, 0, 6) -> Elementwise(x; relu6).

    Of two operands x is the one with the shape of the result, and of these the one computed last, so that the kernel
    that computes x can take the operation in.
    """

    def apply(self, graph: Graph) -> bool:
        """Replace all such nodes of floating-point tensors."""
        made, changed = producers(graph), False
        for place, node in enumerate(graph.nodes):
            if not node.outputs or not floats(graph, node.outputs[0]):
                continue
            found = _chain(graph, node, made)
            if found is not None and (shape := graph.shape(found[0])) is not None and shape:
                graph.nodes[place] = Node("Elementwise", found[:1], node.outputs, {}, node.name, found[1:], (node.op,))
                changed = True
        return changed


def _chain(graph: Graph, node: Node, made: dict[str, int]) -> tuple[str, Step] | None:
    x = node.inputs[0] if node.inputs else ""
    if node.op in PLAIN:
        return x, Step(PLAIN[node.op])
    if node.op == "Gelu":
        approximate = node.attributes.get("approximate", "none")
        return x, Step("gelu_tanh" if approximate in ("tanh", b"tanh") else "gelu")
    if node.op == "Swish" and node.attributes.get("alpha", 1.0) == 1:
        return x, Step("silu")
    if node.op == "Clip":
        low, high = (number(graph, each) if each else None for each in (*node.inputs[1:], "", "")[:2])
        return (x, Step("relu6")) if (low, high) == (0.0, 6.0) else None
    if node.op in PAIRS:
        return _pair(graph, node, made)
    return None


def _pair(graph: Graph, node: Node, made: dict[str, int]) -> tuple[str, Step] | None:
    result = graph.spec(node.outputs[0])
    whole = [each for each in node.inputs if result is not None and graph.spec(each) == result]
    if not whole:
        return None
    x = max(whole, key=lambda each: made.get(each, -1))
    other = node.inputs[1] if node.inputs[0] == x else node.inputs[0]
    factor = number(graph, other)
    if node.op == "Mul" and factor is not None:
        return x, Step("scale", "", factor)
    return (x, Step(PAIRS[node.op], other)) if broadcasts(graph, other, node.outputs[0]) else None
