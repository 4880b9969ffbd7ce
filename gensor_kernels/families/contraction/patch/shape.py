"""Shape of a block of the patch family: outputs of a tile, pixels that they read, bytes (Patch in patch_tile.cuh)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sides import output_size

#: Bytes of channels that are adjacent; bytes of a fragment.
PLANE, FRAGMENT = 16, 32
#: Bytes of channels that filters are arranged by.
WORD = 4
#: Bytes that global memory moves at once.
SECTOR = 32
#: Pieces of the patch on their way to a thread.
COPIES = (1, 2, 3, 4, 6, 8)
#: Outputs of a row in a tile; 0: whole rows, or as many of a row as the tile has.
RUNS = (0, 8, 16)
#: Groups of the convolution whose filters are multiplied as one block-diagonal matrix; 0: none are.
MERGED, MERGES = "merged", (0, 2, 4, 8, 16)
#: Bytes of channels per step.
STEP_BYTES = (32, 64, 128)
#: Taps of the convolutions that cases are made of.
VERIFIED_TAPS = 9
#: Taps that may be compiled in, at most.
MOST_TAPS = 50
#: Pixels, at most, by which the largest patch that a Program is verified with exceeds the requested pixels.
SPARE_PIXELS = 260


@dataclass(frozen=True)
class Call:
    """A convolution as blocks see it; pairs are along h and w. ``channels`` are a group's channels."""

    out: tuple[int, int]
    window: tuple[int, int]
    step: tuple[int, int]
    dilation: tuple[int, int]
    channels: int
    size: int

    @property
    def taps(self) -> int:
        """Taps of a filter."""
        return self.window[0] * self.window[1]


def call_of(workload: Workload) -> Call:
    """Return the Call of a Workload."""
    z = workload.size
    return Call(
        out=(output_size(z, "h", False), output_size(z, "w", False)),
        window=(z["r"], z["s"]),
        step=(z["stride_h"], z["stride_w"]),
        dilation=(z["dilation_h"], z["dilation_w"]),
        channels=z["c"] // z["groups"],
        size=facts(workload.dtype["x"]).itemsize,
    )


@dataclass(frozen=True)
class Shape:
    """Tiles of ``tall`` x ``wide`` outputs, ``bands`` x ``runs`` of them, and the ``pixels`` that one reads; numbers or
    arrays."""

    tall: Numbers
    wide: Numbers
    bands: Numbers
    runs: Numbers
    pixels: Numbers


def shape(call: Call, block_n: Numbers, run: Numbers = 0) -> Shape:
    """Return the Shape of blocks of up to ``block_n`` outputs, ``run`` of a row."""
    tall, wide, bands, runs = tiles(call.out, block_n, run)
    extents = [
        (count - 1) * (step if taps > 1 else 1) + (taps - 1) * dilation + 1
        for count, taps, step, dilation in zip((tall, wide), call.window, call.step, call.dilation, strict=True)
    ]
    return Shape(tall, wide, bands, runs, extents[0] * extents[1])


def tiles(out: tuple[int, int], block_n: Numbers, run: Numbers = 0) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Rows and columns of a tile of an output of this height and width, and tiles along both; ``run`` as in RUNS."""
    wide = run + (run == 0) * np.minimum(out[1], block_n)
    tall = -(-out[0] // -(-out[0] // (block_n // wide)))
    return tall, wide, -(-out[0] // tall), -(-out[1] // wide)


def verified_window(taps: int) -> tuple[int, int]:
    """Rows and columns of the filters that Programs are verified with: 3 x 3, or as many taps as are compiled in."""
    rows = max((rows for rows in range(1, 8) if taps % rows == 0 and rows * rows <= taps), default=3)
    return rows, taps // rows if taps else 3


def sector_share(call: Call, run: Numbers) -> Numbers:
    """Return the bytes of the sectors of a row of a patch, over its own bytes: one sector more, as rows of ``run``
    outputs begin anywhere in one; long rows count as 1."""
    own = ((run - 1) * call.step[1] + (call.window[1] - 1) * call.dilation[1] + 1) * call.size
    return np.where(run > 0, 1.0 + SECTOR / np.maximum(own, 1), 1.0)


def verified_pixels(block_n: Numbers, taps: int, run: Numbers = 0) -> Numbers:
    """Pixels, at most, of the patches that Programs are verified with: rows of 13 to 16 outputs or of ``run``, two
    rows and one column apart, under taps in every other column of the image; or a run of block_n of them."""
    rows, columns = verified_window(taps)
    long = np.maximum((block_n // 13 * 2 + rows - 2) * (14 + 2 * columns), rows * (block_n + 2 * columns - 2))
    short = (block_n // np.maximum(run, 1) * 2 + rows - 2) * (run + 2 * columns - 2)
    return np.where(run > 0, short, long)


def stored_whole(call: Call, own: Shape, group: Numbers, run: Numbers = 0) -> Numbers:
    """Return whether ``group`` outputs that are stored together, bytes over bytes of one, are adjacent in C and never
    belong to two tiles."""
    runs = (own.wide % group == 0) & (call.out[1] % group == 0)
    bands = (own.runs == 1) & (own.tall * call.out[1] % group == 0)
    return runs | ((run == 0) & (bands | (own.bands * own.runs == 1)))


def filter_bytes(v: Mapping[str, Numbers], taps: int, size: int) -> Numbers:
    """Return the bytes of a step's filters: as they are copied, each a chunk further, and arranged."""
    return v["block_m"] * (2 * v["block_k"] * size * taps + PLANE)


def merges(workload: Workload) -> tuple[int, ...]:
    """Return the values of MERGED: divisors of the number of groups whose channels are a single step; words of four
    bytes of channels belong to one group."""
    call, groups = call_of(workload), workload.size["groups"]
    if call.channels * call.size % WORD:
        return (0,)
    most = max(STEP_BYTES) // max(call.channels * call.size, 1)
    return tuple(count for count in MERGES if groups % max(count, 1) == 0 and count <= most)


def channel_step(workload: Workload, taps: int) -> int:
    """Return the channels of a group of which verification takes multiples, where ``taps`` are compiled in (0: any
    number goes, one too): filters keep their alignment class, and words of channels belong to one group."""
    size = facts(workload.dtype["w"]).itemsize
    whole = workload.align["w"] // size
    return int(max(whole // math.gcd(whole, taps or 1), WORD // size))


def steps(call: Call, block_k: Numbers, split: Numbers, groups: Numbers = 1) -> Numbers:
    """Return the steps of a block, of the channels of so many ``groups``."""
    count = -(-call.channels * groups // block_k)
    return -(-count // split)


def slab_bytes(v: Mapping[str, Numbers]) -> Numbers:
    """Return the bytes of a warp's outputs on their way out: 16 rows of 4-byte words."""
    return v["warp_n"] * 64
