"""Activations, softmax and norms in parts, recognised by what they compute of one tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links, key_of

from . import algebra as of
from .algebra import ONE, RULES, VIEWS, Algebra, Sum, X, add, alike, constant, multiply, power
from .base import channels

#: Operators of which every pattern has one.
SEEDS = ("Clip", "Erf", "Exp", "HardSigmoid", "Min", "Pow", "Sigmoid", "Sqrt", "Tanh")
#: Nodes from a tensor to a seed, and tensors that follow from it, up to which a pattern is sought.
REACH, MOST = 9, 64


def _of_x(scale: float, value: Sum) -> Sum:
    return multiply(multiply(X, value), constant(scale))


CUBE = multiply(X, multiply(X, X))
#: Activations by operator and attributes.
ACTIVATIONS: list[tuple[str, dict[str, Any], Sum]] = [
    ("Gelu", {}, _of_x(0.5, add(constant(1), of.erf(multiply(X, constant(math.sqrt(0.5))))))),
    (
        "Gelu",
        {"approximate": "tanh"},
        _of_x(1, of.sigmoid(multiply(add(X, CUBE, 0.044715), constant(math.sqrt(8 / math.pi))))),
    ),
    ("Swish", {}, _of_x(1, of.sigmoid(X))),
    ("HardSwish", {}, _of_x(1, of.function("clip", add(multiply(X, constant(1 / 6)), constant(0.5))))),
]


class Patterns:
    """Rule of a whole graph: tensors that a pattern computes of another are computed by its operator.

    The result that is furthest from the tensor is taken, with constant factors and terms of norms.
    """

    name = "Patterns"

    def everywhere(self, links: Links) -> None:
        """Apply the rule around each seed."""
        tried = set[str]()
        for key in [key_of(node) for node in links.nodes() if node.op in SEEDS]:
            seed = links.maker(key, *SEEDS)
            for x in [] if seed is None else _sources(links, seed):
                if x in tried:
                    continue
                tried.add(x)
                found = _pattern(Algebra(links, x), x)
                if found is not None:
                    last, new = found
                    links.apply_rule(self.name, partial(_put, new), last)
                    break


def _put(new: list[Node], links: Links, last: Node) -> bool:
    links.replace(last, *new)
    return True


def _sources(links: Links, seed: Node) -> list[str]:
    """Return the tensors that a seed may be a function of, the furthest first."""
    found, layer = dict[str, None](), list(seed.inputs)
    for _ in range(REACH):
        found |= {name: None for name in layer if name and name not in links.graph.constants}
        makers = [links.maker(name) for name in layer]
        layer = [name for node in makers if node is not None and node.op in RULES for name in node.inputs]
        layer = [name for name in dict.fromkeys(layer) if name not in found]
    return [*found][::-1]


def _pattern(algebra: Algebra, x: str) -> tuple[Node, list[Node]] | None:
    """Return the last node of a pattern that begins at x, and the nodes that replace it."""
    spec = algebra.graph.spec(x)
    for node in reversed(_followers(algebra, x)):
        value = algebra.of(node.outputs[0])
        same = spec is not None and algebra.graph.spec(node.outputs[0]) == spec and node.op not in VIEWS
        if value is not None and same and not algebra.whole.get(node.outputs[0]):
            for recognise in (_activation, _softmax, _norm):
                new = recognise(algebra, x, node, value)
                if new:
                    return node, new
    return None


def _followers(algebra: Algebra, x: str) -> list[Node]:
    """Return the nodes that depend on x and constants alone, in order."""
    links, found, waiting = algebra.links, dict[str, Node](), [x]
    while waiting and len(found) < MOST:
        for node in links.readers(waiting.pop()):
            if key_of(node) not in found and node.op in RULES and algebra.of(node.outputs[0]) is not None:
                found[key_of(node)] = node
                waiting.append(node.outputs[0])
    return sorted(found.values(), key=links.order)


def _activation(algebra: Algebra, x: str, last: Node, value: Sum) -> list[Node]:
    for op, attributes, wanted in ACTIVATIONS:
        if alike(value, wanted):
            return [Node(op, (x,), last.outputs, attributes, last.name)]
    return []


def _softmax(algebra: Algebra, x: str, last: Node, value: Sum) -> list[Node]:
    """exp(x - c) / sum(exp(x - c)) -> Softmax(x), and its logarithm, for any c that is the same along the axis."""
    for op in ("Softmax", "LogSoftmax"):
        for u, axes in _means_of_exp(value):
            (axis, *more) = axes
            shift = add(u, X, -1)
            if more or any(not all(of.is_fixed(atom, axes) for atom, _ in product) for product in shift):
                continue
            count = constant(float((algebra.graph.static(x) or ())[axis]))
            part = of.function("exp", u)
            total = multiply(of.mean(part, axes), count)
            share = multiply(part, power(total, -1) or {})
            if alike(value, share if op == "Softmax" else add(u, of.function("log", total), -1)):
                return [Node(op, (x,), last.outputs, {"axis": axis}, last.name)]
    return []


def _means_of_exp(value: Sum) -> Iterator[tuple[Sum, tuple[int, ...]]]:
    """Yield (u, axes) for each mean of exp(u) in a sum."""
    for product in value:
        for atom, _ in product:
            if atom[0] in ("log", "sum"):
                yield from _means_of_exp(of.thaw(atom[1]))
            elif atom[0] == "mean":
                for (each, _), *more in (inner for inner, _ in atom[1]):
                    if each[0] == "exp" and not more:
                        yield of.thaw(each[1]), atom[2]


def _norm(algebra: Algebra, x: str, last: Node, value: Sum) -> list[Node]:
    """(x - mean) * (variance + eps) ** -0.5 * w + b -> LayerNormalization or InstanceNormalization(x, w, b).

    Without the mean, RMSNormalization.
    """
    for root in {each for product in value for each in product if each[0][0] == "sum" and each[1] == -0.5}:
        base = of.thaw(root[0][1])
        axes = next((atom[2] for product in base for atom, _ in product if atom[0] == "mean"), ())
        eps, square = base.get(ONE, 0.0), multiply(X, X)
        if not axes or not eps > 0:
            continue
        centre = of.mean(X, axes)
        for mean in (centre, {}):
            if not alike(add(base, constant(-eps)), add(of.mean(square, axes), multiply(mean, mean), -1)):
                continue
            kept = {(("x",), 1.0), root}
            weight = {product - kept: factor for product, factor in value.items() if kept <= product}
            rest = add(value, multiply(weight, multiply(add(X, mean, -1), {frozenset({root}): 1.0})), -1)
            scale, shift = algebra.value(weight), algebra.value(rest)
            if weight and scale is not None and shift is not None:
                return _norm_nodes(algebra.links, Norm(x, axes, eps, bool(mean), scale, shift), last)
    return []


class Norm(NamedTuple):
    """A norm of x over some axes: with its mean or without, its epsilon, and constants like x."""

    x: str
    axes: tuple[int, ...]
    eps: float
    centred: bool
    scale: np.ndarray
    shift: np.ndarray


def _norm_nodes(links: Links, norm: Norm, last: Node) -> list[Node]:
    """Return the nodes of a norm over one axis or the last ones, or over images; none for others."""
    graph, x, axes = links.graph, norm.x, norm.axes
    spec, shape = graph.spec(x), graph.static(x)
    if spec is None or shape is None or max(norm.scale.ndim, norm.shift.ndim) > len(shape):
        return []
    rank = len(shape)
    scale, shift = (each.reshape((1,) * (rank - each.ndim) + each.shape) for each in (norm.scale, norm.shift))
    along = [all(each.shape[axis] == 1 for axis in range(rank) if axis not in axes) for each in (scale, shift)]
    attributes: dict[str, Any] = {"epsilon": norm.eps}
    if all(along) and (len(axes) == 1 or axes[-1] == rank - 1) and (norm.centred or not shift.any()):
        op, attributes["axis"] = "LayerNormalization" if norm.centred else "RMSNormalization", -len(axes)
        extents = tuple(shape[axis] for axis in axes)
        found = [np.broadcast_to(each.reshape(np.array(each.shape)[list(axes)]), extents) for each in (scale, shift)]
        found = found if shift.any() else found[:1]
    elif norm.centred and rank > 2 and axes == tuple(range(2, rank)):
        op, vectors = "InstanceNormalization", [channels(each, shape[1], rank) for each in (scale, shift)]
        found = [each for each in vectors if each is not None]
        if len(found) < 2:
            return []
    else:
        return []
    narrow = [np.ascontiguousarray(each, spec.dtype) for each in found]
    if spec.dtype.itemsize == 2 and any((a != b).any() for a, b in zip(narrow, found, strict=True)):
        return []
    names = [graph.add(f"{last.outputs[0]}.norm", each) for each in narrow]
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    if op == "InstanceNormalization" or order == tuple(range(rank)):
        return [Node(op, (x, *names), last.outputs, attributes, last.name)]
    turned = tuple(shape[axis] for axis in order)
    first, normed = (links.fresh(f"{last.outputs[0]}.{each}", x, turned) for each in ("turned", "normed"))
    return [
        Node("Transpose", (x,), (first,), {"perm": order}, last.name),
        Node(op, (first, *names), (normed,), attributes, last.name),
        Node("Transpose", (normed,), last.outputs, {"perm": tuple(np.argsort(order).tolist())}, last.name),
    ]


find_patterns = Patterns()
