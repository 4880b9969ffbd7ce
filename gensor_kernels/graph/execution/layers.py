"""Layers of a model, as a table and node by node: what serves each, the rules that made it, and a model's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gensor_database.text import duration, span
from gensor_kernels.dispatch.observe.explanation import Explanation
from gensor_kernels.machine.expected import MEASURED_PART
from gensor_kernels.shown import shown
from gensor_kernels.tables import MARK, TIMES, Column, Layout, time_cells, wrapped

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.graph.ir.graph import Decision, Graph, Node, Spec
    from gensor_kernels.graph.layouts.laid_out import Layouts

    from .plan import Plan


@dataclass(frozen=True)
class Memory:
    """Bytes that a model needs for inputs of one signature, and how its calls run.

    Attributes
    ----------
    arena : int
        Size of the arena: inputs, activations, results, and temporary memory of nodes.
    live : int
        Bytes of the largest set of these in use at a time: no arena is smaller.
    separate : int
        Bytes that all of these would take without sharing.
    weights : int
        Bytes of constants; plans of other signatures share equal ones.
    runs : str
        How calls run now, in words.
    """

    arena: int
    live: int
    separate: int
    weights: int
    runs: str

    def __str__(self) -> str:
        shares = f" ({self.arena / self.live:.3f} of the largest live set, {_bytes(self.live)})" if self.live else ""
        lines = [
            f"arena    {_bytes(self.arena)}{shares}",
            f"separate {_bytes(self.separate)}: activations without sharing",
            f"weights  {_bytes(self.weights)}",
            f"runs     {self.runs}",
        ]
        return "\n".join(lines)


def _bytes(count: int) -> str:
    return f"{count / 1e6:.3f} MB" if count >= 1e4 else f"{count} bytes"


def memory_of(plan: Plan, stream: int) -> Memory:
    """Return the memory of a plan after its first run, and how its calls on a stream run."""
    if plan.parts is not None:
        head = memory_of(plan.parts[0], stream)
        return replace(head, runs=f"{head.runs}, until {plan.eager}; from then on node by node")
    layout, bound = plan.layout, plan.bound.get(stream)
    weights = sum(each.nbytes for each in plan.graph.constants.values())
    if bound is not None:
        runs = "as one CUDA graph" if bound.captured else f"launch by launch: {bound.reason}"
    else:
        runs = f"node by node{f': {plan.eager}' if plan.eager else ', to be bound once nothing is raced'}"
    if layout is None:
        return Memory(0, 0, 0, weights, runs)
    return Memory(layout.nbytes, layout.live, layout.requested, weights, runs)


@dataclass(frozen=True)
class Reasons:
    """A node of a model, and the rules that made it; `print` shows both.

    Attributes
    ----------
    name : str
        Name in the model; nodes that were joined have the name of the first.
    operators : str
        Operators that its kernel computes, joined by " + "; "" where the node was removed.
    result : Spec or None
        Dtype and shape of the result.
    remarks : str
        Layout of images, and type of quantised weights.
    decisions : tuple of Decision
        Rules that were applied to it, in order, and alternatives that were not taken, with
        the predicted times that decided.
    """

    name: str
    operators: str
    result: Spec | None
    remarks: str
    decisions: tuple[Decision, ...]

    @property
    def why(self) -> str:
        """The decisions in words, one line each."""
        return "\n".join(f"  {each}" for each in dict.fromkeys(map(str, self.decisions))) or "  no rule has changed it"

    def __str__(self) -> str:
        result = f"{self.operators} -> {_result(self.result, self.remarks) or 'unknown'}"
        return f"{self.name}: {result if self.operators else 'removed'}\n{self.why}"


@dataclass(frozen=True)
class Layer(Reasons):
    """A node of a model, the rules that made it, and what served it.

    Attributes
    ----------
    served : tuple of Explanation
        What served each call of our functions; empty where the array library computes.
    measured_us : float or None
        Time of the whole layer on the GPU in microseconds, or None if it was not timed.
    """

    served: tuple[Explanation, ...] = ()
    measured_us: float | None = None

    @property
    def predicted_us(self) -> float | None:
        """Predicted or measured time of its kernels, in microseconds."""
        return _sum(each.measured_us or each.predicted_us for each in self.served)

    @property
    def expected_us(self) -> tuple[float, float] | None:
        """The band of times in which its kernels are expected, unless all were measured, or it was timed."""
        if self.measured_us is not None or not any(each.expected_us for each in self.served):
            return None
        known = [each.expected_us or ((us, us) if (us := each.measured_us) else (0.0, 0.0)) for each in self.served]
        return sum(low for low, _ in known), sum(high for _, high in known)

    @property
    def us(self) -> float | None:
        """Time in microseconds: of the layer where it was timed, else predicted."""
        return self.predicted_us if self.measured_us is None else self.measured_us

    @property
    def bound_us(self) -> float | None:
        """Least time that the part's arithmetic, memory and launches allow its kernels, in microseconds."""
        return _sum(each.bound_us for each in self.served)

    @property
    def library_us(self) -> float | None:
        """Time of CuPy's calls in place of its kernels, in microseconds, or None if one is unknown."""
        times = [each.vendor_us or each.library_us for each in self.served]
        return None if None in times else _sum(times)

    @property
    def by(self) -> str:
        """Families of its kernels, or "array library"."""
        families = {each.family or "CuPy" for each in self.served}
        return ", ".join(sorted(families)) or "array library"

    def __str__(self) -> str:
        result = _result(self.result, self.remarks) or "unknown"
        head = f"{self.name}: {self.operators} -> {result}, served by {self.by}\n{self.why}"
        return "\n\n".join([head, *map(str, self.served)])


class Layers(tuple[Layer, ...]):
    """The layers of one run, in order; `print` shows them as a table.

    Attributes
    ----------
    runs : str
        How calls with such inputs run: as one CUDA graph, launch by launch, or node by node.
    layouts : Layouts or None
        Chosen layouts with predicted times, or None for a model without images.
    """

    runs: str = ""
    layouts: Layouts | None = None

    def named(self, name: str) -> Layer:
        """Return the first layer of a name; `print` shows what serves each of its calls, and why.

        KeyError if no layer has the name.
        """
        for each in self:
            if each.name == name:
                return each
        raise KeyError(f"no layer is named {shown(name)}; nodes that were joined have the name of the first")

    @property
    def timed(self) -> bool:
        """Whether the layers were timed on a GPU."""
        return any(each.measured_us is not None for each in self)

    @property
    def us(self) -> float:
        """Time of all layers, in microseconds: measured, or predicted for the kernels alone."""
        return sum(each.us or 0.0 for each in self)

    @property
    def bound_us(self) -> float:
        """Sum of the bounds of all kernels, in microseconds."""
        return sum(each.bound_us or 0.0 for each in self)

    @property
    def expected_us(self) -> tuple[float, float] | None:
        """The band of times in which all kernels are expected together, if one has a predicted time."""
        if not any(each.expected_us for each in self):
            return None
        known = [each.expected_us or (each.us or 0.0,) * 2 for each in self]
        return sum(low for low, _ in known), sum(high for _, high in known)

    def _gain(self) -> str:
        """Return a clause about CuPy's calls in place of the kernels, where their times are known."""
        known = [(each.predicted_us, each.library_us) for each in self if each.predicted_us and each.library_us]
        if not known:
            return ""
        ours, theirs = (sum(each[place] or 0.0 for each in known) for place in (0, 1))
        some = f" of {len(known)} of them" if len(known) < len(self) else ""
        return f"; CuPy's calls{some} {duration(theirs)} (predicted), {theirs / ours:.3g} times the kernels"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yield the lines of the table, which fit a terminal of `width` columns, and sentences about all layers."""
        total, rows = self.us, []
        for each in self:
            share = "" if each.us is None or not total else f"{each.us / total:.1%}"
            texts = (each.name, each.operators, _result(each.result, each.remarks), each.by)
            predicted = each.measured_us is None, not all(call.vendor_us for call in each.served)
            marks = MARK * predicted[0], MARK * predicted[1]
            times = time_cells(each.us, each.library_us, each.bound_us, each.expected_us, marks)
            rows.append({**dict(zip(TITLES, texts, strict=True)), **times, "share": share})
        yield from _table(rows, (*TIMES, Column("share", 6, right=True, rank=4)), width)
        band = f"; {span(*self.expected_us)} expected by times on {MEASURED_PART}" if self.expected_us else ""
        how = "measured" if self.timed else f"in kernels (predicted{band})"
        runs = f"; calls run {self.runs}" if self.runs else ""
        last = (
            f"{len(self)} layers, {duration(total)} {how}, the bound is {duration(self.bound_us)}{self._gain()}{runs}"
        )
        yield from wrapped(last if self.layouts is None else f"{last}\n{self.layouts}", width)


def _sum(times: Iterable[float | None]) -> float | None:
    known = [each for each in times if each is not None]
    return sum(known) if known else None


def _result(spec: Spec | None, remarks: str) -> str:
    return ", ".join(each for each in (str(spec or ""), remarks) if each)


def _remarks(node: Node) -> str:
    weights = node.attribute("weights") if node.op == "QuantisedLinear" else None
    found = ("channels last" if node.layout == "last" else "", f"{weights} weights" if weights else "")
    return ", ".join(each for each in found if each)


#: Columns of texts, of which a terminal may lack those that have a rank.
TITLES = {"layer": 0, "operators": 2, "result": 1, "served by": 0}
#: The most characters to which they are aligned.
WIDEST = 48


def _table(rows: Sequence[Mapping[str, str]], more: Sequence[Column] = (), width: int | None = None) -> Iterator[str]:
    titles = [title for title in TITLES if any(title in row for row in rows)]
    widths = {title: min(max(len(title), *(len(row[title]) for row in rows)), WIDEST) for title in titles}
    columns = [Column(title, widths[title], rank=TITLES[title], shrinks=True) for title in titles]
    layout = Layout([*columns, *more], width)
    yield layout.header()
    yield from map(layout.line, rows)


def outline(plan: Plan) -> str:
    """Return the nodes of a rewritten graph as a table."""
    graph = plan.graph
    texts = [(node.name, str(node), _result(graph.spec(node.outputs[0]), _remarks(node))) for node in graph.nodes]
    lines = list(_table([dict(zip(TITLES, each, strict=False)) for each in texts]))
    return "\n".join(lines if plan.layouts is None else [*lines, str(plan.layouts)])


def _describe(graph: Graph, node: Node) -> tuple[str, str, Spec | None, str, tuple[Decision, ...]]:
    decisions = tuple(graph.reasons(node.name))
    return node.name, str(node), graph.spec(node.outputs[0]), _remarks(node), decisions


def reasons(graph: Graph, name: str) -> Reasons:
    """Return the rules that made a node, by its name in the graph or in the file; KeyError for an unknown name.

    For a node that was joined to another, return those of the other.
    """
    nodes = {node.name: node for node in reversed(graph.nodes)}
    decisions = graph.reasons(name)
    if name not in nodes and not decisions:
        raise KeyError(f"no node is named {shown(name)}; print the model for the names of its nodes")
    waiting, seen = [name], {""}
    while waiting:
        each = waiting.pop()
        if each in nodes:
            return Reasons(*_describe(graph, nodes[each]))
        seen.add(each)
        after = [found for decision in graph.decisions if each in decision.before for found in decision.after]
        waiting += [found for found in dict.fromkeys(after) if found not in seen]
    return Reasons(name, "", None, "", tuple(decisions))


def explain_plan(plan: Plan, inputs: Mapping[str, Any], stream: int, timed: bool = False) -> Layers:
    """Run a plan and explain every call of its nodes; `timed`: time each node by itself on the GPU."""
    found: list[Layer] = []

    def watch(node: Node, served: tuple[Explanation, ...], again: Callable[[], Any], device: Device) -> None:
        us = device.sampler([again]).first()[0].device_us if timed and not device.emulated else None
        found.append(Layer(*_describe(plan.graph, node), served, us))

    plan.run(inputs, watch)
    layers = Layers(found)
    layers.runs = memory_of(plan, stream).runs
    layers.layouts = plan.layouts
    return layers
