"""The problems on which Programs of contraction_patch are verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.programs.contraction.thin_filters import SMALL, thin
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.program import Program

from .shape import PLANE, call_of, verified_window

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Partial sums that are stored together.
PARTIALS = 4


def on_their_way(program: Program, size: int) -> int:
    """Pixels of a patch, at most, that are on their way while a step is computed; elements have ``size`` bytes."""
    warps = (program["block_m"] // program["warp_m"]) * (program["block_n"] // program["warp_n"])
    return program["copies"] * 32 * warps // (program["block_k"] * size // PLANE)


def patch_branches(program: Program, size: int) -> frozenset[str]:
    """Return the coverage names that runs at verification sizes must count."""
    names = {"edge_m", "edge_k", "steady", "drain", "bands", "runs", "cut"}
    # Under one tap a patch has the pixels that outputs read, and no others.
    if program["taps"] != 1 or on_their_way(program, size) < program["block_n"]:
        names.add("more_pieces")
    names |= {"split_reduce"} if program["split_k"] > 1 else set()
    return frozenset(names | ({"raster_tail"} if program["raster"] > 1 else set()))


def patch_cases(cases: Sequence[Case], workload: Workload, program: Program) -> list[Case]:
    """Return the cases of a product as convolutions of tiles, under as many taps as are compiled in: rows of the output
    longer than a tile, and patches of more pixels than are on their way during the math. With a split, partial sums are
    stored by fours, so that rows are whole fours, but for the row of a single tile."""
    block_n, taps, pixels = program["block_n"], program["taps"], on_their_way(program, call_of(workload).size)
    made = [replace(case, workload=_under(case.workload, verified_window(taps))) for case in cases]
    if program["split_k"] > 1:
        single = next(replace(case, name="one row") for case in made if case.name == SMALL)
        made = [replace(case, workload=_widened(case.workload, PARTIALS)) for case in made]
        made.append(replace(single, workload=_in_one_row(single.workload)))
    small = next(case for case in made if case.name == SMALL)
    vector = workload.align["y"] // facts(workload.dtype["y"]).itemsize
    out = call_of(small.workload).out[1]
    wide = _widened(small.workload, block_n + max(vector, PARTIALS), at_least=block_n)
    more = _strided(small.workload, out, pixels, program["block_k"])
    made += [replace(small, name="runs", workload=wide), replace(small, name="pieces", workload=more)]
    if not taps:
        thinner = ((f"one tap along {axes}", thin(small.workload, axes)) for axes in ("h", "hw"))
        made += [replace(small, name=name, workload=each) for name, each in thinner]
    return made


def _under(workload: Workload, window: tuple[int, int]) -> Workload:
    """Return a Workload of the same outputs under other taps than 3 x 3."""
    z, (rows, columns) = workload.size, window
    h, w = (z[side] + (taps - 3) * z[f"dilation_{side}"] for side, taps in (("h", rows), ("w", columns)))
    return workload.with_sizes(r=rows, s=columns, h=max(h, 1), w=max(w, 1))


def _widened(workload: Workload, multiple: int, at_least: int = 0) -> Workload:
    """Return the Workload with output rows of a multiple of columns; the window moves by single columns."""
    out = call_of(workload).out[1]
    return workload.with_sizes(w=workload.size["w"] + (-out % multiple if out >= at_least else multiple - out))


def _strided(workload: Workload, out: int, pixels: int, channels: int) -> Workload:
    """One row of outputs so far apart that their patch has more pixels; a step's channels at most, since a second one
    would take as much memory again."""
    call, z = call_of(workload), workload.size
    rows, columns = call.window
    step = -(-(pixels // rows + 1) // (out - 1))
    padded = (columns - 1) * call.dilation[1] + 1 - z["pad_left"] - z["pad_right"]
    most = min(z["c"], channels * z["groups"])
    return _in_one_row(workload).with_sizes(c=most, w=(out - 1) * step + padded, stride_w=step)


def _in_one_row(workload: Workload) -> Workload:
    """Return the Workload with one row of outputs."""
    call = call_of(workload)
    high = (call.window[0] - 1) * call.dilation[0] + 1
    return workload.with_sizes(h=high, pad_top=0, pad_bottom=0)
