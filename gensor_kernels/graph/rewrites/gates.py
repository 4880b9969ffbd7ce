"""Gated products: a product under an activation, times another of the same tensor."""

from __future__ import annotations

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, other_operand
from .siblings import Linear, columns, linear_of

#: Gates of `matmul`, by operator and its attribute `approximate`.
GATES = {
    ("Swish", "none"): "swiglu",
    ("Gelu", "none"): "geglu",
    ("Gelu", "tanh"): "geglu_tanh",
    ("Relu", "none"): "reglu",
}


class Gates(Rewrite):
    """Swish(MatMul(x, g) + c) * (MatMul(x, u) + d) -> GatedMatMul(x, [g, u], [c, d]; swiglu), with constants g and u.

    Also for Gelu and Relu. The rule applies unless the product with a gate is predicted to be slower.
    """

    roots = ("Swish", "Gelu", "Relu")

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        graph = links.graph
        name = GATES.get((node.op, node.attribute("approximate") or "none"))
        last = links.reader(node.outputs[0], "Mul")
        gate = _linear_before(links, node.inputs[0])
        other = None if last is None else _linear_before(links, other_operand(last, node.outputs[0]))
        if name is None or last is None or gate is None or other is None or node.attribute("alpha") not in (None, 1):
            return False
        first, second = (graph.constants[each.weight] for each in (gate, other))
        if gate.product.inputs[0] != other.product.inputs[0]:
            return False
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        both, biases = columns(graph, (gate, other))
        weights = graph.add(gate.weight + ".gated", both)
        inputs = [gate.product.inputs[0], weights]
        if biases is not None:
            inputs.append(graph.add(weights + ".bias", biases))
        parts = (node.op, "MatMul", "Mul")
        new = Node("GatedMatMul", tuple(inputs), last.outputs, {"gate": name}, gate.product.name, (), parts)
        before = potential(graph, [*gate.nodes, *other.nodes, node, last])
        after = potential(graph, [new])
        links.predicted = before, after
        if before is not None and after is not None and after > before:
            links.why = "with the gate in the product, it is predicted to be slower"
            return False
        links.replace(last, new)
        return True


def _linear_before(links: Links, name: str) -> Linear | None:
    """Return the product x @ w + bias that makes a tensor, if nothing else reads it."""
    node = links.maker(name, "Add", "MatMul")
    if node is None or not links.alone(name):
        return None
    if node.op == "MatMul":
        found = linear_of(links, node)
    else:
        found = next((each for part in node.inputs if (each := linear_of(links, links.maker(part)))), None)
    return found if found is not None and found.last is node else None
