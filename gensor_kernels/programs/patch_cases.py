"""The problems on which Programs of contraction_patch are verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..operators.dtypes import facts
from .cases import Case
from .packed_cases import SMALL, thin
from .patch_shape import PLANE, call_of

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: Partial sums that are stored together.
PARTIALS = 4


def patch_cases(cases: Sequence[Case], workload: Workload, block_n: int, pieces: int, *, split: bool) -> list[Case]:
    """The cases of a product as those of tiles: rows of the output longer than a tile, and patches of more pieces than
    the ``pieces`` that are on their way during the math. With a ``split``, partial sums are stored by fours, so that
    rows are whole fours."""
    made = [replace(case, workload=_widened(case.workload, PARTIALS)) for case in cases] if split else list(cases)
    small = next(case for case in made if case.name == SMALL)
    vector = workload.align["y"] // facts(workload.dtype["y"]).itemsize
    out = call_of(small.workload).out[1]
    wide = _widened(small.workload, block_n + max(vector, PARTIALS), at_least=block_n)
    return [
        *made,
        replace(small, name="runs", workload=wide),
        replace(small, name="pieces", workload=_strided(small.workload, out, pieces)),
        *(replace(small, name=f"one tap along {axes}", workload=thin(small.workload, axes)) for axes in ("h", "hw")),
    ]


def _widened(workload: Workload, multiple: int, at_least: int = 0) -> Workload:
    """The same with rows of the output that are a multiple; the window moves by single columns."""
    out = call_of(workload).out[1]
    return workload.with_sizes(w=workload.size["w"] + (-out % multiple if out >= at_least else multiple - out))


def _strided(workload: Workload, out: int, pieces: int) -> Workload:
    """One row of outputs so far apart that their patch, of three rows, has more pieces."""
    call = call_of(workload)
    planes = max(1, call.channels * call.size // PLANE)
    step = -(-(pieces // (3 * planes) + 1) // (out - 1))
    # Three taps of every other column, and three columns of padding.
    return workload.with_sizes(h=1, w=(out - 1) * step + 2, stride_w=step)
