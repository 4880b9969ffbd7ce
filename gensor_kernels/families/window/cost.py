"""Terms of the window family: a block's instructions, its requests to L1, L2 and DRAM, and its end."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.contraction.cost import BLOCK_START, L2_USABLE, granted
from gensor_kernels.families.contraction.prologue import element_issue
from gensor_kernels.families.core.family import Facts, Points
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, promised_registers, residency

from .shape import TAPS, UNROLLED, Call, Tiles, grid, shared_bytes

F = np.float32
#: Instructions of a thread before its loop (which output is mine), counted in SASS of sm_87: three run-time divisions.
START_ISSUE = 130.0
#: Instructions of a thread that slides without its reads: per row of x, per step along it, per row of outputs in a
#: step; counted in the SASS of sm_87 for tiles of 4 and 8 rows.
SLIDE_ROW, SLIDE_STEP, SLIDE_TAPS = 12.0, 6.0, 3.0
SECTOR, LINE = 32.0, 128.0
RATES = {"float32": "fma_f32", "float64": "fma_f64", "int32": "imad"}


def terms(
    c: Points, t: Tiles, call: Call, arch: Arch, accumulator: str, wanted: np.ndarray, facts: Facts | None
) -> Terms:
    """Return the Terms of legal Programs; ``wanted`` registers before any limit.

    An iteration is a row of x where the window is fixed or threads slide, else UNROLLED positions of the window.
    """
    warps = (t.threads / 32).astype(F)
    limit = promised_registers(np.maximum(c["min_blocks"], 1) * warps, arch)
    used, spilling = granted(wanted, limit, facts, least=24.0)
    memory = shared_bytes(c, t, call).astype(F)
    residents = np.maximum(residency(warps, used.astype(F), memory, arch), 1.0)
    blocks = grid(t, call)
    iterations = np.where(t.fixed | t.sliding, t.rows, np.ceil(call.positions / c["split"] / UNROLLED))
    requested, unique = l2_bytes(c, t, call, arch, residents, memory)
    finish, busy, stores = _ending(c, t, call, warps)
    start = (START_ISSUE + copy_issue(t, call)) / iterations
    busy = warps * (1 / 4) * (finish + (20.0 * c["thread_h"] if call.kind == "average" else 0.0))
    # Blocks are many and short: all but the last round's stores overlap with loads of others.
    leaving = float(call.outputs) * call.bytes_y + call.extra
    last = np.minimum(residents * arch.sms / blocks, 1.0)
    values = {
        "blocks": blocks,
        "residents": residents,
        "warps": warps,
        "iterations": iterations,
        "math": t.multiplies * math_clocks(call, arch, accumulator) / iterations,
        "multiplies": t.multiplies / iterations,
        "issue": (issue(c, t, call) + prepare_issue(t, call) + spilling) / iterations + start,
        "wavefronts": (wavefronts(c, t, call) + spilling) * warps / iterations,
        "chain": np.full(len(warps), 40.0),
        "l2_bytes": requested / iterations,
        "dram_bytes": dram_bytes(t, call, arch, blocks, residents, unique) + leaving * (1.0 - last),
        "in_flight": np.ones(len(warps)),
        "exposed": np.full(len(warps), 0.1),
        "prologue": BLOCK_START + np.where(t.staged, arch.l2_latency * np.ceil(copies(t) / UNROLLED), 0.0),
        "epilogue": finish * 2.0 + 100.0,
        "epilogue_busy": np.maximum(busy, stores),
        "epilogue_bytes": leaving * last,
        "after": np.zeros(len(warps)),
        "registers": used,
        "shared_bytes": memory,
    }
    return Terms(**{name: np.asarray(value, dtype=F) for name, value in values.items()})


def _ending(c: Points, t: Tiles, call: Call, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (instructions with which a thread ends, clocks a block issues them, clocks its stores take)."""
    stores = np.ceil(t.outputs * call.bytes_y / np.minimum(c["vector_c"], t.channels * call.bytes_y))
    row = 40.0 if call.kind == "average" else 20.0
    finish = c["thread_h"] * row + stores * 8.0 + t.outputs * (2.0 + 2.0 * call.steps) + _meeting(c, t)
    return finish, warps * (1 / 4) * finish, warps * stores * np.maximum(c["vector_c"] / 4.0, 1.0)


def _meeting(c: Points, t: Tiles) -> np.ndarray:
    """Return the instructions with which a warp's parts of a window meet."""
    return np.where(c["split"] > 1, 30.0 + t.outputs * (2.0 + 2.0 * c["split"]), 0.0)


def math_clocks(call: Call, arch: Arch, accumulator: str) -> float:
    """Return the clocks a sub-core's pipe is busy with one of a warp's multiply-adds, additions or maxima."""
    if call.kind == "maximum" and accumulator == "float32":
        return 2.0  # FMNMX: 64 lanes per SM and clock
    return 128.0 / arch.rate(RATES[accumulator])


def copies(t: Tiles) -> np.ndarray:
    """Return the elements a thread copies into the staged tile, ragged last ones included."""
    columns = np.minimum(np.where(t.sliding, 32, t.staged_columns), t.plane_threads)
    rows = np.maximum(t.plane_threads // np.maximum(columns, 1), 1)
    return np.ceil(t.staged_columns / np.maximum(columns, 1)) * np.ceil(t.staged_rows / rows)


def copy_issue(t: Tiles, call: Call) -> np.ndarray:
    """Return the instructions with which a thread copies them."""
    each = 8.0 + (call.kind == "maximum")
    return np.where(t.staged, 40.0 + copies(t) * each, 0.0)


def prepare_issue(t: Tiles, call: Call) -> np.ndarray:
    """Instructions with which a thread prepares the elements it copies into a staged tile, or all that it loads."""
    each = element_issue(call.prologue, call.bytes_x) if call.prologue else 0.0
    return np.where(t.staged, copies(t), t.loads * t.channels) * each


def read_elements(c: Points, call: Call) -> np.ndarray:
    """Return the elements of one read of the staged tile, adjacent and aligned for every thread."""
    step = c["thread_w"] * call.wide.stride
    most = np.where(c["window"] > 0, 16, TAPS)
    return np.minimum(np.minimum(step & -step, 16 // call.bytes_x), most)


def issue(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the instructions of a thread's loop without its multiply-adds: loads, their addresses and predicates,
    conversions.

    Counted in the SASS of sm_87 for a dozen Programs of either layout.
    """
    words = np.maximum(c["vector_a"] / 4.0, 1.0)
    convert = 0.0 if call.bytes_x == call.word else 1.0
    fill = words if call.kind == "maximum" else 0.0
    address = 4.0 if call.channels_last else 1.0
    each = 2.5 + np.ceil(words / 2) + fill + t.channels * convert + np.where(t.fixed, address, 7.0)
    each = np.where(t.staged, convert + 1.0 / read_elements(c, call), each)
    taps = 1.2 + t.channels * convert + (3.0 if call.channels_last else 0.0)
    rolled = np.where(t.fixed, np.where(t.staged, 1.0, 5.0) * t.rows, 10.0 * call.positions / c["split"])
    return np.where(t.sliding, _slide(c, t, call, convert)[0], t.loads * each + t.taps * taps + rolled)


def _slide(c: Points, t: Tiles, call: Call, convert: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (instructions without multiply-adds, passes through shared memory) of a thread that slides along its rows
    of x.

    Of every row it reads the columns under its outputs, and TAPS more for as many columns of the window; these take a
    row of the filter for each row of outputs above them.
    """
    chunks, read = call.taps_pitch // TAPS, read_elements(c, call)
    reads = t.rows * (c["thread_w"] + chunks * TAPS) / read
    taps = c["thread_h"] * call.high.window * chunks
    moves = t.rows * (SLIDE_ROW + chunks * (SLIDE_STEP + c["thread_w"]))
    cells = reads * (1.0 + read * convert)
    loads = -(-TAPS * call.word // 16)
    # Quarter warps read 16 bytes each: lanes that are farther apart meet in banks.
    passes = np.maximum(32.0 * c["thread_w"] * call.bytes_x / LINE, 1.0)
    planes = np.maximum(32.0 / t.plane_threads, 1.0)
    return moves + cells + taps * (loads + SLIDE_TAPS), reads * passes + taps * loads * planes


def wavefronts(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the passes of a warp's loads through L1: a line of 128 bytes each, or their bytes where these are more.

    Staged rows are read in vectors that are a thread's columns apart.
    """
    if call.channels_last:
        segments = np.ceil(32.0 / np.minimum(t.lanes_c, 32))
        lines = segments * np.ceil(np.minimum(t.lanes_c, 32) * c["vector_a"] / LINE)
        taps = np.maximum(np.ceil(np.minimum(t.lanes_c, 32) * c["vector_a"] / LINE), 1.0)
        return t.loads * np.maximum(lines, 1.0) + t.taps * taps
    run = np.minimum(t.lanes_w, 32)
    step = np.where(c["split"] > 1, 1, c["thread_w"] * call.wide.stride) * call.bytes_x
    # A run of lanes begins anywhere in a line.
    lines = np.maximum(np.ceil(32.0 / run) * (run * step / LINE + 0.25), 1.0)
    read = read_elements(c, call)
    passes = np.maximum(32.0 * step / LINE, 1.0) * t.rows * np.ceil(t.columns / read)
    copied = np.minimum(np.where(t.sliding, 32, t.staged_columns), t.plane_threads)
    copying = copies(t) * (1.0 + np.ceil(32.0 / np.minimum(copied, 32)) * 1.25)
    staged = np.where(t.sliding, _slide(c, t, call, 0.0)[1], passes + t.taps)
    return np.where(t.staged, staged + copying, t.loads * lines + t.taps)


def l2_bytes(
    c: Points, t: Tiles, call: Call, arch: Arch, residents: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (bytes a block requests from L2, bytes of x under its tile).

    What threads of a block share is found in L1, unless the tiles on an SM are larger than that: then half of it is.
    """
    high, wide = call.high, call.wide
    reach_h, reach_w = (side.dilation * (side.window - 1) + 1 for side in (high, wide))
    rows = np.minimum((high.output / t.down - 1) * high.stride + reach_h, high.extent)
    columns = np.minimum((wide.output / t.across - 1) * wide.stride + reach_w, wide.extent)
    rows = np.minimum(rows, high.output / t.down * high.window)
    depth = call.planes / t.deep
    if call.channels_last:
        columns = np.minimum(columns, wide.output / t.across * wide.window)
        pixel = np.ceil(depth * call.bytes_x / SECTOR) * SECTOR
        unique = np.maximum(rows, 1) * np.maximum(columns, 1) * pixel
    else:
        line = np.minimum(columns * call.bytes_x + SECTOR, wide.extent * call.bytes_x + SECTOR / 2)
        unique = np.maximum(rows, 1) * line * depth
    filters = call.positions * depth * call.bytes_x if call.kind == "multiply" else 0.0
    asked = t.loads * t.threads * c["vector_a"]
    room = arch.smem_per_sm - residents * memory
    lost = np.clip(residents * (unique + filters) / np.maximum(room, 1.0) - 1.0, 0.0, 1.0) * 0.5
    lost = np.where(t.staged, 0.0, lost)
    return unique + filters + np.maximum(asked - unique, 0.0) * lost, unique


def dram_bytes(
    t: Tiles, call: Call, arch: Arch, blocks: np.ndarray, residents: np.ndarray, unique: np.ndarray
) -> np.ndarray:
    """Return the bytes of x and the filter from DRAM: everything under a window once, and again what neighbouring tiles
    share as far as the blocks between them do not leave it in L2."""
    high, wide = call.high, call.wide
    rows = min(high.extent, high.output * high.window)
    grain = 1.0 if call.channels_last else SECTOR / call.bytes_x
    columns = min(wide.extent, wide.output * max(wide.window, grain))
    whole = float(call.images) * call.channels * call.bytes_x * rows * columns
    filters = call.positions * call.channels * call.bytes_x if call.kind == "multiply" else 0.0
    # Tiles below each other are a row of tiles apart, or as many as run at once.
    between = t.across * (t.deep if call.channels_last else 1)
    apart = np.maximum(between, np.minimum(residents * arch.sms, blocks)) * unique
    lost = np.clip(apart / (arch.l2_mb * 2**20 * L2_USABLE) - 1.0, 0.0, 1.0)
    return whole + filters + np.maximum(blocks * unique - whole, 0.0) * lost
