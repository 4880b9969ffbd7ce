"""Bounds on what a small file may ask for: functions that call functions, texts, and constants that it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.shown import shown

#: Nodes of a model once its functions are inlined.
MOST_NODES = 100_000
#: Bytes of all texts in the attributes of one node.
LARGEST_TEXT = 1 << 20
#: Bytes of the constants that a model computes from constants.
LARGEST_FOLDED = 2 << 30


def check(model: Any) -> None:
    """Raise UnsupportedError for a model whose operators take far more memory than its file.

    Parameters
    ----------
    model : onnx.ModelProto
        As the file has it.
    """
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        size = sum(len(each.s) + sum(map(len, each.strings)) for each in node.attribute)
        if size > LARGEST_TEXT:
            raise UnsupportedError(f"{_label(node)}: texts of {size} bytes are not served, {LARGEST_TEXT} are")
    count = inlined(model)
    if count > MOST_NODES:
        raise UnsupportedError(f"the model has {count} nodes with its functions inlined: {MOST_NODES} are served")


def inlined(model: Any) -> int:
    """Return the number of nodes of a model once its functions are inlined.

    Raises UnsupportedError for functions that call themselves.
    """
    functions = {(each.domain, each.name): each for each in model.functions}
    counts: dict[tuple[str, str], int] = {}
    open_ = [*functions]
    entered: set[tuple[str, str]] = set()
    while open_:  # not by recursion: functions may be nested deeper than Python's stack
        key = open_[-1]
        called = [each for each in _called(functions[key].node) if each in functions]
        missing = [each for each in called if each not in counts]
        if key in counts or not missing:
            open_.pop()
            counts[key] = sum(counts.get(each, 1) for each in _called(functions[key].node))
        elif key in entered:
            raise UnsupportedError(f"function {shown(key[1])} calls itself; export the model without it")
        else:
            entered.add(key)
            open_ += missing
    return sum(counts.get(each, 1) for each in _called(model.graph.node))


def _called(nodes: Any) -> list[tuple[str, str]]:
    return [(node.domain, node.op_type) for node in nodes]


def foldable() -> Callable[[Any], bool | None]:
    """Return the question whether onnxscript may fold a node: not where the constants would take too much memory.

    The question remembers how much was folded.
    """
    folded = 0

    def ask(node: Any) -> bool | None:
        nonlocal folded
        size = 0.0
        for each in node.outputs:
            if each.shape is None or not all(isinstance(extent, int) for extent in each.shape):
                return False
            size += np.prod([int(extent) for extent in each.shape], dtype=float) * 8
        if folded + size > LARGEST_FOLDED:
            return False
        folded += int(size)
        return None

    return ask


def refuse_large(name: str, operator: str, shape: Any, itemsize: int) -> None:
    """Raise UnsupportedError for a constant that would take too much memory."""
    size = np.prod([float(extent) for extent in shape], dtype=float) * itemsize
    if size > LARGEST_FOLDED:
        raise UnsupportedError(
            f"node {shown(name)} ({operator}): a constant of shape {tuple(shape)} takes {size:.3g} bytes, "
            f"{LARGEST_FOLDED} are served"
        )


def _label(node: Any) -> str:
    return f"node {shown(node.name or (node.output[0] if node.output else node.op_type))} ({node.op_type})"
