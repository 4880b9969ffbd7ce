"""Rules, and queries of a graph that rules share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links, key_of


class Rule(NamedTuple):
    """A change of a graph that keeps its results up to rounding."""

    #: Name in decisions.
    name: str
    #: Operators of the nodes at which the rule begins.
    roots: tuple[str, ...]
    #: Applies the rule to a node of one of `roots`; returns whether anything changed.
    apply: Callable[[Links, Node], bool]

    def everywhere(self, links: Links) -> None:
        """Apply the rule to every node of its roots, in order, and to those that it makes."""
        waiting = deque(key_of(node) for node in links.nodes() if node.op in self.roots)
        queued = set(waiting)
        while waiting:
            key = waiting.popleft()
            queued.discard(key)
            node = links.maker(key, *self.roots)
            if node is None or key_of(node) != key:
                continue
            if links.apply_rule(self.name, self.apply, node):
                made = [key_of(each) for each in links.added if each.op in self.roots]
                waiting.extend(each for each in made if each not in queued)
                queued.update(made)


def rule(name: str, *roots: str) -> Callable[[Callable[[Links, Node], bool]], Rule]:
    """Decorate the function of a rule."""
    return lambda apply: Rule(name, roots, apply)


def floats(graph: Graph, name: str) -> bool:
    """Return whether a tensor has floating-point elements of a dtype that kernels compute in."""
    found = graph.spec(name)
    return found is not None and found.dtype.name in ("float16", "bfloat16", "float32", "float64")


def number(graph: Graph, name: str) -> float | None:
    """Return the value of a constant of one element, or None for other tensors."""
    constant = graph.constants.get(name)
    if constant is None or constant.size != 1 or constant.dtype == object:
        return None
    return float(constant.ravel()[0])


def products(graph: Graph, node: Node) -> Iterator[tuple[str, float]]:
    """Yield (x, s) for each way in which a Mul or a Div is x * s, with a number s that is not 0."""
    for value, constant in (node.inputs,) if node.op == "Div" else (node.inputs, node.inputs[::-1]):
        if factor := number(graph, constant):
            yield value, 1 / factor if node.op == "Div" else factor


def is_last(axis: int, shape: Sequence[object]) -> bool:
    """Return whether an axis, counted from either side, is the last one."""
    return axis in (-1, len(shape) - 1)


def other_operand(node: Node, name: str) -> str:
    """Return the other one of a node's two operands."""
    first, second = node.inputs
    return second if first == name else first


def axes_of(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Return the constant axes of a reduction, counted from 0."""
    shape = graph.shape(node.inputs[0])
    if node.input(1) not in graph.constants or shape is None:
        return None
    return tuple(sorted(int(each) % len(shape) for each in graph.constants[node.inputs[1]].ravel()))


def channels(constant: np.ndarray, count: int, rank: int) -> np.ndarray | None:
    """Return a constant as a vector along axis 1 of a tensor with `rank` axes, or None if it varies along others."""
    if constant.size == 1:
        return np.full(count, constant.ravel()[0], constant.dtype)
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if constant.ndim > rank or len(shape) < 2 or shape[1] != count or constant.size != count:
        return None
    return constant.ravel()


def broadcasts(graph: Graph, operand: str, result: str) -> bool:
    """Return whether `operand` surely broadcasts to the shape of `result`, with the same dtype."""
    small, large = graph.spec(operand), graph.spec(result)
    if small is None or large is None or small.dtype != large.dtype or small.shape is None or large.shape is None:
        return False
    if len(small.shape) > len(large.shape):
        return False
    tail = large.shape[len(large.shape) - len(small.shape) :]
    return all(a == 1 or (a == b and a is not None) for a, b in zip(small.shape, tail, strict=True))


def operators_of(first: Node, second: Node) -> tuple[str, ...]:
    """Return the operators that a node computes after it has joined another."""
    return (*first.joined, second.op, *second.joined) if second.op != "Elementwise" else (*first.joined, *second.joined)
