"""The sizes a Program of window_groups is verified on.

Along the filters and each axis of y two whole blocks and a partial one, one granule past a block, and a corner where
all are partial; groups of one tile of filters and of several, whole and not, of one load of channels and of several;
padding on every side, windows in the padding alone, several images.  A Program whose window comes from Params
sees different ones.  Sizes are multiples of the workload's alignment class, and of nothing more.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gensor_kernels.families.core.cases import USUAL, Case, Schedule
from gensor_kernels.families.core.family import Points
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.window.cases import SHAPES, ragged, under
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

from .shape import call_of, shared_bytes, tiles

#: Rows of windows whose columns are compiled in.
MOST_ROWS = 3


def granules(workload: Workload) -> tuple[int, int, int]:
    """Return the filters and channels of a group, and columns of y, of which this class's sizes are multiples."""
    element = {name: workload.align[name] // facts(dtype).itemsize for name, dtype in workload.dtype.items()}
    last, by_filter = call_of(workload).channels_last, workload.layouts["w"] == "rsck"
    filters = max(element["y"] if last else 1, element["w"] if by_filter else 1)
    channels = max(element["x"] if last else 1, 1 if by_filter else element["w"])
    return filters, channels, 1 if last else element["y"]


def groups_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Return the coverage names that runs at verification sizes must count."""
    filters, _, columns = granules(workload)
    found = {"padding", "full_tile", "further_channels"}
    tile, lanes = program["thread_c"], program["block_c"] // program["thread_c"]
    found |= {"edge_c"} if -(-_filters(tile, lanes, filters) // tile) % lanes else set()
    found |= {"edge_h"} if program["block_h"] > 1 else set()
    found |= {"edge_w"} if columns % program["block_w"] else set()
    found |= {"last_filters"} if filters % program["thread_c"] else set()
    return frozenset(found)


def groups_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return the cases; large cases run ``epilogue``.

    A binary with a compile-time epilogue runs its own everywhere.
    """
    step_k, step_c, step_w = granules(workload)
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    tile, lanes = program["thread_c"], program["block_c"] // program["thread_c"]
    axes = (("h", program["block_h"], 1), ("w", program["block_w"], step_w))
    few = {axis: ragged(block, step, block * 5 // 8) for axis, block, step in axes}
    two = {axis: ragged(block, step, 2 * block + block // 2) for axis, block, step in axes}
    past = {axis: ragged(block, step, block + 1) for axis, block, step in axes}
    whole = {axis: math.lcm(block, step) for axis, block, step in axes}
    few_filters, more_filters = _filters(tile, lanes, step_k), ragged(tile, step_k, tile + 1)
    tiles_each = -(-few_filters // tile)
    load = max(program["vector_a"] // facts(workload.dtype["x"]).itemsize, 1)
    one = math.lcm(load, step_c)
    late, early = "late", "early"
    made: list[tuple[str, int, dict[str, int], tuple[int, int, int], int, tuple[str, ...], Schedule]] = [
        ("groups", 1, few, (_partial(lanes, tiles_each, 2 * lanes + lanes // 2), few_filters, one), 1, epilogue, USUAL),
        ("rows", 1, {**few, "h": two["h"]}, (2, more_filters, one), 1, epilogue, ((late, 1),)),
        ("columns", 2, {**few, "w": two["w"]}, (3, few_filters, one), 1, epilogue, ((late, "forward"),)),
        ("whole", 1, whole, (2 * lanes, math.lcm(tile, step_k), 2 * one), 0, bare, ((early, 2),)),
        (
            "granule",
            1,
            past,
            (_partial(lanes, tiles_each, lanes + 1), few_filters, one),
            2,
            epilogue,
            ((late, "reverse"),),
        ),
        ("far padding", 3, few, (2, more_filters, 2 * one), 9, bare, ((early, "reverse"), (late, 3))),
    ]
    return [
        Case(name, _sized(workload, program, number, images, outputs, group, pad).with_epilogue(steps), schedule)
        for number, (name, images, outputs, group, pad, steps, schedule) in enumerate(made)
    ]


def verified_bytes(c: Points, workload: Workload) -> np.ndarray:
    """Return the most shared bytes of a case: of two loads of channels under the largest window."""
    call = call_of(workload)
    loads = np.lcm(np.maximum(c["vector_a"] // call.bytes_x, 1), granules(workload)[1])
    taps = np.where(c["window"] > 0, MOST_ROWS * call.wide.window, max(shape.r * shape.s for shape in SHAPES))
    return shared_bytes(tiles(c, call, 2 * loads * taps), call)


def _filters(tile: int, lanes: int, step: int) -> int:
    """Return the filters of a group, a multiple of ``step``: not a multiple of ``lanes`` tiles, and no whole tiles, as
    far as there are such; of these, the fewest."""
    return min(
        range(step, step + tile * step + 1, step),
        key=lambda count: (-(-count // tile) % lanes == 0, count % tile == 0, count),
    )


def _partial(lanes: int, tiles: int, least: int) -> int:
    """Return the first number of groups of ``tiles`` from ``least`` / ``tiles`` on, and from 2, that leaves a block a
    part of its tiles, if any does."""
    first = max(-(-least // tiles), 2)
    return next((count for count in range(first, first + lanes) if count * tiles % lanes), first)


def _sized(
    workload: Workload,
    program: Program,
    number: int,
    images: int,
    outputs: dict[str, int],
    group: tuple[int, int, int],
    pad: int,
) -> Workload:
    """Return the Workload with these outputs, and ``group``: groups, filters and channels of each."""
    groups, filters, channels = group
    shape = SHAPES[number % len(SHAPES)]
    if program["window"]:
        shape = replace(shape, r=min(shape.r, MOST_ROWS), s=program["window"] // 10, dilation_w=1)
        shape = replace(shape, stride_w=program["window"] % 10)
    sizes = under(shape, outputs, pad, number, 0)
    sizes |= {"n": images, "groups": groups, "c": groups * channels, "k_out": groups * filters}
    return workload.with_sizes(**{name: value for name, value in sizes.items() if name in workload.size})
