"""Products: numbers that they are scaled with, products of one tensor, and products under a gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links

from .base import floats, other_operand, products, rule


@rule("Scales", "MatMul")
def move_scales(links: Links, node: Node) -> bool:
    """MatMul(a * s, b * t) -> MatMul(a, b) * (s * t), with numbers s and t.

    The kernel scales its sum in the accumulator's type. In exported attention of 16 bits, both the queries and the keys
    are multiplied by the root of the scale.
    """
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


class Linear(NamedTuple):
    """A product x @ w + bias with constants: its nodes, and their names ("" for no bias)."""

    product: Node
    last: Node
    weight: str
    bias: str

    @property
    def nodes(self) -> list[Node]:
        """The product, and the sum with its bias."""
        return [self.product] if self.last is self.product else [self.product, self.last]


def linear_of(links: Links, node: Node | None) -> Linear | None:
    """Return the product x @ w + bias that begins at a node, if w and the bias are constants."""
    if node is None or node.op != "MatMul" or node.epilogue:
        return None
    weight = links.graph.constants.get(node.inputs[1])
    if weight is None or weight.ndim != 2 or not floats(links.graph, node.outputs[0]):
        return None
    added = links.reader(node.outputs[0], "Add")
    bias = "" if added is None else other_operand(added, node.outputs[0])
    constant = links.graph.constants.get(bias)
    if added is None or constant is None or constant.shape != weight.shape[1:] or constant.dtype != weight.dtype:
        return Linear(node, node, node.inputs[1], "")
    return Linear(node, added, node.inputs[1], bias)


def columns(graph: Graph, linears: Sequence[Linear]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the weights of several products next to each other, and their biases, or None if there are none."""
    weights = [graph.constants[each.weight] for each in linears]
    joined = graph.derived.array("columns", weights, lambda: np.concatenate(weights, axis=1))
    if not any(each.bias for each in linears):
        return joined, None
    terms = [
        graph.constants[each.bias] if each.bias else np.zeros(part.shape[1], part.dtype)
        for each, part in zip(linears, weights, strict=True)
    ]
    return joined, np.concatenate(terms)


@rule("Siblings", "MatMul")
def join_siblings(links: Links, node: Node) -> bool:
    """MatMul(x, u), MatMul(x, v) -> Split(MatMul(x, [u, v])), with constants u and v, and joined biases.

    Queries, keys and values of an attention become one product, whose parts are views. The rule applies unless the
    joined product is predicted to be slower.
    """
    graph, x = links.graph, node.inputs[0]
    found = [linear_of(links, each) for each in links.readers(x) if each.inputs[0] == x]
    joins = [each for each in found if each is not None]
    if len(joins) < 2 or joins[0].product is not node:
        return False
    weights = [graph.constants[each.weight] for each in joins]
    if len({(each.dtype, each.shape[0]) for each in weights}) > 1:
        return False
    rows = graph.static(x)
    spec = graph.spec(node.outputs[0])
    if rows is None or spec is None or spec.dtype != weights[0].dtype:
        return False
    widths = [each.shape[1] for each in weights]
    new = _join(links, joins, (*rows[:-1], sum(widths)))
    if links.is_slower(new, [each for join in joins for each in join.nodes]):
        links.why = "joined, it is predicted to be slower"
        return False
    links.why = f"{len(joins)} products read {x}"
    sizes = graph.add(new[-1].outputs[0] + ".sizes", np.array(widths, np.int64))
    results = tuple(each.last.outputs[0] for each in joins)
    split = Node("Split", (new[-1].outputs[0], sizes), results, {"axis": len(rows) - 1}, node.name)
    for each in joins[::-1]:
        for part in each.nodes[::-1]:
            if part is not node:
                links.remove(part)
    links.put(node, *new, split)
    return True


def _join(links: Links, joins: list[Linear], shape: tuple[int, ...]) -> list[Node]:
    first = joins[0].product
    like, (joined, biases) = first.outputs[0], columns(links.graph, joins)
    weight = links.graph.add(like + ".weights", joined)
    result = links.fresh(like + ".joined", like, shape)
    new = [Node("MatMul", (first.inputs[0], weight), (result,), {}, first.name)]
    if biases is not None:
        bias = links.graph.add(result + ".biases", biases)
        added = links.fresh(result + ".sum", like, shape)
        new.append(Node("Add", (result, bias), (added,), {}, first.name))
    return new


#: Gates of `matmul`, by operator and its attribute `approximate`.
GATES = {
    ("Swish", "none"): "swiglu",
    ("Gelu", "none"): "geglu",
    ("Gelu", "tanh"): "geglu_tanh",
    ("Relu", "none"): "reglu",
}


@rule("Gates", "Swish", "Gelu", "Relu")
def join_gates(links: Links, node: Node) -> bool:
    """Swish(MatMul(x, g) + c) * (MatMul(x, u) + d) -> GatedMatMul(x, [g, u], [c, d]; swiglu), with constants g and u.

    Also for Gelu and Relu. The rule applies unless the product with a gate is predicted to be slower.
    """
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
    if links.is_slower([new], [*gate.nodes, *other.nodes, node, last]):
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
