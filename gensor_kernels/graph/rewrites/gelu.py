"""GELU and SiLU as exporters write them."""

from __future__ import annotations

import math

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, close, number, other, other_operand


class Gelus(Rewrite):
    """x * 0.5 * (1 + Erf(x / sqrt(2))) -> Gelu(x); x * 0.5 * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    Products may have any order.
    """

    roots = ("Erf", "Tanh")

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        x = _of_erf(links, node.inputs[0]) if node.op == "Erf" else _of_tanh(links, node.inputs[0])
        added = links.reader(node.outputs[0], "Add")
        if x is None or added is None or other(links.graph, added, 1.0) != node.outputs[0]:
            return False
        last = _last_product(links, added.outputs[0], x)
        if last is None:
            return False
        attributes = {"approximate": "tanh"} if node.op == "Tanh" else {}
        links.replace(last, Node("Gelu", (x,), last.outputs, attributes, node.name))
        return True


def _of_erf(links: Links, name: str) -> str | None:
    if (scaled := links.maker(name, "Div")) and close(number(links.graph, scaled.inputs[1]), math.sqrt(2)):
        return scaled.inputs[0]
    scaled = links.maker(name, "Mul")
    return None if scaled is None else other(links.graph, scaled, math.sqrt(0.5))


def _of_tanh(links: Links, name: str) -> str | None:
    graph = links.graph
    scaled = links.maker(name, "Mul")
    inner = None if scaled is None else other(graph, scaled, math.sqrt(2 / math.pi))
    added = None if inner is None else links.maker(inner, "Add")
    if added is None:
        return None
    for x, rest in (added.inputs, added.inputs[::-1]):
        product = links.maker(rest, "Mul")
        cube = None if product is None else other(graph, product, 0.044715)
        if cube is not None and _is_cube(links, cube, x):
            return x
    return None


def _is_cube(links: Links, name: str, x: str) -> bool:
    if (power := links.maker(name, "Pow")) is not None:
        return power.inputs[0] == x and number(links.graph, power.inputs[1]) == 3
    product = links.maker(name, "Mul")
    if product is None or x not in product.inputs:
        return False
    square = links.maker(other_operand(product, x), "Mul")
    return square is not None and square.inputs == (x, x)


def _last_product(links: Links, name: str, x: str) -> Node | None:
    """Return the last node of `name * x * 0.5`, if only these nodes read the results between."""
    graph, product = links.graph, links.reader(name, "Mul")
    if product is None:
        return None
    factor = other_operand(product, name)
    if factor == x:
        halved = links.reader(product.outputs[0], "Mul")
        return halved if halved is not None and other(graph, halved, 0.5) == product.outputs[0] else None
    if close(number(graph, factor), 0.5):
        halved = links.reader(product.outputs[0], "Mul")
        return halved if halved is not None and set(halved.inputs) == {product.outputs[0], x} else None
    half = links.maker(factor, "Mul")
    return product if half is not None and other(graph, half, 0.5) == x else None


class Swishes(Rewrite):
    """x * Sigmoid(x) -> Swish(x)."""

    roots = ("Sigmoid",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        product = links.reader(node.outputs[0], "Mul")
        if product is None or other_operand(product, node.outputs[0]) != node.inputs[0]:
            return False
        links.replace(product, Node("Swish", node.inputs, product.outputs, {}, node.name))
        return True
