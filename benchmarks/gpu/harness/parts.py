"""A whole run as a few commands of at most ten minutes each, for machines that are lent for so long.

Every part continues where it stopped, and any of them may run again; together they are all steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gensor_tuner.output import plural

from .journal import Journal
from .supervise import Step


class Part(NamedTuple):
    """Steps that share one command, and their content."""

    steps: tuple[str, ...]
    what: str


PARTS = (
    Part(("facts", "claims"), "the machine; workloads that machine code cannot settle, next to the vendors' best"),
    Part(("families", "public", "fault_injection"), "every family, type and launch form; the public functions"),
    Part(("shipped",), "every stored kernel at the sizes of its records"),
    Part(("timing",), "every stored kernel next to the vendors' calls"),
    Part(
        ("graphs", "compiled", "suite", "sanitizer"),
        "whole models captured, torch.compile, CuPy's tests, the sanitizer",
    ),
)


def plan(steps: Sequence[Step], journal: Journal, inputs: str, budget: float, command: str) -> list[str]:
    """Return the plan: the seconds and the state of every step of each part, and the parts' commands.

    Parameters
    ----------
    steps : sequence of Step
        All steps with their shares.
    journal : Journal
        What was done so far.
    inputs : str
        Digest of what results depend on.
    budget : float
        Seconds of one part.
    command : str
        The command line of a part, without its number.
    """
    ended = Counter(step for step, _ in journal.results())
    lines = []
    for number, part in enumerate(PARTS, start=1):
        lines.append(f"part {number}, {budget:.0f} s: {part.what}")
        own = [step for step in steps if step.name in part.steps]
        for step in own:
            seconds = budget * step.share / sum(each.share for each in own)
            count = ended[step.name]
            done = f"{count} {plural('item', count)} done" if count else "not begun"
            state = "complete" if journal.is_complete(step.name, inputs) else done
            lines.append(f"  {step.name:<15} {seconds:>4.0f} s  {state}")
    lines.append("one command each, in this order; the same command again continues where it stopped:")
    return lines + [f"  {command} --part {number}" for number in range(1, len(PARTS) + 1)]
