"""What serves each node of a model, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.observe.explanation import Explanation

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node, Spec
    from gensor_kernels.graph.layouts.laid_out import Layouts

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
    remarks : str
        Layout of images, and type of quantised weights.
    """

    name: str
    operators: str
    result: Spec | None
    served: tuple[Explanation, ...]
    remarks: str = ""

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


class Layers(tuple[Layer, ...]):
    """The layers of one run, in order; `print` shows them as a table.

    Attributes
    ----------
    layouts : Layouts or None
        Layouts that were chosen, and the predicted times with and without them; None for a model without images.
    """

    layouts: Layouts | None = None

    def __str__(self) -> str:
        total = sum(each.predicted_us or 0.0 for each in self)
        rows = [("layer", "operators", "result", "served by", "µs", "share")]
        for each in self:
            time = each.predicted_us
            cells = ("", "") if time is None else (f"{time:.1f}", f"{time / total:.1%}" if total else "")
            rows.append((each.name, each.operators, _result(each.result, each.remarks), each.by, *cells))
        lines = [*_table(rows), f"{len(self)} layers, {total:.1f} µs in kernels (predicted)"]
        return "\n".join(lines if self.layouts is None else [*lines, str(self.layouts)])


def _result(spec: Spec | None, remarks: str) -> str:
    return ", ".join(each for each in (str(spec or ""), remarks) if each)


def _remarks(node: Node) -> str:
    weights = node.attributes.get("weights") if node.op == "QuantisedLinear" else None
    found = ("channels last" if node.layout == "last" else "", f"{weights} weights" if weights else "")
    return ", ".join(each for each in found if each)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [min(max(len(row[place]) for row in rows), 48) for place in range(len(rows[0]))]
    for row in rows:
        pairs = list(zip(row, widths, strict=True))
        cells = (cell if len(cell) <= width else cell[: width - 1] + "…" for cell, width in pairs)
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def outline(plan: Plan) -> str:
    """Return the nodes of a plan as a table."""
    graph, rows = plan.graph, [("layer", "operators", "result")]
    rows += [(node.name, str(node), _result(graph.spec(node.outputs[0]), _remarks(node))) for node in graph.nodes]
    lines = list(_table(rows))
    return "\n".join(lines if plan.layouts is None else [*lines, str(plan.layouts)])


def explained(plan: Plan, inputs: Mapping[str, Any]) -> Layers:
    """Run a plan and explain every call of its nodes."""
    found: list[Layer] = []

    def watch(node: Node, served: tuple[Explanation, ...]) -> None:
        found.append(Layer(node.name, str(node), plan.graph.spec(node.outputs[0]), served, _remarks(node)))

    plan.run(inputs, watch)
    layers = Layers(found)
    layers.layouts = plan.layouts
    return layers
