"""Tabulated parts of winograd: threads, loads and transforms, fragments, shared memory, grid (winograd*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, fixed_us
from gensor_kernels.programs.contraction import column
from gensor_kernels.programs.contraction.cost import reduction
from gensor_kernels.programs.core.columns import Column
from gensor_kernels.programs.core.family import Part, Values

from . import column as own
from .shape import COMPONENTS, SHAPE, WORD, Call, call_of, fits, shape

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Instructions of a thread per pair of entry and channel (loads, transform, 16 stores, addresses, predicates) and of a
#: step beside loads. Counted in the SASS of 40 Programs for sm_87 and sm_90.
IMAGE_ISSUE, FILTER_ISSUE, STEP_ISSUE = 125, 85, 30
#: Instructions of one copy of 16 bytes of prepared filters.
COPY_ISSUE = 3
#: Instructions with which a warp finishes 32 positions, without their stores and epilogue.
FINISH_ISSUE = 100.0


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Everything winograd tabulates."""
    call = call_of(workload)
    e = call.e
    clocks = 32 * 4 / arch.rate("fma_f32")

    def threads(v: Values) -> dict[Column, np.ndarray]:
        s = shape(v, call)
        warps = np.maximum(s["threads"] / 32, 1.0)
        multiplies = v["held"] * v["thread_m"] * v["thread_n"] * v["block_k"]
        wide = np.minimum(v["thread_m"], 4)
        reads_m, reads_n = (v["held"] * v["block_k"] * x for x in (v["thread_m"] / wide, v["thread_n"] / 4))
        image, filters = s["image_pairs"], s["filter_pairs"]
        # Lines that a warp's loads touch: neighbouring channels of several entries, or neighbouring entries.
        side = np.minimum(v["block_k"], 8)
        apart = 32 / side * (side * 36 / 128 + 0.75)  # of channels 9 elements apart
        of_image = 32 / side + 1 if call.channels_last else 3
        of_filters = 2 if call.filters_last else 32 / side + 1 if call.channels_last else apart
        lines = 16 * image * of_image + 9 * filters * of_filters
        copies = s["copies"]
        return {
            own.FITS: fits(v, s, call),
            column.WARPS: warps,
            column.MATH: multiplies * clocks,
            column.MULTIPLIES: multiplies,
            column.ISSUE: STEP_ISSUE
            + reads_m
            + reads_n
            + IMAGE_ISSUE * image
            + FILTER_ISSUE * filters
            + COPY_ISSUE * copies,
            own.CLOCKS: (reads_m * wide + reads_n * 4 + 16 * (image + filters) + lines + 8 * copies) * warps,
            column.BASE_REGISTERS: registers(v, s),
            column.OUTPUTS: 4.0 * v["block_m"] * v["block_n"] / warps,
            own.STAGING: (v["block_m"] * v["block_n"] * COMPONENTS * WORD * 2 / 128)
            + s["rounds"] * (50 + FINISH_ISSUE * warps / 4),
            own.TILE: s["tile"],
            column.SLAB: s["slab"],
        }

    def stages(v: Values) -> dict[Column, np.ndarray]:
        # With one buffer, loads, stores and math of a block take turns.
        single = v["stages"] == 1
        return {
            column.CHAIN: np.where(single, 160, 90),
            column.EXPOSED: np.where(single, 0.15, 0.08),
            own.FITS_STAGES: ~single | (v["prepared"] == 0),
        }

    def steps(v: Values) -> dict[Column, np.ndarray]:
        count = -(-e.k // v["block_k"])
        return {
            column.ITERATIONS: -(-count // v["split_k"]),
            column.FITS_SPLIT: (v["split_k"] - 1) * v["block_k"] < e.k,
        }

    def splits(v: Values) -> dict[Column, np.ndarray]:
        written, after = reduction(v["split_k"], e, arch)
        return {column.SLABS: v["split_k"], column.WRITTEN: written, column.AFTER: after}

    def preparing(v: Values) -> dict[Column, np.ndarray]:
        """Microseconds of the first launch: it reads 9 words of a filter's channel and writes 16."""
        moved = float(call.filters) * e.k * (9 + COMPONENTS) * WORD
        fixed = fixed_us(arch)
        return {own.FIRST: v["prepared"] * (moved / (arch.dram_gb_s * DRAM_EFFICIENCY * 1e3) + fixed)}

    def bounds(v: Values) -> dict[Column, np.ndarray]:
        promised = np.maximum(v["min_blocks"], 1)
        return {column.PROMISED: promised}

    return (
        Part(SHAPE, threads),
        Part(("stages", "prepared"), stages),
        Part(("block_k", "split_k"), steps),
        Part(("split_k",), splits),
        Part(("prepared",), preparing),
        Part(("min_blocks",), bounds),
        Part(("raster",), lambda v: {column.RASTER_ROWS: v["raster"]}),
        Part(("vector_c", "split_k"), _stores(call)),
        _grid(call, "m", call.channels_last),
        _grid(call, "n", not call.channels_last),
    )


def registers(v: Mapping[str, Any], s: Mapping[str, Any]) -> Any:
    """Registers a thread wants: sums, fragments, the loads of a step under way, addresses.

    Fitted to the allocations of NVRTC 12.9 for 40 Programs: median error 14 registers.
    """
    sums = v["held"] * v["thread_m"] * v["thread_n"]
    deep = 4.0 * np.maximum(v["block_k"] - 8, 0)
    loads = 22 * s["image_pairs"] + 14 * s["filter_pairs"] + 10 * v["prepared"]
    return sums + v["thread_m"] + v["thread_n"] + loads + deep + 45.0


def _grid(call: Call, axis: str, image: bool) -> Part:
    """Tiles of the grid along an axis of C, and the bytes that a step requests per row or column of a tile."""
    total = call.positions if image else call.filters
    pixels = {"m": call.e.m, "n": call.e.n}[axis]

    def function(v: Values) -> dict[Column, np.ndarray]:
        block = v[f"block_{axis}"]
        tiles = -(-total // block)
        if image:
            # Neighbouring positions share two rows and columns; L1 holds the pixels that threads of a block share.
            high, wide = np.maximum(block / call.across, 1.0), np.minimum(block, call.across)
            each = v["block_k"] * WORD * (1 + 1 / high) * (1 + 1 / wide)
        else:
            each = v["block_k"] * WORD * np.where(v["prepared"] == 1, COMPONENTS, 9.0)
        operand = {"m": "a", "n": "b"}[axis]
        return {column.TILES[axis]: tiles, column.HELD[axis]: pixels / tiles, column.STEP[operand]: each}

    return Part((f"block_{axis}", "block_k", "prepared"), function)


def _stores(call: Call):
    """Tabulate the stores of outputs: a warp's lanes write columns of C side by side."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        size = call.e.bytes_c
        width = np.where(v["split_k"] > 1, call.e.bytes_acc * v["vector_c"] // size, v["vector_c"])
        lines = np.full(len(width), 1.0 if call.channels_last else 2.0)
        return {
            column.STORES: np.where(v["split_k"] > 1, call.e.bytes_acc, size) / (width * 32.0),
            column.STORE_LINES: lines,
        }

    return function
