"""The sizes a Program is verified on.

A verification case must exercise every branch a Program has (docs/verification.md): at least
two full blocks plus a partial one on each axis, more k-iterations per split than stages + 2 with a partial last
one, splits that are non-empty and unequal, a second batch, k = 0, and a single partial block. Sizes are
multiples of what the workload's alignment class promises, and of nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gensor_kernels.operators.dtypes import facts
from gensor_kernels.operators.workload import Workload


@dataclass(frozen=True)
class Case:
    """One problem: its purpose, its extents and the epilogue operations it runs."""

    name: str
    batch: int
    m: int
    n: int
    k: int
    epilogue: tuple[str, ...]


def granularity(workload: Workload) -> dict[str, int]:
    """Elements of which each extent is a multiple in this class: an axis that is some operand's unit-stride
    axis is a multiple of that operand's vector."""
    step = {"m": 1, "n": 1, "k": 1}
    for operand, axis in workload.layout:
        if axis in step:
            elements = workload.align[operand] // facts(workload.dtype[operand]).itemsize
            step[axis] = max(step[axis], elements)
    return step


def cases(workload: Workload, tile: Mapping[str, int], epilogue: tuple[str, ...]) -> list[Case]:
    """The cases for a Program with these runtime numbers (`family.tile`): m, n, k, stages, split, raster.

    `epilogue` is what the large cases run; a binary with a compile-time epilogue runs its own everywhere.
    """
    step = granularity(workload)
    ragged = {axis: _partial(tile[axis], step[axis]) for axis in "mnk"}
    # A raster group of w tile rows has a narrower last group only when the rows are no multiple of w.
    rows = max(2, tile["raster"] + 1 if 1 < tile["raster"] <= 4 else 2)
    per_split = tile["stages"] + 4
    iterations = per_split * tile["split"] - 1  # the last split has one iteration fewer than the others
    k = iterations * tile["k"] - (tile["k"] - ragged["k"] if ragged["k"] else 0)
    main = Case("blocks", 1, rows * tile["m"] + ragged["m"], 2 * tile["n"] + ragged["n"], k, epilogue)
    corner = Case("corner", 1, tile["m"] + ragged["m"], ragged["n"] or tile["n"], k, epilogue)
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    small = {axis: ragged[axis] or tile[axis] for axis in "mnk"}
    return [
        main,
        corner,
        # One granule past a tile: the element that an edge off by one would drop or add.
        Case(
            "granule",
            1,
            tile["m"] + step["m"],
            tile["n"] + step["n"],
            2 * tile["split"] * tile["k"] + step["k"],
            epilogue,
        ),
        Case("batch", 3, small["m"], small["n"], small["k"], bare),
        Case("empty k", 2, small["m"], small["n"], 0, epilogue),
        *([Case("empty splits", 1, small["m"], small["n"], tile["k"], bare)] if tile["split"] > 1 else []),
    ]


def _partial(tile: int, step: int) -> int:
    """Extent of the partial block: about 5/8 of a tile, a multiple of `step`, 0 where no partial can exist."""
    return min(tile - step, max(step, (tile * 5 // 8) // step * step)) if step < tile else 0


def generic_epilogue(workload: Workload) -> tuple[str, ...]:
    """What a kernel with a runtime epilogue is verified with: operands of every broadcast, and an activation."""
    if workload.accumulator == "int32":
        return ("bias", "relu", "scale", "add")
    return ("scale", "bias", "add", "silu")
