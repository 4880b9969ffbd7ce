"""Products that read one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, floats, other_operand


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


class Siblings(Rewrite):
    """MatMul(x, u), MatMul(x, v) -> Split(MatMul(x, [u, v])), with constants u and v, and joined biases.

    Queries, keys and values of an attention become one product, whose parts are views. The rule applies unless the
    joined product is predicted to be slower.
    """

    roots = ("MatMul",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
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
        new = self._join(links, joins, (*rows[:-1], sum(widths)))
        before, after = potential(graph, [each for join in joins for each in join.nodes]), potential(graph, new)
        links.predicted = before, after
        if before is not None and after is not None and after > before:
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

    def _join(self, links: Links, joins: list[Linear], shape: tuple[int, ...]) -> list[Node]:
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
