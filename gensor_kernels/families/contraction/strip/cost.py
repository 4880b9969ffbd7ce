"""Tabulated parts of contraction_strip: tiles, math, copies, fragments, stores (strip_*.cuh)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import reduction
from gensor_kernels.families.contraction.mma.family import default_warp_tiles
from gensor_kernels.families.contraction.mma.instructions import BARRIER, MMA_LATENCY, READ_LATENCY, instructions, kind
from gensor_kernels.families.contraction.patch.shape import stored_whole
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.banks import wavefronts
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Columns, Part, Values
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from . import column as strip
from .cases import verified_bytes
from .shape import EIGHT, ELEMENT, Call, call_of, filter_bytes, shape, sides

#: Instructions of a warp, of the SASS of three Programs: for a piece of a line, and to find its plane; counted in the
#: source: for 32 places of k of a filter, for 32 chunks of filters, for a step without fragments, for a tile.
PIECE_ISSUE, PLANE_ISSUE, FILTER_ISSUE, CHUNK_ISSUE, STEP_ISSUE, TILE_ISSUE = 29.0, 8.0, 6.0, 4.0, 1.0, 180.0
#: Filters that are on their way to a warp at once.
AT_ONCE = 16
#: Registers of 20 Programs without accumulators and fragments: the place of an output, and words that are read ahead;
#: the others.
WORD_REGISTERS = 0.45
OTHER_REGISTERS = 62.0


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_strip tabulates."""
    return (
        _bounds(workload, arch),
        _axis(workload, "m"),
        _axis(workload, "n"),
        _multiply(workload, arch),
        _lines(workload),
        _stores(workload),
    )


def _bounds(workload: Workload, arch: Arch) -> Part:
    """Tabulate blocks of a multiprocessor, and columns that are the same for every Program: sums are not split."""
    e = extents(workload)
    written, after = reduction(np.ones(1), e, arch)

    def function(v: Values) -> dict[Column, np.ndarray]:
        like = np.ones_like(v["min_blocks"], dtype=float)
        return {
            column.PROMISED: v["min_blocks"],
            column.RASTER_ROWS: like,
            column.SLABS: e.batch * like,
            column.WRITTEN: written[0] * like,
            column.AFTER: after[0] * like,
        }

    return Part(("min_blocks",), function)


def _axis(workload: Workload, axis: str) -> Part:
    """Return the warps along an axis of C, tiles of the grid: of outputs, or of filters."""
    call, e = call_of(workload), extents(workload)
    of_outputs = (axis == "m") == call.pixel_rows

    def function(v: Values) -> dict[Column, np.ndarray]:
        block, warp = v[f"block_{axis}"], v[f"warp_{axis}"]
        if of_outputs:
            own = shape(call, block)
            tiles = own.bands * own.runs * (max(1, call.images) if call.pixel_rows else 1)
        else:
            tiles = -(-max(1, call.filters) // block)
        return {
            strip.WARPS[axis]: np.maximum(block // warp, 1),
            column.TILES[axis]: tiles,
            column.HELD[axis]: (e.m if axis == "m" else e.n) / tiles,
        }

    return Part((f"block_{axis}", f"warp_{axis}"), function)


@lru_cache(maxsize=512)
def image_degree(across: int) -> int:
    """Return the wavefronts to read the words of 8 neighbouring outputs, ``across`` elements apart."""
    lane = np.arange(32)
    return wavefronts((lane // 4 * across + lane % 4 * 2) * ELEMENT, 4)


def _multiply(workload: Workload, arch: Arch) -> Part:
    """Return a warp's fragments of a step of 16 places."""
    call = call_of(workload)
    clocks = 16 * 4 / arch.rate(instructions(kind(workload) or "", arch)[0].rate)
    degree = image_degree(call.step[1] * call.unit)
    masked = min(2 / call.octets, 1.0)  # the first and the last octet of a segment
    moved = 2.0 / call.octets  # addresses of another line

    def function(v: Values) -> dict[Column, np.ndarray]:
        wide, filters = sides(v, call, "warp")
        outputs = v["warp_m"] * v["warp_n"]
        math = outputs * clocks
        words, taps = wide / 4.0, filters / 16.0
        return {
            column.MATH: math,
            column.MULTIPLIES: outputs / 128,
            column.STEP_ISSUE: words * (1 + masked) + wide / 8.0 * moved + taps + STEP_ISSUE,
            strip.STEP_CLOCKS: words * degree + taps * 4,
            column.CHAIN: np.maximum(MMA_LATENCY - math, 0) + READ_LATENCY + BARRIER / call.steps,
            column.OUTPUTS: outputs,
            column.BASE_REGISTERS: outputs / 32 + wide / 4 + filters / 4 + wide * WORD_REGISTERS + OTHER_REGISTERS,
        }

    return Part(("warp_m", "warp_n"), function)


def _lines(workload: Workload) -> Part:
    """Tabulate the lines of a tile, the filters that stay, and shared bytes, also of verification."""
    call, standing = call_of(workload), workload.with_epilogue(()).with_sizes(**dict.fromkeys(workload.size, 1))

    def function(v: Values) -> dict[Column, np.ndarray]:
        outputs, filters = sides(v, call)
        own = shape(call, outputs)
        moved = np.minimum(own.pitch, max(1, call.image[1]) * call.unit * ELEMENT)
        window = call.lines, call.octets, call.planes
        pairs = zip(v["block_m"].tolist(), v["block_n"].tolist(), strict=True)
        return {
            strip.PIECES: own.stage / call.access,
            strip.TILE_BYTES: own.lines * moved,
            strip.STAGE_BYTES: own.stage,
            strip.FILTERS: filter_bytes(call.steps, filters),
            strip.ARRANGE: filters * -(-call.lines * call.octets * EIGHT // 32),
            strip.CHUNKS: filter_bytes(call.steps, filters) / 16,
            strip.VERIFIED: np.array([verification_bytes(standing, *window, m, n) for m, n in pairs]),
        }

    return Part(("block_m", "block_n"), function)


@lru_cache(maxsize=4096)
def verification_bytes(standing: Workload, lines: int, octets: int, planes: int, block_m: int, block_n: int) -> int:
    """Shared bytes of the problems that blocks of this tile are verified on; ``standing`` for all sizes."""
    own = {"block_m": block_m, "block_n": block_n, "lines": lines, "octets": octets, "planes": planes}
    return verified_bytes(standing, Program("", tuple(own.items())))


def _stores(workload: Workload) -> Part:
    """Tabulate stores: lanes store the outputs they hold; outputs that are stored together belong to one tile."""
    e, call = extents(workload), call_of(workload)

    def function(v: Values) -> dict[Column, np.ndarray]:
        width = v["vector_c"]
        whole = whole_stores(v["warp_n"], width, e.bytes_c)
        if not call.pixel_rows:
            whole &= stored_whole(call, shape(call, v["block_n"]), width // e.bytes_c)  # type: ignore[arg-type]
        return {
            column.FITS_STORE: whole,
            column.STORES: e.bytes_c / (width * 32.0),
            # Four lanes of each of 8 rows; where outputs are stored one by one along a row, 8 lanes of each of 4.
            column.STORE_LINES: np.where((width == e.bytes_c) & (not call.pixel_rows), 4.0, 8.0),
        }

    return Part(("warp_n", "vector_c", "block_n"), function)


def copying(c: Columns, call: Call, warps: np.ndarray) -> np.ndarray:
    """Return the instructions of a warp for the lines of a tile."""
    each = PIECE_ISSUE + (PLANE_ISSUE if call.planes > 1 else 0.0)
    return np.ceil(c[strip.PIECES] / (warps * 32)) * each + TILE_ISSUE


def whole_stores(warp_n: np.ndarray, width: np.ndarray | int, size: int) -> np.ndarray:
    """Return whether a warp's row of outputs of ``size`` bytes is whole stores of ``width`` bytes by four lanes."""
    return warp_n * size % (4 * np.maximum(width, 2 * size)) == 0


def arranging(c: Columns, warps: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the clocks in which a block arranges its filters: rounds of loads, instructions."""
    share = c[strip.ARRANGE] / warps
    issue = (share * FILTER_ISSUE + c[strip.CHUNKS] / 32 / warps * CHUNK_ISSUE) * np.ceil(warps / 4)
    return np.maximum(issue, np.ceil(share / AT_ONCE) * arch.l2_latency)


def defaults(c: Columns, workload: Workload) -> dict[str, np.ndarray]:
    """Return the values of the default completion: see contraction_strip."""
    m, n, e, call = c["block_m"], c["block_n"], extents(workload), call_of(workload)
    like = np.ones_like(m)
    warp_m, warp_n = default_warp_tiles()[:, m // 16 - 1, n // 16 - 1]
    width = 0 * like + e.bytes_c
    for wide in (2, 4, 8, 16):
        group = max(wide // e.bytes_c, 1)
        whole = call.pixel_rows | stored_whole(call, shape(call, n), group)  # type: ignore[arg-type]
        whole = whole & whole_stores(warp_n, wide, e.bytes_c)
        width = np.where(whole, np.maximum(width, wide), width)
    return {"warp_m": warp_m, "warp_n": warp_n, "epilogue_fixed": 0 * like, "vector_c": width, "min_blocks": like}
