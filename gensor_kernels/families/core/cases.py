"""Case: one problem that a Program is verified on.

A verification case must exercise every branch a Program has (docs/verification.md); each family has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

#: (copies, warp order) of the runs of a case, where it names no others.
USUAL = (("late", "reverse"), ("early", "forward"))
Schedule = tuple[tuple[str, str | int], ...]


@dataclass(frozen=True)
class Case:
    """One problem: its purpose, the Workload with its sizes and epilogue, and how its runs are scheduled.

    ``schedule`` has one run per entry: whether asynchronous copies arrive late or early, and the order of warps
    (forward, reverse, or the seed of a random one).  Random inputs are drawn times two to the ``magnitude``, and each
    element times a separate power of two up to ``spread``, or its inverse.  With ``dense`` the first input is
    without gaps, at an address of exactly this alignment in bytes, with ``dense_output`` the output too.  ``needless``
    are branches that these inputs give no cause for: a slow way to the same result would hide faults of the fast way.
    """

    name: str
    workload: Workload
    schedule: Schedule = USUAL
    magnitude: int = 0
    spread: int = 0
    dense: int = 0
    dense_output: bool = False
    needless: frozenset[str] = frozenset()


def generic_epilogue(workload: Workload) -> tuple[str, ...]:
    """Return the epilogue that verifies a run-time epilogue: operands of every broadcast, and an activation."""
    if workload.accumulator == "int32":
        return ("bias", "relu", "scale", "add")
    if facts(workload.accumulator).is_complex:
        return ("scale", "bias", "mul", "add")
    return ("scale", "bias", "add", "silu")
