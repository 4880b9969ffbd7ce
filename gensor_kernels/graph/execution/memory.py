"""The memory of a model for inputs of one signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    layout, bound = plan.layout, plan.bound.get(stream)
    weights = sum(each.nbytes for each in plan.graph.constants.values())
    if bound is not None:
        runs = "as one CUDA graph" if bound.captured else f"launch by launch: {bound.reason}"
    else:
        runs = f"node by node{f': {plan.eager}' if plan.eager else ', to be bound once nothing is raced'}"
    if layout is None:
        return Memory(0, 0, 0, weights, runs)
    return Memory(layout.nbytes, layout.live, layout.requested, weights, runs)
