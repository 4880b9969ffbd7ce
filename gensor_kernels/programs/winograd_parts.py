"""Tabulated parts of winograd: threads, loads and transforms, fragments, shared memory, grid (cuda/winograd*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..machine.arch import Arch
from ..operators.conv_product import output_size
from ..operators.dtypes import facts
from .contraction_parts import reduction
from .extents import Extents, extents
from .family import Part, Values

if TYPE_CHECKING:
    from ..operators.workload import Workload

ROWS = (8, 16, 32, 48, 64, 96, 128)
COLUMNS = (32, 64, 96, 128)
STEPS = (4, 8, 16)
THREAD_ROWS, THREAD_COLUMNS, HELD = (2, 4, 8, 16), (4, 8, 16), (1, 2, 4)
COMPONENTS, WORD = 16, 4
#: Accumulators, unrolled multiply-adds of a step, and words of a step's loads of one thread.
MOST_SUMS, MOST_MULTIPLIES, MOST_LOADED = 128, 1024, 64
#: What tiles and threads of a Program are.
SHAPE = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "held")
#: Instructions of a thread per pair of entry and channel (loads, transform, 16 stores, addresses, predicates) and of a
#: step beside those. Counted in the SASS of 40 Programs for sm_87 and sm_90.
IMAGE_ISSUE, FILTER_ISSUE, STEP_ISSUE = 125, 85, 30
#: Instructions with which a warp finishes 32 positions, without their stores and epilogue.
FINISH_ISSUE = 100.0


@dataclass(frozen=True)
class Call:
    """A Workload as this family sees it: ``e`` counts pixels of all images as one axis and channels as k;
    ``positions`` are 2 x 2 outputs, ``across`` those beside each other; ``pairs``: two columns are stored at once."""

    e: Extents
    channels_last: bool
    filters_last: bool
    filters: int
    positions: int
    across: int
    even: bool


@lru_cache(maxsize=4096)
def call_of(workload: Workload) -> Call:
    """The Call of a Workload of conv2d; an empty axis counts as 1."""
    z, e, last = workload.size, extents(workload), workload.layouts["x"] == "nhwc"
    high, wide = (max(output_size(z, side, False), 1) for side in "hw")
    flat = replace(e, k=max(z["c"], 1))
    if not last:
        flat = replace(flat, batch=1, n=e.n * e.batch, whole_b=e.whole_b * e.batch)
    across = -(-wide // 2)
    return Call(
        e=flat,
        channels_last=last,
        filters_last=workload.layouts["w"] == "rsck",
        filters=max(z["k_out"], 1),
        positions=max(z["n"], 1) * -(-high // 2) * across,
        across=across,
        even=wide % 2 == 0,
    )


def store_widths(workload: Workload) -> tuple[int, ...]:
    """Bytes of a store into y: one output, or both columns of a position where rows of y hold pairs."""
    call, size = call_of(workload), facts(workload.dtype["y"]).itemsize
    paired = not call.channels_last and call.even and workload.align["y"] >= 2 * size
    return (size, 2 * size) if paired else (size,)


def pairs(extent: Any, threads: Any, step: Any, by_channel: bool) -> Any:
    """Pairs of entry and channel that a thread loads in a step: Spread in winograd_tile.cuh."""
    side = np.minimum(step, 8) if by_channel else np.maximum(np.gcd(extent, threads), 1)
    lines = np.maximum(threads // side, 1)
    entries, channels = (lines, side) if by_channel else (side, lines)
    return -(-extent // entries) * -(-step // channels)


def slab_row(v: Mapping[str, Any]) -> Any:
    """Words between rows of a slab: SLAB_ROW in winograd_store.cuh."""
    return v["block_n"] + (v["block_n"] // v["thread_n"] - v["block_n"] // 4) % 8 * 4


def shape(v: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """Threads, pairs of both operands, and shared bytes of a buffer and of the slabs."""
    down, across = np.maximum(v["block_m"] // v["thread_m"], 1), np.maximum(v["block_n"] // v["thread_n"], 1)
    lanes = down * across
    threads = COMPONENTS // v["held"] * lanes
    by_rows, by_columns = call.channels_last or not call.filters_last, call.channels_last and not call.filters_last
    of_rows = pairs(v["block_m"], threads, v["block_k"], by_rows)
    of_columns = pairs(v["block_n"], threads, v["block_k"], by_columns)
    pad = 32 // np.minimum(v["block_k"], 8)
    words = COMPONENTS * v["block_k"] * (v["block_m"] + by_rows * pad + v["block_n"] + by_columns * pad)
    rows = np.minimum(v["thread_m"], np.maximum(16 // (v["thread_n"] * v["held"]), 1))
    return {
        "lanes": lanes,
        "threads": threads,
        "image_pairs": of_rows if call.channels_last else of_columns,
        "filter_pairs": of_columns if call.channels_last else of_rows,
        "tile": words * WORD,
        "slab": 2 * COMPONENTS * rows * down * slab_row(v) * WORD,
        "rounds": v["thread_m"] // rows,
    }


def fits(v: Mapping[str, Any], s: Mapping[str, Any]) -> Any:
    """The rules at the top of winograd.cu, but for those of an Arch."""
    sums = v["held"] * v["thread_m"] * v["thread_n"]
    ok = (v["block_m"] % v["thread_m"] == 0) & (v["block_n"] % v["thread_n"] == 0)
    ok &= (v["thread_n"] * v["held"] <= 16) & (sums <= MOST_SUMS) & (sums * v["block_k"] <= MOST_MULTIPLIES)
    ok &= (s["lanes"] % 16 == 0) & (s["threads"] % 32 == 0) & (s["threads"] <= 1024)
    ok &= (v["block_k"] > 4) | (v["block_m"] % 16 == 0)
    return ok & (16 * s["image_pairs"] + 9 * s["filter_pairs"] <= MOST_LOADED)


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Everything winograd tabulates."""
    call = call_of(workload)
    e = call.e
    clocks = 32 * 4 / arch.rate("fma_f32")

    def threads(v: Values) -> dict[str, np.ndarray]:
        s = shape(v, call)
        warps = np.maximum(s["threads"] / 32, 1.0)
        multiplies = v["held"] * v["thread_m"] * v["thread_n"] * v["block_k"]
        wide = np.minimum(v["thread_m"], 4)
        reads_m, reads_n = (v["held"] * v["block_k"] * x for x in (v["thread_m"] / wide, v["thread_n"] / 4))
        image, filters = s["image_pairs"], s["filter_pairs"]
        # Lines that a warp's loads touch: some channels of several entries, or neighbouring entries.
        apart = 32 / np.minimum(v["block_k"], 8) + 1
        lines = 16 * image * (apart if call.channels_last else 3), 9 * filters * (2 if call.filters_last else apart)
        return {
            "fits": fits(v, s),
            "warps": warps,
            "math": multiplies * clocks,
            "multiplies": multiplies,
            "issue": STEP_ISSUE + reads_m + reads_n + IMAGE_ISSUE * image + FILTER_ISSUE * filters,
            "clocks": (reads_m * wide + reads_n * 4 + 16 * (image + filters) + lines[0] + lines[1]) * warps,
            "base_registers": registers(v, s),
            "outputs": 4.0 * v["block_m"] * v["block_n"] / warps,
            "staging": (v["block_m"] * v["block_n"] * COMPONENTS * WORD * 2 / 128)
            + s["rounds"] * (50 + FINISH_ISSUE * warps / 4),
            "tile": s["tile"],
            "slab": s["slab"],
        }

    def stages(v: Values) -> dict[str, np.ndarray]:
        # With one buffer, loads, stores and math of a block take turns.
        single = v["stages"] == 1
        return {"chain": np.where(single, 160, 90), "exposed": np.where(single, 0.15, 0.08)}

    def steps(v: Values) -> dict[str, np.ndarray]:
        count = -(-e.k // v["block_k"])
        return {"iterations": -(-count // v["split_k"]), "fits_split": (v["split_k"] - 1) * v["block_k"] < e.k}

    def splits(v: Values) -> dict[str, np.ndarray]:
        written, after = reduction(v["split_k"], e, arch)
        return {"slabs": v["split_k"], "written": written, "after": after}

    def bounds(v: Values) -> dict[str, np.ndarray]:
        promised = np.maximum(v["min_blocks"], 1)
        return {"promised": promised, "register_share": arch.regs_per_sm / 32 / 8 / promised}

    return (
        Part(SHAPE, threads),
        Part(("stages",), stages),
        Part(("block_k", "split_k"), steps),
        Part(("split_k",), splits),
        Part(("min_blocks",), bounds),
        Part(("raster",), lambda v: {"raster_rows": v["raster"]}),
        Part(("vector_c", "split_k"), _stores(call)),
        _grid(call, "m", call.channels_last),
        _grid(call, "n", not call.channels_last),
    )


def registers(v: Mapping[str, Any], s: Mapping[str, Any]) -> Any:
    """Registers a thread wants: sums, fragments, the loads of a step under way, addresses.

    Fitted to what NVRTC 12.9 allocated for 40 Programs: median error 14 registers.
    """
    sums = v["held"] * v["thread_m"] * v["thread_n"]
    deep = 4.0 * np.maximum(v["block_k"] - 8, 0)
    return sums + v["thread_m"] + v["thread_n"] + 22 * s["image_pairs"] + 14 * s["filter_pairs"] + deep + 45.0


def _grid(call: Call, axis: str, image: bool) -> Part:
    """Tiles of the grid along an axis of C, and what a step asks for per row or column of them."""
    total = call.positions if image else call.filters
    pixels = {"m": call.e.m, "n": call.e.n}[axis]

    def function(v: Values) -> dict[str, np.ndarray]:
        block = v[f"block_{axis}"]
        tiles = -(-total // block)
        if image:
            # Neighbouring positions share two rows and columns; what threads of a block share is found in L1.
            high, wide = np.maximum(block / call.across, 1.0), np.minimum(block, call.across)
            each = v["block_k"] * WORD * (1 + 1 / high) * (1 + 1 / wide)
        else:
            each = v["block_k"] * WORD * 9.0
        operand = {"m": "a", "n": "b"}[axis]
        return {f"tiles_{axis}": tiles, f"held_{axis}": pixels / tiles, f"step_{operand}": each}

    return Part((f"block_{axis}", "block_k"), function)


def _stores(call: Call):
    """How outputs leave: a warp's lanes write columns of C side by side."""

    def function(v: Values) -> dict[str, np.ndarray]:
        size = call.e.bytes_c
        width = np.where(v["split_k"] > 1, call.e.bytes_acc * v["vector_c"] // size, v["vector_c"])
        lines = np.full(len(width), 1.0 if call.channels_last else 2.0)
        return {"stores": np.where(v["split_k"] > 1, call.e.bytes_acc, size) / (width * 32.0), "store_lines": lines}

    return function
