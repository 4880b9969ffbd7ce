"""Operators of a model that are not served: all of them in one sentence, counted, with the nearest remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

#: Domains of the ONNX standard's own operators.
STANDARD = ("", "ai.onnx")
CONTROL = "control flow is served where constants or shapes decide it: export the model without it"
TENSORS = "sequences and optional values are not served: export the model with tensors alone"
CUT = "onnx.utils.extract_model cuts out a part of the model without them"
#: Remedies for operators that are never served, and for those that constants and shapes may take out of a model.
NEVER = {"Loop": CONTROL, "Scan": CONTROL, "Optional": TENSORS}
FOLDED = {"If": CONTROL, "Sequence": TENSORS, "SplitToSequence": TENSORS, "ConcatFromSequence": TENSORS}
MANY = ("Sequence", "Optional")
#: Remedies by domain.
DOMAINS = {
    "com.microsoft": "save the model before onnxruntime optimises it",
    "ai.onnx.ml": "trees and other classical models run in onnxruntime",
}
#: Remedy by words that names of quantised operators have.
QUANTISED = ("Quantize", "QLinear", "ConvInteger")
FLOAT = 'load the float model with weights="int8" in place of the quantised one'
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
        is_own = (node.domain, node.op_type) in own
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
    """Yield the nodes of a graph, and those of branches that values of inputs decide."""
    for node in graph:
        if node.op_type == "If" and node.domain in STANDARD:
            if sizes_are_open and not _reads_inputs(node.inputs[0]):
                continue
            for each in node.attributes.values():
                yield from _nodes(each.as_graph(), sizes_are_open)
        if node.op_type != "Constant":
            yield node


def outer_values(node: ir.Node) -> list[ir.Value]:
    """Return the values of outer graphs that the branches of a node read."""
    branches = [each.as_graph() for each in node.attributes.values() if each.type.name == "GRAPH"]
    inner = [each for branch in branches for each in branch]
    own = {value for each in inner for value in each.outputs}
    own.update(value for branch in branches for value in (*branch.inputs, *branch.initializers.values()))
    read = [value for each in inner for value in (*each.inputs, *outer_values(each))]
    read += [value for branch in branches for value in branch.outputs]
    return [each for each in dict.fromkeys(read) if each is not None and each not in own]


def _reads_inputs(value: ir.Value | None) -> bool:
    """Return whether a value follows from elements of inputs, not from their shapes alone."""
    seen, open_ = set["ir.Value"](), [value]
    while open_:
        each = open_.pop()
        if each is None or each in seen or each.const_value is not None:
            continue
        seen.add(each)
        node = each.producer()
        if node is None:
            return True
        if node.op_type not in ("Shape", "Size"):
            open_ += node.inputs
    return False


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
    return _remedy(NEVER | FOLDED, operator) or (FLOAT if any(word in operator for word in QUANTISED) else "")


def _remedy(table: Mapping[str, str], operator: str) -> str:
    """Return the entry of an operator in a table; many operators begin with Sequence and with Optional."""
    found = (table[word] for word in table if operator == word or (operator.startswith(word) and word in MANY))
    return next(found, "")
