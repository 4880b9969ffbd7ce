"""The problems on which Programs of contraction_patch are verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gensor_kernels.families.contraction.cases import SMALL, thin
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

from .shape import MERGED, PLANE, call_of, channel_step, verified_window

#: The case of whole steps where groups are merged.
WHOLE = "blocks"
#: Partial sums that are stored together.
PARTIALS = 4


def on_their_way(program: Program, size: int) -> int:
    """Pixels of a patch, at most, that are on their way while a step is computed; elements have ``size`` bytes."""
    warps = (program["block_m"] // program["warp_m"]) * (program["block_n"] // program["warp_n"])
    return program["copies"] * 32 * warps // (program["block_k"] * size // PLANE)


def patch_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Return the coverage names that runs at verification sizes must count."""
    size, merged = call_of(workload).size, program.get(MERGED)
    names, run = {"edge_m", "edge_k", "steady", "drain", "runs"}, program.get("run")
    # Rows of every case may be longer than a run, and runs of single rows may fill them.
    names |= {"bands", "cut"} if not run else {"cut"} if program["block_n"] > run else set()
    # Under one tap a patch has the pixels that outputs read, and no others.
    if program["taps"] != 1 or on_their_way(program, size) < program["block_n"]:
        names.add("more_pieces")
    names |= {"split_reduce"} if program["split_k"] > 1 else set()
    if merged:  # a single step, of all groups' channels; tiles may be the filters of whole groups
        names = (names | {"other_group"}) - {"steady"} - ({"edge_m"} if merged % program["block_m"] == 0 else set())
        if all(each * merged == program["block_k"] for each in _merged_channels(workload, program)):
            names -= {"edge_k"}
    return frozenset(names | ({"raster_tail"} if program["raster"] > 1 else set()))


def patch_cases(cases: Sequence[Case], workload: Workload, program: Program) -> list[Case]:
    """Return the cases of a product as convolutions of tiles, under as many taps as are compiled in: rows of the output
    longer than a tile, and patches of more pixels than are on their way during the math. With a split, partial sums are
    stored by fours, so that rows are whole fours, but for the row of a single tile."""
    block_n, taps, pixels = program["block_n"], program["taps"], on_their_way(program, call_of(workload).size)
    if program.get(MERGED):
        cases = [replace(case, workload=_merged(case.workload, program, case.name == WHOLE)) for case in cases]
    made = [replace(case, workload=_under(case.workload, verified_window(taps))) for case in cases]
    run, vector = program.get("run"), workload.align["y"] // facts(workload.dtype["y"]).itemsize
    if run:
        together = max(vector, PARTIALS if program["split_k"] > 1 else 1)
        made = [replace(case, workload=_widened(case.workload, together)) for case in made]
    if program["split_k"] > 1:
        single = next(replace(case, name="one row") for case in made if case.name == SMALL)
        made = [replace(case, workload=_widened(case.workload, PARTIALS)) for case in made]
        made.append(replace(single, workload=_in_one_row(single.workload)))
    small = next(case for case in made if case.name == SMALL)
    out = call_of(small.workload).out[1]
    if run:
        # The last tiles have fewer columns, and one row less.
        wide = _sized(small.workload, "w", run + together)
        wide = _sized(wide, "h", max(2 * (block_n // run) - 1, 1))
    else:
        wide = _widened(small.workload, block_n + max(vector, PARTIALS), at_least=block_n)
        if all(call_of(case.workload).out[1] > block_n for case in made):  # vectors are wide, and the tile is not
            whole = _sized(_sized(small.workload, "w", block_n - block_n % vector), "h", 3)
            made.append(replace(small, name="bands", workload=whole))
    more = _strided(small.workload, run or min(out, block_n), pixels, program["block_k"])
    made += [replace(small, name="runs", workload=wide), replace(small, name="pieces", workload=more)]
    if not taps:
        thinner = ((f"one tap along {axes}", thin(small.workload, axes)) for axes in ("h", "hw"))
        made += [replace(small, name=name, workload=each) for name, each in thinner]
    return made


def _merged_channels(workload: Workload, program: Program) -> tuple[int, int]:
    """Channels of a group with which merged groups are a step: as many as there can be, and less where possible."""
    step = channel_step(workload, program["taps"])
    most = program["block_k"] // program[MERGED] // step * step
    return most, max(most - step, step)


def _merged(workload: Workload, program: Program, whole: bool) -> Workload:
    """Return the Workload with the groups that are merged for each of this one's: a single step of channels, ``whole``
    or not, and about the filters of the workload, shared out among them."""
    z, count, block_m = workload.size, program[MERGED], program["block_m"]
    groups, most = z["groups"] * count, _merged_channels(workload, program)
    wanted = z["k_out"] // z["groups"]
    around = [each for each in range(max(wanted // count, 1), wanted // count + 3)]
    # As many tiles as wanted; then, where that can be, the last of them partial.
    around.sort(key=lambda each: (-(-each * count // block_m) != -(-wanted // block_m), each * count % block_m == 0))
    channels = (most[0] if whole else most[1]) if z["c"] else 0
    return workload.with_sizes(groups=groups, c=channels * groups, k_out=around[0] * groups)


def _under(workload: Workload, window: tuple[int, int]) -> Workload:
    """Return a Workload of the same outputs under other taps than 3 x 3."""
    z, (rows, columns) = workload.size, window
    h, w = (z[side] + (taps - 3) * z[f"dilation_{side}"] for side, taps in (("h", rows), ("w", columns)))
    return workload.with_sizes(r=rows, s=columns, h=max(h, 1), w=max(w, 1))


def _widened(workload: Workload, multiple: int, at_least: int = 0) -> Workload:
    """Return the Workload with output rows of a multiple of columns; the window moves by single columns."""
    out = call_of(workload).out[1]
    return workload.with_sizes(w=workload.size["w"] + (-out % multiple if out >= at_least else multiple - out))


def _strided(workload: Workload, tile: int, pixels: int, channels: int) -> Workload:
    """One row of outputs so far apart that the patch of ``tile`` of them has more pixels; a step's channels at most,
    since a second one would take as much memory again."""
    call, z = call_of(workload), workload.size
    out = call.out[1]
    rows, columns = call.window
    step = -(-(pixels // rows + 1) // (tile - 1))
    padded = (columns - 1) * call.dilation[1] + 1 - z["pad_left"] - z["pad_right"]
    most = min(z["c"], channels * z["groups"])
    return _in_one_row(workload).with_sizes(c=most, w=(out - 1) * step + padded, stride_w=step)


def _in_one_row(workload: Workload) -> Workload:
    """Return the Workload with one row of outputs."""
    return _sized(workload.with_sizes(pad_top=0, pad_bottom=0), "h", 1)


def _sized(workload: Workload, side: str, outputs: int) -> Workload:
    """Return the Workload with a number of outputs along a side."""
    call, z, axis = call_of(workload), workload.size, "hw".index(side)
    ends = ("top", "bottom") if side == "h" else ("left", "right")
    reach = (outputs - 1) * call.step[axis] + (call.window[axis] - 1) * call.dilation[axis] + 1
    pads = sum(z[f"pad_{end}"] for end in ends)
    if pads > reach:  # few outputs under few taps: no image is as small as that
        return workload.with_sizes(**{side: reach}, **{f"pad_{end}": 0 for end in ends})
    return workload.with_sizes(**{side: reach - pads})
