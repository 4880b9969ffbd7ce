"""Terms of window_groups: a block's instructions, its requests to L1, L2 and DRAM, and its end."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.contraction.cost import BLOCK_START, L2_USABLE, granted
from gensor_kernels.families.core.family import Facts, Points
from gensor_kernels.families.window.cost import LINE, RATES, SECTOR
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, promised_registers, residency

from .shape import Call, Tiles, grid, registers, shared_bytes, store_width, tiles

F = np.float32
#: Instructions of a thread before its loop: which output is mine, six run-time divisions.
START_ISSUE = 220.0
#: Instructions of a warp per 32 elements of filters that it copies, and per tile of filters.
COPY_ISSUE, TILE_ISSUE = 12.0, 50.0


def terms(c: Points, call: Call, arch: Arch, accumulator: str, facts: Facts | None) -> Terms:
    """Return the Terms of legal Programs.

    An iteration is a line of x. All rows of a thread but the last end during the loop of others.
    """
    t = tiles(c, call)
    warps = (t.threads / 32).astype(F)
    limit = promised_registers(np.maximum(c["min_blocks"], 1) * warps, arch)
    used, spilling = granted(registers(c, t, call), limit, facts, least=24.0)
    memory = shared_bytes(t, call).astype(F)
    residents = np.maximum(residency(warps, used.astype(F), memory, arch), 1.0)
    blocks = grid(t, call)
    rows = c["thread_h"]
    iterations = (rows * t.lines).astype(F)
    multiplies = rows * t.outputs * float(call.depth)
    copied, elements = _copies(c, t, call, warps)
    requested, unique = _l2_bytes(c, t, call, arch, residents, memory)
    finish, stores = _ending(c, t, call)
    # Blocks are many and short: all but the last round's stores overlap with loads of others.
    leaving = float(call.outputs) * call.bytes_y + call.extra
    last = np.minimum(residents * arch.sms / blocks, 1.0)
    values = {
        "blocks": blocks,
        "residents": residents,
        "warps": warps,
        "iterations": iterations,
        "math": multiplies * (128.0 / arch.rate(RATES[accumulator])) / iterations,
        "multiplies": multiplies / iterations,
        "issue": (rows * (_issue(c, t, call) + spilling) + (rows - 1) * finish + START_ISSUE + copied) / iterations,
        "wavefronts": (rows * (_wavefronts(c, t, call) + spilling) * warps + 2.0 * elements) / iterations,
        "chain": np.full(len(warps), 40.0),
        "l2_bytes": requested / iterations,
        "dram_bytes": _dram_bytes(t, call, arch, blocks, residents, unique) + leaving * (1.0 - last),
        "in_flight": np.ones(len(warps)),
        "exposed": np.full(len(warps), 0.1),
        # Filters are waited for, four loads of a warp at a time.
        "prologue": BLOCK_START + arch.l2_latency * np.ceil(elements / warps / 4.0),
        "epilogue": finish * 2.0 + 100.0,
        "epilogue_busy": np.maximum(warps * (1 / 4) * finish, warps * stores * np.maximum(c["vector_c"] / 4.0, 1.0)),
        "epilogue_bytes": leaving * last,
        "after": np.zeros(len(warps)),
        "registers": used,
        "shared_bytes": memory,
    }
    return Terms(**{name: np.asarray(value, dtype=F) for name, value in values.items()})


def _copies(c: Points, t: Tiles, call: Call, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (instructions with which a warp copies filters, accesses with which the block stores them)."""
    own = np.ceil(t.lanes / warps)
    each = np.ceil(call.depth * c["thread_c"] / 32.0)
    return own * (TILE_ISSUE + each * COPY_ISSUE), t.lanes * each


def _ending(c: Points, t: Tiles, call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Return (instructions with which a thread ends a row, its stores)."""
    stores = t.outputs / store_width(c, call)
    return 20.0 + stores * 8.0 + t.outputs * (2.0 + 2.0 * call.steps), stores


def _issue(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the instructions of a thread's loop without its multiply-adds: loads, their addresses and predicates,
    conversions, reads of filters.

    Counted in the SASS of sm_87 for a dozen Programs of either layout.
    """
    words = np.maximum(c["vector_a"] / 4.0, 1.0)
    convert = 0.0 if call.bytes_x == call.word else 1.0
    # Elements of less than a register are masked and merged.
    load = 4.0 + np.ceil(words / 2) + np.where(c["vector_a"] < 4, 2.0, 0.0)
    return t.loads * (load + t.channels * convert) + t.taps * 1.1 + t.lines * 42.0


def _wavefronts(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the passes of a warp's loads and reads through L1 and shared memory: a line of 128 bytes each, or their
    bytes where these are more."""
    across = np.maximum(c["block_w"] // c["thread_w"], 1)
    lanes = np.minimum(t.lanes, 32)
    if call.channels_last:
        # Tiles of one group read the same channels; those of neighbouring groups are adjacent.
        run = np.maximum(lanes / t.per_group, 1.0) * c["vector_a"]
        # Where a group has more channels than one load, loads of neighbouring groups are a group apart.
        apart = np.minimum(np.maximum(lanes / t.per_group, 1.0) * call.channels * call.bytes_x / LINE, 32.0)
        lines = np.ceil(32.0 / lanes) * np.maximum(np.maximum(np.ceil(run / LINE), apart), 1.0)
        tiles_read = lanes.astype(float)
    else:
        run = np.minimum(across, 32)
        step = c["thread_w"] * call.wide.stride * call.bytes_x
        # A run of lanes begins anywhere in a line.
        lines = np.ceil(32.0 / run) * (run * step / LINE + 0.25)
        tiles_read = np.ceil(32.0 / t.pixels)
    passes = np.maximum(tiles_read * t.read * call.word / LINE, 1.0)
    return t.loads * np.maximum(lines, 1.0) + t.taps * passes


def _l2_bytes(
    c: Points, t: Tiles, call: Call, arch: Arch, residents: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (bytes a block requests from L2, bytes of x under its tile).

    What threads of a block share, and channels that one load leaves of a sector, is found in L1, unless the tiles on
    an SM are larger than that: then half of it is.
    """
    high, wide = call.high, call.wide
    reach_h, reach_w = (side.dilation * (side.window - 1) + 1 for side in (high, wide))
    rows = np.minimum((high.output / t.down - 1) * high.stride + reach_h, high.extent)
    rows = np.maximum(np.minimum(rows, high.output / t.down * high.window), 1.0)
    columns = np.minimum((wide.output / t.across - 1) * wide.stride + reach_w, wide.extent)
    # Groups under the tiles of a block, whole ones: a block that has a part of a group reads all its channels.
    groups = np.minimum(np.maximum(np.ceil(t.lanes / t.per_group), 1.0), call.groups)
    if call.channels_last:
        columns = np.minimum(columns, wide.output / t.across * wide.window)
        pixel = np.ceil(groups * call.channels * call.bytes_x / SECTOR) * SECTOR
        unique = rows * np.maximum(columns, 1.0) * pixel
    else:
        line = np.minimum(columns * call.bytes_x + SECTOR, wide.extent * call.bytes_x + SECTOR / 2)
        unique = rows * line * groups * call.channels
    filters = t.lanes * c["thread_c"] * float(call.depth) * call.bytes_x
    asked = c["thread_h"] * t.loads * t.threads * c["vector_a"]
    room = arch.smem_per_sm - residents * memory
    lost = np.clip(residents * unique / np.maximum(room, 1.0) - 1.0, 0.0, 1.0) * 0.5
    return unique + filters + np.maximum(asked - unique, 0.0) * lost, unique


def _dram_bytes(
    t: Tiles, call: Call, arch: Arch, blocks: np.ndarray, residents: np.ndarray, unique: np.ndarray
) -> np.ndarray:
    """Return the bytes of x and the filters from DRAM: everything under a window once, and again what neighbouring
    tiles share as far as the blocks between them do not leave it in L2."""
    high, wide = call.high, call.wide
    rows = min(high.extent, high.output * high.window)
    grain = 1.0 if call.channels_last else SECTOR / call.bytes_x
    columns = min(wide.extent, wide.output * max(wide.window, grain))
    whole = float(call.images) * call.groups * call.channels * call.bytes_x * rows * columns
    filters = float(call.groups) * call.filters * call.depth * call.bytes_x
    apart = np.maximum(t.across * t.deep, np.minimum(residents * arch.sms, blocks)) * unique
    lost = np.clip(apart / (arch.l2_mb * 2**20 * L2_USABLE) - 1.0, 0.0, 1.0)
    return whole + filters + np.maximum(blocks * unique - whole, 0.0) * lost
