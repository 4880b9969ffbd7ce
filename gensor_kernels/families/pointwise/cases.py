"""The problems of pointwise Programs: several blocks, the last one partial, along every axis of the class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators import operator

from .shape import view

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

LATE, EARLY = "late", "early"


def pointwise_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return a case with partial blocks, one whose rows are longer than a block's part of them, and the least one."""
    block, rank = program["threads"] * program["items"], view(workload).rank
    lines = {1: 1, 2: 5, 3: 5 * 3, 4: 5 * 3 * 2}[rank]

    def case(name: str, i: int, j: int, k: int, vectors: int, *schedule: tuple[str, str | int]) -> Case:
        wanted = {"n": i, "batch": j, "m": k, "k": vectors * program["vector"]}
        return Case(name, operator(workload.operator).resize(workload, wanted), schedule)

    most = 2 * block + block * 5 // 8 + 1
    return [
        case("partial block", 2, 3, 5, -(-most // lines) | 1, (LATE, "forward")),
        case("short rows", 3, 2, max(1, most // 18), 3, (EARLY, 3)),
        case("corner", 1, 1, 1, 1, (LATE, "reverse"), (EARLY, 1)),
    ]


def pointwise_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Coverage names that the cases must count."""
    return frozenset({"vectors", "past_end"})
