"""Operators that exporters write as several: GELU, layer norms and attention."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gensor_kernels.graph.ir.graph import Graph, Node

from .base import Rewrite, alone, number, producers


def _close(value: float | None, wanted: float) -> bool:
    """Return whether a constant is a number, up to the rounding of 16-bit constants."""
    return value is not None and math.isclose(value, wanted, rel_tol=2e-3)


def _other(graph: Graph, node: Node, wanted: float) -> str | None:
    """Return the operand of a node beside a constant of this value."""
    for value, constant in (node.inputs, node.inputs[::-1]):
        if _close(number(graph, constant), wanted):
            return value
    return None


class _Readers:
    """The nodes of a graph by the tensors that they make and read."""

    def __init__(self, graph: Graph):
        self.graph, self.made = graph, producers(graph)

    def maker(self, name: str, op: str) -> Node | None:
        """Return the node that computes a tensor, if it is of this operator and has no epilogue."""
        place = self.made.get(name)
        node = None if place is None else self.graph.nodes[place]
        return node if node is not None and node.op == op and not node.epilogue else None

    def reader(self, name: str, *ops: str) -> Node | None:
        """Return the only node that reads a tensor, if it is of one of these operators."""
        if not alone(self.graph, name):
            return None
        node = next(node for node in self.graph.nodes if name in node.reads())
        return node if node.op in ops and not node.epilogue else None


def _replaced(graph: Graph, last: Node, *nodes: Node) -> bool:
    """Put nodes in the place of the last one of a pattern; the others are dropped when nothing reads them."""
    place = graph.nodes.index(last)
    graph.nodes[place : place + 1] = nodes
    graph.tidy()
    return True


class Gelus(Rewrite):
    """x * 0.5 * (1 + Erf(x / sqrt(2))) -> Gelu(x), in every order of its products."""

    def apply(self, graph: Graph) -> bool:
        """Replace the first such pattern."""
        nodes = _Readers(graph)
        return any(node.op == "Erf" and self._replace(graph, nodes, node) for node in graph.nodes)

    def _replace(self, graph: Graph, nodes: _Readers, erf: Node) -> bool:
        x = None
        if (scaled := nodes.maker(erf.inputs[0], "Div")) and _close(number(graph, scaled.inputs[1]), math.sqrt(2)):
            x = scaled.inputs[0]
        elif scaled := nodes.maker(erf.inputs[0], "Mul"):
            x = _other(graph, scaled, math.sqrt(0.5))
        added = nodes.reader(erf.outputs[0], "Add")
        if x is None or added is None or _other(graph, added, 1.0) != erf.outputs[0]:
            return False
        product = nodes.reader(added.outputs[0], "Mul")
        if product is None:
            return False
        factor = next(each for each in (*product.inputs, "") if each != added.outputs[0])
        last = product
        if factor == x:
            halved = nodes.reader(product.outputs[0], "Mul")
            if halved is None or _other(graph, halved, 0.5) != product.outputs[0]:
                return False
            last = halved
        elif _close(number(graph, factor), 0.5):
            halved = nodes.reader(product.outputs[0], "Mul")
            if halved is None or set(halved.inputs) != {product.outputs[0], x}:
                return False
            last = halved
        else:
            half = nodes.maker(factor, "Mul")
            if half is None or _other(graph, half, 0.5) != x:
                return False
        return _replaced(graph, last, Node("Gelu", (x,), last.outputs, {}, erf.name))


class LayerNorms(Rewrite):
    """(x - mean) / sqrt(mean((x - mean) ** 2) + eps) * w + b -> LayerNormalization(x, w, b), over the last axis."""

    def apply(self, graph: Graph) -> bool:
        """Replace the first such pattern."""
        nodes = _Readers(graph)
        return any(node.op == "Sqrt" and self._replace(graph, nodes, node) for node in graph.nodes)

    def _replace(self, graph: Graph, nodes: _Readers, root: Node) -> bool:
        added = nodes.maker(root.inputs[0], "Add")
        divided = nodes.reader(root.outputs[0], "Div")
        if added is None or divided is None or divided.inputs[1] != root.outputs[0]:
            return False
        for variance, constant in (added.inputs, added.inputs[::-1]):
            eps, mean = number(graph, constant), nodes.maker(variance, "ReduceMean")
            if eps is None or mean is None or not _last_axis(graph, mean):
                continue
            centred = divided.inputs[0]
            if not self._squares(graph, nodes, mean.inputs[0], centred):
                continue
            difference = nodes.maker(centred, "Sub")
            inner = None if difference is None else nodes.maker(difference.inputs[1], "ReduceMean")
            if difference is None or inner is None or inner.inputs[0] != difference.inputs[0]:
                continue
            shape = graph.shape(difference.inputs[0])
            if _last_axis(graph, inner) and shape and isinstance(shape[-1], int):
                return self._scaled(graph, nodes, divided, difference.inputs[0], shape[-1], eps)
        return False

    def _squares(self, graph: Graph, nodes: _Readers, name: str, centred: str) -> bool:
        if (power := nodes.maker(name, "Pow")) and power.inputs[0] == centred:
            return number(graph, power.inputs[1]) == 2
        product = nodes.maker(name, "Mul")
        return product is not None and product.inputs == (centred, centred)

    def _scaled(self, graph: Graph, nodes: _Readers, last: Node, x: str, extent: int, eps: float) -> bool:
        """Take the weight and the bias in, where they are constants of the normalised axis."""
        operands: list[str] = []
        for op in ("Mul", "Add"):
            node = nodes.reader(last.outputs[0], op)
            found = None if node is None else next((each for each in node.inputs if each != last.outputs[0]), None)
            if node is None or found not in graph.constants or graph.constants[found].shape != (extent,):
                break
            operands.append(found)
            last = node
        if not operands:
            return False
        attributes = {"axis": -1, "epsilon": eps}
        return _replaced(graph, last, Node("LayerNormalization", (x, *operands), last.outputs, attributes, last.name))


def _last_axis(graph: Graph, node: Node) -> bool:
    """Return whether a reduction is over the last axis, which it keeps."""
    shape = graph.shape(node.inputs[0])
    if len(node.inputs) < 2 or node.inputs[1] not in graph.constants or shape is None:
        return False
    axes = [int(each) for each in graph.constants[node.inputs[1]].ravel()]
    return axes in ([-1], [len(shape) - 1]) and node.attributes.get("keepdims", 1) == 1


class Attentions(Rewrite):
    """MatMul(Softmax(MatMul(q, kT) * scale + mask), v) -> Attention(q, k, v, mask), for heads of 16 bits.

    Tensors have the axes (batch, heads, rows, head). In float32 an attention is the same three kernels.
    """

    def apply(self, graph: Graph) -> bool:
        """Replace the first such pattern."""
        nodes = _Readers(graph)
        return any(node.op == "Softmax" and self._replace(graph, nodes, node) for node in graph.nodes)

    def _replace(self, graph: Graph, nodes: _Readers, root: Node) -> bool:
        last = nodes.reader(root.outputs[0], "MatMul")
        if last is None or last.inputs[0] != root.outputs[0] or root.attributes.get("axis", -1) not in (-1, 3):
            return False
        for scores, mask in self._masks(graph, nodes, root.inputs[0]):
            scale, product = self._scale(graph, nodes, scores)
            if product is None or not all(alone(graph, each) for each in (scores, product.outputs[0])):
                continue
            q, keys, v = product.inputs[0], product.inputs[1], last.inputs[1]
            if not self._fits(graph, q, keys, v):
                continue
            k = last.outputs[0] + ".keys"
            turned = Node("Transpose", (keys,), (k,), {"perm": (0, 1, 3, 2)}, product.name + ".keys")
            inputs = (q, k, v, mask) if mask else (q, k, v)
            return _replaced(graph, last, turned, Node("Attention", inputs, last.outputs, {"scale": scale}, root.name))
        return False

    def _masks(self, graph: Graph, nodes: _Readers, name: str) -> Iterator[tuple[str, str]]:
        """Yield (scores, mask) that a softmax reads; "" where there is no mask."""
        yield name, ""
        if (added := nodes.maker(name, "Add")) and alone(graph, name):
            first, second = added.inputs
            yield first, second
            yield second, first

    def _scale(self, graph: Graph, nodes: _Readers, name: str) -> tuple[float, Node | None]:
        """Return the factor of scores, and the product behind it."""
        if product := nodes.maker(name, "MatMul"):
            return 1.0, product
        if divided := nodes.maker(name, "Div"):
            value = number(graph, divided.inputs[1])
            return (1 / value, nodes.maker(divided.inputs[0], "MatMul")) if value else (1.0, None)
        if scaled := nodes.maker(name, "Mul"):
            for scores, constant in (scaled.inputs, scaled.inputs[::-1]):
                if value := number(graph, constant):
                    return value, nodes.maker(scores, "MatMul")
        return 1.0, None

    def _fits(self, graph: Graph, *names: str) -> bool:
        specs = [graph.spec(name) for name in names]
        shapes = [spec.shape for spec in specs if spec is not None and spec.shape is not None and len(spec.shape) == 4]
        dtypes = {spec.dtype.name for spec in specs if spec is not None}
        if len(shapes) < 3 or dtypes not in ({"float16"}, {"bfloat16"}):
            return False
        q, keys, v = shapes
        return q[3] == keys[2] == v[3] and q[:2] == keys[:2] == v[:2]
