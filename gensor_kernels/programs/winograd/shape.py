"""Shape of winograd Programs: tiles, threads, loads, shared bytes, and legality.

Arithmetic on a few coordinates, of integers or arrays of them; it mirrors the header of winograd.cu.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.contraction.problem import Extents, extents

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

ROWS = (8, 16, 32, 48, 64, 96, 128)
COLUMNS = (32, 64, 96, 128)
STEPS = (4, 8, 16)
THREAD_ROWS, THREAD_COLUMNS, HELD = (2, 4, 8, 16), (4, 8, 16), (1, 2, 4)
COMPONENTS, WORD = 16, 4
#: Accumulators, unrolled multiply-adds of a step, and words of a step's loads of one thread.
MOST_SUMS, MOST_MULTIPLIES, MOST_LOADED = 128, 1024, 64
#: Coordinates that shape tiles and threads.
SHAPE = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "held", "prepared")


@dataclass(frozen=True)
class Call:
    """A Workload as this family sees it: ``e`` counts pixels of all images as one axis and channels as k;
    ``positions`` are 2 x 2 outputs, ``across`` counts 2 x 2 outputs beside each other; ``even``: images of y have an
    even width."""

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
    image, filters = (of_rows, of_columns) if call.channels_last else (of_columns, of_rows)
    pad, own = 32 // np.minimum(v["block_k"], 8), 1 - v["prepared"]
    # Rows of prepared filters need no padding.
    padded = (by_rows, by_columns * own) if call.channels_last else (by_rows * own, by_columns)
    words = COMPONENTS * v["block_k"] * (v["block_m"] + v["block_n"] + (padded[0] + padded[1]) * pad)
    rows = np.minimum(v["thread_m"], np.maximum(16 // (v["thread_n"] * v["held"]), 1))
    return {
        "lanes": lanes,
        "threads": threads,
        "image_pairs": image,
        "filter_pairs": filters * own,
        "copies": 4 * v["block_k"] * filters_of(v, call) / threads * v["prepared"],
        "tile": words * WORD,
        "slab": 2 * COMPONENTS * rows * down * slab_row(v) * WORD,
        "rounds": v["thread_m"] // rows,
    }


def filters_of(v: Mapping[str, Any], call: Call) -> Any:
    """Filters of a block."""
    return v["block_n" if call.channels_last else "block_m"]


def prepared_filters(v: Mapping[str, Any], call: Call) -> Any:
    """Filters that a first launch transforms, whole blocks of them."""
    return -(-call.filters // filters_of(v, call)) * filters_of(v, call)


def fits(v: Mapping[str, Any], s: Mapping[str, Any], call: Call) -> Any:
    """Apply the rules at the top of winograd.cu, except the limits of an Arch and of the stages."""
    sums = v["held"] * v["thread_m"] * v["thread_n"]
    ok = (v["block_m"] % v["thread_m"] == 0) & (v["block_n"] % v["thread_n"] == 0)
    ok &= (v["thread_n"] * v["held"] <= 16) & (sums <= MOST_SUMS) & (sums * v["block_k"] <= MOST_MULTIPLIES)
    ok &= (s["lanes"] % 16 == 0) & (s["threads"] % 32 == 0) & (s["threads"] <= 1024)
    ok &= (v["block_k"] > 4) | (v["block_m"] % 16 == 0)
    lines = np.maximum(filters_of(v, call) // 4 * v["block_k"], 1)
    pace = np.maximum(s["threads"] // lines, 1)
    ok &= (v["prepared"] == 0) | ((s["threads"] % lines == 0) & (COMPONENTS % pace == 0))
    return ok & (16 * s["image_pairs"] + 9 * s["filter_pairs"] <= MOST_LOADED)
