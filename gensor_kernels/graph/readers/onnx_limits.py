"""Limits of models: operators that are not served, with remedies, and the memory that a small file can need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import memory_of
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.shown import shown

from .onnx_control import MOST_ITERATIONS, is_open, reads_inputs
from .onnx_lifting import FOREIGN
from .onnx_nodes import STANDARD

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

CONTROL = (
    f"branches and loops of at most {MOST_ITERATIONS:,} iterations are served where constants or shapes decide them: "
    "give inputs that never change to load(path, inputs={...}), or export the model without control flow"
)
TENSORS = "sequences and optional values are not served: export the model with tensors alone"
CUT = "onnx.utils.extract_model cuts out a part of the model without them"
#: Remedies for operators that are never served, and for those that constants and shapes may take out of a model.
NEVER = {"Optional": TENSORS}
FOLDED = dict.fromkeys(("If", "Loop", "Scan"), CONTROL) | dict.fromkeys(
    ("Sequence", "SplitToSequence", "ConcatFromSequence"), TENSORS
)
MANY = ("Sequence", "Optional")
#: Remedies by domain.
DOMAINS = {
    "com.microsoft": "save the model before onnxruntime optimises it",
    "ai.onnx.ml": "trees and other classical models run in onnxruntime",
}
#: Operators that one sentence names.
MOST = 12


def refuse_early(model: onnx.ModelProto) -> None:
    """Raise UnsupportedError for an onnx.ModelProto with an operator that is never served, without reading attributes.

    Nodes of its functions are checked after inlining.
    """
    own = {(each.domain, each.name) for each in model.functions}
    constants = {"", *(each.name for each in model.graph.initializer)}
    found, refused = [], False
    for node in model.graph.node:
        is_own = (node.domain, node.op_type) in own or (node.domain, node.op_type) in FOREIGN
        if node.domain in STANDARD and not is_own and constants.issuperset(node.input):
            constants.update(node.output)
        elif not is_own and (node.domain not in STANDARD or not _remedy(FOLDED, node.op_type)):
            refused |= node.domain not in STANDARD or bool(_remedy(NEVER, node.op_type))
            found.append(node)
    if refused:
        _refuse(found)


def refuse(graph: ir.Graph, sizes_are_open: bool, remedy: str = CUT) -> None:
    """Raise UnsupportedError for the onnx_ir.Graph of a simplified model with operators that are not served.

    With open sizes, shapes of a call may still decide the conditions of branches. `remedy` is the default advice.
    """
    _refuse(_nodes(graph, sizes_are_open), remedy)


def _nodes(graph: ir.Graph, sizes_are_open: bool) -> Iterator[ir.Node]:
    """Yield the nodes of a graph, and those of graphs within it, of branches only where elements of inputs decide."""
    for node in graph:
        inner = [each.as_graph() for each in node.attributes.values() if each.type.name == "GRAPH"]
        waits = bool(inner) and sizes_are_open and node.domain in STANDARD and is_open(node)
        may_vanish = waits and node.op_type == "If" and not reads_inputs(node.inputs[0])
        for each in () if may_vanish else inner:
            yield from _nodes(each, sizes_are_open)
        if node.op_type != "Constant" and not waits:
            yield node


def _refuse(nodes: Iterable[Any], remedy: str = CUT) -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        domain = "" if node.domain in STANDARD else node.domain
        if domain or node.op_type not in LOWERINGS:
            outputs = [getattr(each, "name", each) for each in getattr(node, "output", None) or node.outputs]
            found.setdefault((domain, node.op_type), []).append(node.name or next(iter(outputs), ""))
    if found:
        listed = [_describe(*key, names) for key, names in found.items()]
        more = f" and {len(listed) - MOST} more" if len(listed) > MOST else ""
        remedies = dict.fromkeys(_remedy_of(*key) or remedy for key in found)
        noun, verb = ("operators", "are") if len(listed) > 1 else ("operator", "is")
        raise UnsupportedError(f"{noun} {', '.join(listed[:MOST])}{more} {verb} not served; {'; '.join(remedies)}")


def _describe(domain: str, operator: str, names: list[str]) -> str:
    label = f"{operator} of domain {shown(domain)}" if domain else operator
    count = f"{len(names)} nodes, the first is " if len(names) > 1 else "node "
    return f"{label} ({count}{shown(names[0])})"


def _remedy_of(domain: str, operator: str) -> str:
    if domain:
        return DOMAINS.get(domain, "")
    return _remedy(NEVER | FOLDED, operator)


def _remedy(table: Mapping[str, str], operator: str) -> str:
    """Return the entry of an operator in a table; many operators begin with Sequence and with Optional."""
    found = (table[word] for word in table if operator == word or (operator.startswith(word) and word in MANY))
    return next(found, "")


#: Nodes of a model once its functions are inlined.
MOST_NODES = 100_000
#: Bytes of all texts in the attributes of one node.
LARGEST_TEXT = 1 << 20
#: Bytes of the constants that a model computes from constants.
LARGEST_FOLDED = 2 << 30
#: Bytes of a ConstantOfShape that is folded when the model is read; larger ones become constants of each plan.
SMALLEST = 8 << 10
#: Key of a model of onnx-ir for the bytes of constants that its file has.
WEIGHT_BYTES = "weight_bytes"


def check(model: onnx.ModelProto) -> None:
    """Raise UnsupportedError for an onnx.ModelProto whose operators take far more memory than its file."""
    import onnx

    seen = 0
    for node in messages(model, onnx.NodeProto):
        seen += 1
        size = sum(len(each.s) + sum(map(len, each.strings)) for each in node.attribute)
        if size > LARGEST_TEXT:
            raise UnsupportedError(f"{_label(node)}: texts of {size} bytes are not served, {LARGEST_TEXT} are")
    count = node_count(model) if model.functions else seen
    if count > MOST_NODES:
        raise UnsupportedError(f"the model has {count} nodes with its functions inlined: {MOST_NODES} are served")


def messages(message: Any, kind: Any) -> Iterator[Any]:
    """Yield the messages of one kind within a message of protobuf, at any depth; none within tensors and types."""
    import onnx

    waiting = [message]
    while waiting:
        each = waiting.pop()
        if isinstance(each, kind):
            yield each
        if isinstance(each, (onnx.TensorProto, onnx.ValueInfoProto)):  # a list of a tensor's fields copies its data
            continue
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


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes of the constants of a model of onnx-ir; arrays of PyTorch are not read."""
    import onnx_ir as ir

    tensors = [each.const_value for each in model.graph.initializers.values() if each.const_value is not None]
    arrays = [each.raw for each in tensors if isinstance(each, ir.Tensor) and isinstance(each.raw, np.ndarray)]
    others = (each for each in tensors if not (isinstance(each, ir.Tensor) and isinstance(each.raw, np.ndarray)))
    return memory_of(arrays) + sum(each.nbytes for each in others if each.dtype != ir.DataType.STRING)


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
        # onnxscript keeps such constants by default, and knows no shape that follows from them (F.pad of PyTorch).
        return True if node.op_type == "ConstantOfShape" and size <= SMALLEST else None

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
