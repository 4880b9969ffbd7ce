"""Tabulated parts that main loops share: k steps, splits and their reduction, launch bounds, raster."""

from __future__ import annotations

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, fixed_us
from gensor_kernels.programs.core.columns import Column
from gensor_kernels.programs.core.family import Part, Values

from . import column
from .problem import Extents


def shared_parts(e: Extents, arch: Arch, taps: int = 1) -> tuple[Part, ...]:
    """Tabulate steps, splits, bounds and raster; each of ``taps`` parts of k has whole steps."""

    def steps(v: Values) -> dict[Column, np.ndarray]:
        count = taps * -(-(e.k // taps) // v["block_k"])
        moved = v["block_k"] if taps == 1 else e.k / count  # zeros behind a tap come from nowhere
        return {
            column.ITERATIONS: -(-count // v["split_k"]),
            column.FITS_SPLIT: v["split_k"] - 1 < count,
            column.STEP["a"]: moved * e.bytes_a,
            column.STEP["b"]: moved * e.moved_b * e.matrices,
        }

    return (Part(("block_k", "split_k"), steps), *split_parts(e, arch))


def tiles_part(extent: int, axis: str) -> Part:
    """Tiles of the grid along an axis, and how much of it one holds on the average."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        tiles = -(-extent // v[f"block_{axis}"])
        return {column.TILES[axis]: tiles, column.HELD[axis]: extent / tiles}

    return Part((f"block_{axis}",), function)


def split_parts(e: Extents, arch: Arch) -> tuple[Part, ...]:
    """Tabulate splits, bounds and raster."""

    def splits(v: Values) -> dict[Column, np.ndarray]:
        slabs = {column.SLABS: v["split_k"] * e.batch}
        if e.norm:  # norm.py
            return slabs
        written, after = reduction(v["split_k"], e, arch, e.matrices)
        return slabs | {column.WRITTEN: written, column.AFTER: after}

    def bounds(v: Values) -> dict[Column, np.ndarray]:
        promised = np.maximum(v["min_blocks"], 1)
        return {column.PROMISED: promised, column.REGISTER_SHARE: arch.regs_per_sm / 32 / 8 / promised}

    return (
        Part(("split_k",), splits),
        Part(("min_blocks",), bounds, fixed=True),
        Part(("raster",), lambda v: {column.RASTER_ROWS: v["raster"]}, fixed=True),
    )


def reduction(
    split: np.ndarray,
    e: Extents,
    arch: Arch,
    sums: int = 1,
    *,
    through: np.ndarray | None = None,
    passes: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """(DRAM bytes the main kernel writes, microseconds of the reduction kernel), by split count; ``sums`` of an output.

    Partial sums pass through the L2 where they fit, otherwise through DRAM.  They are written where k is split, or
    where ``through`` says so, and read ``passes`` times.
    """
    through = split > 1 if through is None else through
    outputs = float(e.batch) * e.m * e.n
    plain = outputs * e.bytes_c + e.extra
    partial = split * outputs * e.bytes_acc * sums
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    spilled = np.clip(partial / (arch.l2_mb * 2**20) - 0.5, 0, 1)
    moved = passes * partial * (spilled / dram + (1 - spilled) / l2) + plain / dram
    after = moved + fixed_us(arch)
    return np.where(through, partial * spilled, plain), np.where(through, after, 0)
