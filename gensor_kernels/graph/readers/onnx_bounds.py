"""Bounds on the memory that a small file can need: nested functions, texts, and computed constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

#: Nodes of a model once its functions are inlined.
MOST_NODES = 100_000
#: Bytes of all texts in the attributes of one node.
LARGEST_TEXT = 1 << 20
#: Bytes of the constants that a model computes from constants.
LARGEST_FOLDED = 2 << 30
#: Key of a model of onnx-ir for the bytes of constants that its file has.
WEIGHT_BYTES = "weight_bytes"


def check(model: onnx.ModelProto) -> None:
    """Raise UnsupportedError for an onnx.ModelProto whose operators take far more memory than its file."""
    import onnx

    for node in messages(model, onnx.NodeProto):
        size = sum(len(each.s) + sum(map(len, each.strings)) for each in node.attribute)
        if size > LARGEST_TEXT:
            raise UnsupportedError(f"{_label(node)}: texts of {size} bytes are not served, {LARGEST_TEXT} are")
    count = node_count(model)
    if count > MOST_NODES:
        raise UnsupportedError(f"the model has {count} nodes with its functions inlined: {MOST_NODES} are served")


def messages(message: Any, kind: Any) -> Iterator[Any]:
    """Yield the messages of one kind within a message of protobuf, at any depth."""
    waiting = [message]
    while waiting:
        each = waiting.pop()
        if isinstance(each, kind):
            yield each
        for field, value in each.ListFields():
            if field.message_type is not None:
                waiting += [value] if hasattr(value, "ListFields") else value


def node_count(model: onnx.ModelProto) -> int:
    """Return the number of nodes of a model once its functions are inlined.

    Raises UnsupportedError for functions that call themselves.
    """
    functions = {(each.domain, each.name): each for each in model.functions}
    calls = {key: _calls(function) for key, function in functions.items()}
    counts: dict[tuple[str, str], int] = {}
    open_ = [*functions]
    entered: set[tuple[str, str]] = set()
    while open_:  # not by recursion: functions may be nested deeper than Python's stack
        key = open_[-1]
        called = [each for each in calls[key] if each in functions]
        missing = [each for each in called if each not in counts]
        if key in counts or not missing:
            open_.pop()
            counts[key] = sum(counts.get(each, 1) for each in calls[key])
        elif key in entered:
            raise UnsupportedError(f"function {shown(key[1])} calls itself; export the model without it")
        else:
            entered.add(key)
            open_ += missing
    return sum(counts.get(each, 1) for each in _calls(model.graph))


def _calls(graph: onnx.GraphProto | onnx.FunctionProto) -> list[tuple[str, str]]:
    """Return the operators that the nodes of a graph or a function call, including those of graphs within it."""
    import onnx

    return [(node.domain, node.op_type) for node in messages(graph, onnx.NodeProto)]


def weight_bytes(model: Any) -> int:
    """Return the bytes of the constants of a model of onnx-ir: a region of a file counts once."""
    import onnx_ir as ir

    files, total = dict[str, int](), 0
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING:
            continue
        if hasattr(tensor, "path"):
            files[str(tensor.path)] = max(files.get(str(tensor.path), 0), (tensor.offset or 0) + tensor.nbytes)
        else:
            total += tensor.nbytes
    return total + sum(files.values())


def most_folded(weights: int) -> int:
    """Return how many bytes a model may compute from its constants; weights of 4 bits become eight times as many."""
    return LARGEST_FOLDED + 8 * weights


def foldable(model: ir.Model) -> Callable[[ir.Node], bool | None]:
    """Return a function that decides whether onnxscript may fold a node: not if all constants would exceed the bound.

    The function adds up what was folded. The model's `meta` has the bytes of the file's constants as WEIGHT_BYTES.
    """
    weights = model.meta[WEIGHT_BYTES]
    left = most_folded(weights) - max(0, weight_bytes(model) - weights)

    def ask(node: Any) -> bool | None:
        nonlocal left
        size = 0.0
        for each in node.outputs:
            if each.shape is None or not all(isinstance(extent, int) for extent in each.shape):
                return False
            size += np.prod([int(extent) for extent in each.shape], dtype=float) * 8
        if size > left:
            return False
        left -= int(size)
        return None

    return ask


def refuse_large(name: str, operator: str, size: int, total: int, most: int) -> None:
    """Raise UnsupportedError for a constant that exceeds the memory for computed constants."""
    if total > most:
        raise UnsupportedError(
            f"node {shown(name)} ({operator}): a constant of {size:.3g} bytes would be computed, {total:.3g} with "
            f"others: {most:.3g} are served; store it in the file"
        )


def _label(node: onnx.NodeProto) -> str:
    return f"node {shown(node.name or (node.output[0] if node.output else node.op_type))} ({node.op_type})"
