"""What a rule is, and questions that rules ask about a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node


class Rewrite(ABC):
    """A rule that changes a graph without changing its results beyond rounding."""

    @abstractmethod
    def apply(self, graph: Graph) -> bool:
        """Apply the rule wherever it fits; return whether anything changed."""


def producers(graph: Graph) -> dict[str, int]:
    """Return the position of the node that computes each tensor."""
    return {name: place for place, node in enumerate(graph.nodes) for name in node.outputs if name}


def floats(graph: Graph, name: str) -> bool:
    """Return whether a tensor has floating-point elements of a dtype that kernels compute in."""
    found = graph.spec(name)
    return found is not None and found.dtype.name in ("float16", "bfloat16", "float32", "float64")


def number(graph: Graph, name: str) -> float | None:
    """Return the value of a constant with one element, None for other tensors."""
    constant = graph.constants.get(name)
    return float(constant.ravel()[0]) if constant is not None and constant.size == 1 else None


def channels(constant: np.ndarray, count: int, rank: int) -> np.ndarray | None:
    """Return a constant as a vector along axis 1 of a tensor with `rank` axes; None if it varies along others."""
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


def alone(graph: Graph, name: str) -> bool:
    """Return whether a tensor is read once, by a node of the graph."""
    return graph.uses()[name] == 1 and name not in graph.outputs


def without(graph: Graph, place: int, old: str, new: str) -> None:
    """Remove a node and let readers of its result `old` read `new`."""
    del graph.nodes[place]
    rename(graph, old, new)


def rename(graph: Graph, old: str, new: str) -> None:
    """Let readers of `old` read `new`."""
    for place, node in enumerate(graph.nodes):
        if old in node.reads():
            inputs = tuple(new if each == old else each for each in node.inputs)
            steps = tuple(step._replace(operand=new) if step.operand == old else step for step in node.epilogue)
            graph.replaced(place, inputs=inputs, epilogue=steps)


def joined(first: Node, second: Node) -> tuple[str, ...]:
    """Return the operators that a node computes which takes another in."""
    return (*first.joined, second.op, *second.joined) if second.op != "Elementwise" else (*first.joined, *second.joined)
