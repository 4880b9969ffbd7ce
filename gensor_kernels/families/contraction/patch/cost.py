"""Tabulated parts of contraction_patch: tiles, math, copies, fragments, stores (patch_*.cuh)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import split_parts
from gensor_kernels.families.contraction.mma.family import default_warp_tiles
from gensor_kernels.families.contraction.mma.instructions import BARRIER, MMA_LATENCY, READ_LATENCY, instructions, kind
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.banks import wavefronts
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Columns, Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import SM_L2_BYTES
from gensor_kernels.operators.types.workload import Workload

from . import column as patch
from . import shape as shapes
from .shape import MERGED, SPARE_PIXELS, call_of, filter_bytes, sector_share, shape, slab_bytes, verified_pixels

#: Pieces of a patch that a block may have on their way.
MOST_PIECES = 2048
#: Instructions of a thread, of the SASS of six Programs: for an element of the patch, for a piece that is found again
#: in every step, for a piece of the filters, and for a step without copies.
ELEMENT_ISSUE, FOUND_ISSUE, FILTER_ISSUE, STEP_ISSUE = 5.8, 46.0, 27.0, 85.0
#: The same of a tap without fragments; of four bytes of channels that are arranged, where their taps are compiled in
#: and where they are not, and then of a channel in a group of taps.
TAP_ISSUE, KNOWN_ISSUE, FOUR_ISSUE, GROUP_ISSUE = 14.0, 18.0, 34.0, 16.5
#: The same of a word of channels where groups are merged: finding its group, zeros under the taps of other groups.
GROUP_OF_WORD_ISSUE, ZERO_ISSUE = 33.0, 1.3
#: Registers without accumulators, fragments and elements on their way.
OTHER_REGISTERS = 56.0


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_patch tabulates."""
    e = extents(workload)
    return (
        *split_parts(e, arch),
        Part(("split_k", MERGED), lambda v: {column.SLABS: v["split_k"] * e.batch / np.maximum(v[MERGED], 1)}),
        _filters(e.m),
        _outputs(workload),
        _steps(workload),
        _multiply(workload, arch),
        _copies(workload),
        _memory(workload),
        _arranging(workload),
        _stores(workload),
    )


def _filters(extent: int) -> Part:
    """Return the warps along the filters, tiles of the grid."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        rows = extent * np.maximum(v[MERGED], 1)
        tiles = -(-rows // v["block_m"])
        return {
            column.DOWN: np.maximum(v["block_m"] // v["warp_m"], 1),
            column.TILES["m"]: tiles,
            column.HELD["m"]: rows / tiles,
        }

    return Part(("block_m", "warp_m", MERGED), function)


def _outputs(workload: Workload) -> Part:
    """Return the warps along the outputs, tiles of the grid."""
    call = call_of(workload)

    def function(v: Values) -> dict[Column, np.ndarray]:
        own = shape(call, v["block_n"], v["run"])
        tiles = own.bands * own.runs
        return {
            column.ACROSS: np.maximum(v["block_n"] // v["warp_n"], 1),
            column.TILES["n"]: tiles,
            column.HELD["n"]: call.out[0] * call.out[1] / tiles,
        }

    return Part(("block_n", "warp_n", "run"), function)


def _steps(workload: Workload) -> Part:
    """Tabulate steps; iterations are taps, and the taps of a step of channels share its copies."""
    call, e = call_of(workload), extents(workload)

    def function(v: Values) -> dict[Column, np.ndarray]:
        groups = np.maximum(v[MERGED], 1)
        count = shapes.steps(call, v["block_k"], v["split_k"], groups)
        own = shape(call, v["block_n"], v["run"])
        held = call.out[0] * call.out[1] / (own.bands * own.runs)
        return {
            column.ITERATIONS: count * call.taps,
            patch.BLOCK_STEPS: count,
            column.STEP["a"]: np.where(groups > 1, call.channels, v["block_k"]) * e.bytes_a,
            column.STEP["b"]: v["block_k"] * e.bytes_b * own.pixels / held / call.taps * sector_share(call, v["run"]),
        }

    return Part(("block_k", "split_k", "block_n", "run", MERGED), function)


@lru_cache(maxsize=512)
def image_degree(step: int) -> int:
    """Return the wavefronts to read 16 bytes of each of 8 neighbouring outputs."""
    return wavefronts(np.arange(8) * step * shapes.PLANE, shapes.PLANE)


def _multiply(workload: Workload, arch: Arch) -> Part:
    """Return a warp's fragments under one tap."""
    call = call_of(workload)
    choice = instructions(kind(workload) or "", arch)[0]
    clocks = 32 / call.size * 4 / arch.rate(choice.rate)
    step = call.step[1] if call.window[1] > 1 else 1
    degree = image_degree(step)

    def function(v: Values) -> dict[Column, np.ndarray]:
        fragments = v["block_k"] * call.size / shapes.FRAGMENT
        outputs = v["warp_m"] * v["warp_n"]
        filters, image = v["warp_m"] / 16 * fragments, v["warp_n"] / 16 * fragments
        math = outputs * fragments * clocks
        return {
            column.MATH: math,
            column.MULTIPLIES: outputs * fragments / 128,
            patch.TAP_ISSUE: filters + image * 2.0 + TAP_ISSUE,
            patch.TAP_CLOCKS: (filters + image * degree) * 4,
            column.CHAIN: np.maximum(fragments * MMA_LATENCY - math, 0)
            + READ_LATENCY * fragments
            + 2 * BARRIER / call.taps,
            column.OUTPUTS: outputs,
            column.BASE_REGISTERS: outputs / 32 + v["warp_n"] / 4 + v["warp_n"] / 16 + OTHER_REGISTERS,
        }

    return Part(("warp_m", "warp_n", "block_k"), function)


def _copies(workload: Workload) -> Part:
    """Pieces of a step: of the patch, which pass through registers, and of the filters."""
    call = call_of(workload)
    elements = shapes.PLANE // call.size

    def function(v: Values) -> dict[Column, np.ndarray]:
        pieces = v["block_k"] * call.size / shapes.PLANE * shape(call, v["block_n"], v["run"]).pixels
        along = np.where(v[MERGED] > 0, call.channels, v["block_k"]) * call.size * call.taps
        filters = v["block_m"] * along / v["vector_a"]
        lines = v["vector_a"] / 4 + 32 * v["vector_a"] / along
        return {
            patch.PATCH_PIECES: pieces,
            patch.FILTER_PIECES: filters,
            patch.FOURS: v["block_m"] * v["block_k"] * call.size / 4,
            # A copy takes the load/store pipe for itself, its words, and the lines it is scattered over.
            patch.COPY_CLOCKS: (pieces * (elements * 2 + 4) + filters * (lines + v["vector_a"] / 4 + 1) * 0.5) / 32,
            patch.COPY_BYTES: v["block_m"] * along + pieces * shapes.PLANE,
        }

    return Part(("block_m", "block_n", "block_k", "vector_a", "run", MERGED), function)


def _memory(workload: Workload) -> Part:
    """Tabulate shared bytes of the filters and of an image's stage, and of the problems of verification."""
    call = call_of(workload)

    def function(v: Values) -> dict[Column, np.ndarray]:
        deep = v["block_k"] * call.size
        own = filter_bytes(v, call.taps, call.size)
        tried = np.where(v["taps"] > 0, own, filter_bytes(v, 9, call.size))
        known, any_taps = (verified_pixels(v["block_n"], taps, v["run"]) for taps in (call.taps, 0))
        return {
            patch.FILTERS: own,
            patch.STAGE: deep * shape(call, v["block_n"], v["run"]).pixels,
            patch.VERIFIED: tried + 2 * deep * np.where(v["taps"] > 0, known, any_taps),
            patch.STRIDED: tried + deep * SPARE_PIXELS,
        }

    return Part(("block_m", "block_n", "block_k", "taps", "run"), function)


def _stores(workload: Workload) -> Part:
    """Tabulate stores: outputs leave through slabs; outputs that are stored together belong to one tile."""
    e, call = extents(workload), call_of(workload)

    def function(v: Values) -> dict[Column, np.ndarray]:
        split = v["split_k"] > 1
        own = shape(call, v["block_n"], v["run"])
        size, width = np.where(split, e.bytes_acc, e.bytes_c), np.where(split, 16, v["vector_c"])
        row = v["warp_n"] * size
        return {
            column.FITS_STORE: shapes.stored_whole(call, own, width // size, v["run"]) & (row % width == 0),
            column.STORES: size / (width * 32.0),
            column.STORE_LINES: np.maximum(width / 4, width * 32.0 / row),
            column.SLAB: slab_bytes(v),
            column.STAGING_CLOCKS: v["warp_n"] * (16 * 4 * 2 / 128),
        }

    return Part(("warp_n", "vector_c", "split_k", "block_n", "run"), function)


def _arranging(workload: Workload) -> Part:
    """Return the instructions of a warp, and wavefronts, to arrange 32 words of four bytes of channels for each tap."""
    call = call_of(workload)
    words, each = 4 // call.size, call.taps * (2 + 4 // call.size)
    groups = -(-call.taps * call.size // 4)

    def function(v: Values) -> dict[Column, np.ndarray]:
        constant, merged = v["taps"] > 0, v[MERGED] > 0
        issue = np.where(constant, KNOWN_ISSUE + each, FOUR_ISSUE + groups * words * GROUP_ISSUE)
        clocks = np.where(constant, 2 * call.taps, (groups + 1) * words + call.taps)
        # A warp's words are of several groups: it goes both ways.
        return {
            patch.ARRANGE_ISSUE: issue + merged * (GROUP_OF_WORD_ISSUE + ZERO_ISSUE * call.taps),
            patch.ARRANGE_CLOCKS: clocks + merged * call.taps,
        }

    return Part(("taps", MERGED), function)


def start(copy_bytes: np.ndarray, issue: np.ndarray, warps: np.ndarray) -> np.ndarray:
    """Return the clocks in which a block's first step arrives, before it has other work."""
    return np.maximum(copy_bytes / SM_L2_BYTES, issue * warps / 4)


def copying(c: Columns, workload: Workload, warps: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Return the instructions of a warp for the copies of a step; a thread's ``late`` pieces of the patch come last.

    The others are found once per block.
    """
    element = shapes.PLANE / call_of(workload).size * ELEMENT_ISSUE
    pieces = c["copies"] * (element + FOUND_ISSUE / c[patch.BLOCK_STEPS]) + np.ceil(late) * (FOUND_ISSUE + element)
    return pieces + np.ceil(c[patch.FILTER_PIECES] / (warps * 32)) * FILTER_ISSUE + STEP_ISSUE


def defaults(c: Columns, workload: Workload) -> dict[str, np.ndarray]:
    """Return the values of the default completion: see contraction_patch."""
    m, n, e, call = c["block_m"], c["block_n"], extents(workload), call_of(workload)
    like = np.ones_like(m)
    warp_m, warp_n = default_warp_tiles()[:, m // 16 - 1, n // 16 - 1]
    threads = np.maximum(m // warp_m * (n // warp_n), 1) * 32
    own = shape(call, n, c["run"])
    pieces = c["block_k"] * call.size // shapes.PLANE * own.pixels
    most = np.minimum(MOST_PIECES // threads, 2 * call.size)
    width = 0 * like + e.bytes_c
    for wide in (2, 4, 8, 16):
        width = np.where(
            shapes.stored_whole(call, own, max(wide // e.bytes_c, 1), c["run"]), np.maximum(width, wide), width
        )
    return {
        "vector_a": 16 * like,
        "warp_m": warp_m,
        "warp_n": warp_n,
        "taps": like * call.taps * (call.taps <= shapes.MOST_TAPS),
        "copies": np.clip(-(-pieces // threads), 1, most),
        "epilogue_fixed": 0 * like,
        "vector_c": width,
        "min_blocks": 1 + 0 * like,  # left alone, the compiler aims at several, and may spill for them
    }
