"""The sizes that contractions are verified on.

At least two full blocks plus a partial one on each axis, more k-iterations per split than stages + 2 with a partial
last one, splits that are non-empty and unequal, a second batch, k = 0, and a single partial block.  Sizes are multiples
of the workload's alignment class, and of nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gensor_kernels.families.core.cases import Case
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.lowered import Product
from gensor_kernels.operators.types.dtypes import element_bytes
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sides import output_size

from .problem import extents


def granularity(workload: Workload) -> dict[str, int]:
    """Return the elements of which m, n and k are multiples in this class: an axis that is some operand's unit-stride
    axis is a multiple of that operand's vector."""
    e, step = extents(workload), {"m": 1, "n": 1, "k": 1}
    for operand, axis in e.unit.items():
        if axis in step:
            step[axis] = max(step[axis], int(e.align[operand] / element_bytes(e.dtype[operand])))
    if e.is_formatted:  # scales are bytes
        step["k"] = max(step["k"], workload.align["d"] * e.group)
    return step


def contraction_cases(workload: Workload, tile: Mapping[str, int], epilogue: tuple[str, ...]) -> list[Case]:
    """Return the cases for a Program with these runtime numbers (`family.tile`): m, n, k, stages, split, raster.

    Large cases run `epilogue`; a binary with a compile-time epilogue runs its own everywhere.
    """
    step = granularity(workload)
    ragged = {axis: _partial(tile[axis], step[axis]) for axis in "mnk"}
    # A raster group of w tile rows has a narrower last group only when the rows are no multiple of w.
    rows = max(2, tile["raster"] + 1 if 1 < tile["raster"] <= 4 else 2)
    per_split = tile["stages"] + 4
    iterations = per_split * tile["split"] - 1  # the last split has one iteration fewer than the others
    k = iterations * tile["k"] - (tile["k"] - ragged["k"] if ragged["k"] else 0)
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    small = {axis: ragged[axis] or tile[axis] for axis in "mnk"}

    def case(name: str, batch: int, m: int, n: int, k: int, steps: tuple[str, ...], *schedule: tuple[str, str | int]):
        wanted = {"batch": batch, "m": m, "n": n, "k": k}
        return Case(name, _sized(workload, wanted, tile, ragged).with_epilogue(steps), schedule)

    late, early = "late", "early"
    one_past = {axis: tile[axis] + step[axis] for axis in "mn"}
    columns = 2 * tile["n"] + ragged["n"]
    if "whole_rows" in tile:  # a block has all columns of its rows: as many as it holds, or less
        columns, one_past["n"] = tile["n"], max(tile["n"] - step["n"], step["n"])
    cases = [
        # The largest, the one with whole blocks.
        case("blocks", 1, rows * tile["m"] + ragged["m"], columns, k, epilogue, (late, "forward")),
        case(
            *("corner", 1, tile["m"] + ragged["m"], ragged["n"] or tile["n"], k, epilogue),
            *((late, "reverse"), (early, "forward"), (early, 1), (late, 2)),
        ),
        # A granule past a tile: the element that an edge off by one would drop or add.
        case(
            *("granule", 1, one_past["m"], one_past["n"], 2 * tile["split"] * tile["k"] + step["k"], epilogue),
            (early, "reverse"),
        ),
        case("batch", 3, small["m"], small["n"], small["k"], bare, (late, 3)),
        case("empty k", 2, small["m"], small["n"], 0, epilogue, (early, "reverse")),
    ]
    if "stream" in tile:  # some tiles whole, the others shared by the blocks (devices/emulator/run.py: TOGETHER)
        m, n = 5 * tile["m"] + small["m"], tile["n"] + small["n"]
        cases.append(case("waves", 1, m, n, 2 * tile["k"] + small["k"], bare, (late, 5), (early, "reverse")))
    if tile["split"] > 1:
        cases.append(case("empty splits", 1, small["m"], small["n"], tile["k"], bare, (late, "forward")))
    return cases


def _sized(
    workload: Workload, wanted: Mapping[str, int], tile: Mapping[str, int], ragged: Mapping[str, int]
) -> Workload:
    """Return the smallest sizes with at least the wanted product, and a partial block wherever one is wanted.

    An operator whose m, n or k is made of several axes has some products only.
    """
    declared, least = operator(workload.operator), dict(wanted)
    sized = declared.resize(workload, least)
    for _ in range(64):
        found = _extents(declared.product(sized))
        whole = [x for x in "mnk" if wanted[x] % tile[x] and ragged[x] and found[x] % tile[x] == 0]
        if not whole:
            break
        for axis in whole:
            least[axis] = found[axis] + 1
        sized = declared.resize(workload, least)
    return sized


def _extents(product: Product | None) -> dict[str, int]:
    assert product is not None
    return {"m": product.m, "n": product.n, "k": product.k}


def impossible_edges(workload: Workload, tile: Mapping[str, int]) -> frozenset[str]:
    """Coverage names of edges that this class's alignment makes impossible."""
    step = granularity(workload)
    return frozenset(f"edge_{axis}" for axis in "mnk" if not _partial(tile[axis], step[axis]))


def _partial(tile: int, step: int) -> int:
    """Extent of the partial block: about 5/8 of a tile, a multiple of `step`, 0 where no partial can exist."""
    return min(tile - step, max(step, (tile * 5 // 8) // step * step)) if step < tile else 0


# ---- filters of one tap along an axis

#: The small case, from which others are made.
SMALL = "batch"
#: Coverage names of filters with one tap along an axis.
THIN = frozenset({"one_row", "one_column"})


def one_tap(cases: Sequence[Case]) -> list[Case]:
    """Return the small case under one tap along an axis, and along both."""
    small = next(case for case in cases if case.name == SMALL)
    return [replace(small, name=f"one tap along {axes}", workload=thin(small.workload, axes)) for axes in ("h", "hw")]


def thin(workload: Workload, axes: str) -> Workload:
    """Return a Workload of the same outputs with one tap along these axes and a stride.

    The first and the last output of an axis read the padding.
    """
    z = workload.size
    sizes: dict[str, int] = {}
    for axis, taps, before, after in (("h", "r", "top", "bottom"), ("w", "s", "left", "right")):
        if axis in axes:
            out = output_size(z, axis, False)
            pad = int(out > 1)  # a single output is of the image
            own = {axis: 2 * out - 1 - 2 * pad, taps: 1, f"stride_{axis}": 2, f"dilation_{axis}": 1}
            sizes |= own | {f"pad_{before}": pad, f"pad_{after}": pad}
    return workload.with_sizes(**sizes)
