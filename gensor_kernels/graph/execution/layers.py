"""What serves each node of a model, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.observe.explanation import Explanation
from gensor_kernels.shown import shown

from .memory import memory_of

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node, Spec

    from .plan import Plan


@dataclass(frozen=True)
class Layer:
    """A node of a model, and what served it.

    Attributes
    ----------
    name : str
        Name in the model.
    operators : str
        Operators that its kernel computes, joined by " + ".
    result : Spec or None
        Dtype and shape of the result.
    served : tuple of Explanation
        What served each call of our functions; empty where the array library computes.
    """

    name: str
    operators: str
    result: Spec | None
    served: tuple[Explanation, ...]

    @property
    def predicted_us(self) -> float | None:
        """Predicted or measured time of its kernels, in microseconds."""
        times = [each.measured_us or each.predicted_us for each in self.served]
        known = [each for each in times if each is not None]
        return sum(known) if known else None

    @property
    def by(self) -> str:
        """What serves it, in a word."""
        families = {each.family or "CuPy" for each in self.served}
        return ", ".join(sorted(families)) or "array library"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.operators} -> {self.result or 'unknown'}, served by {self.by}"]
        return "\n\n".join([*lines, *map(str, self.served)])


class Layers(tuple[Layer, ...]):
    """The layers of one run, in order; `print` shows them as a table.

    Attributes
    ----------
    runs : str
        How calls with such inputs run: as one CUDA graph, launch by launch, or node by node.
    """

    runs: str = ""

    def named(self, name: str) -> Layer:
        """Return the layer of a name; `print` tells what serves each of its calls, and why.

        Parameters
        ----------
        name : str
            Name of a node, as the table has it.

        Returns
        -------
        Layer
            The first layer of that name.

        Raises
        ------
        KeyError
            If no layer has the name.
        """
        for each in self:
            if each.name == name:
                return each
        raise KeyError(f"no layer is named {shown(name)}; nodes that were joined have the name of the first")

    def __str__(self) -> str:
        total = sum(each.predicted_us or 0.0 for each in self)
        rows = [("layer", "operators", "result", "served by", "µs", "share")]
        for each in self:
            time = each.predicted_us
            cells = ("", "") if time is None else (f"{time:.1f}", f"{time / total:.1%}" if total else "")
            rows.append((each.name, each.operators, str(each.result or ""), each.by, *cells))
        runs = f"; calls run {self.runs}" if self.runs else ""
        return "\n".join(_table(rows)) + f"\n{len(self)} layers, {total:.1f} µs in kernels (predicted){runs}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [min(max(len(row[place]) for row in rows), 48) for place in range(len(rows[0]))]
    for row in rows:
        pairs = list(zip(row, widths, strict=True))
        cells = (cell if len(cell) <= width else cell[: width - 1] + "…" for cell, width in pairs)
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def outline(graph: Graph) -> str:
    """Return the nodes of a graph as a table."""
    rows = [("layer", "operators", "result")]
    rows += [(node.name, str(node), str(graph.spec(node.outputs[0]) or "")) for node in graph.nodes]
    return "\n".join(_table(rows))


def explained(plan: Plan, inputs: Mapping[str, Any], stream: int) -> Layers:
    """Run a plan and explain every call of its nodes."""
    found: list[Layer] = []

    def watch(node: Node, served: tuple[Explanation, ...]) -> None:
        found.append(Layer(node.name, str(node), plan.graph.spec(node.outputs[0]), served))

    plan.run(inputs, watch)
    layers = Layers(found)
    layers.runs = memory_of(plan, stream).runs
    return layers
