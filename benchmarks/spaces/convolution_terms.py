"""A single-channel 2-D convolution on the CUDA cores as a `terms` function over our roofline: a foreign family.

The kernel (AutoTuningAssociation's benchmark hub, `convolution`, with its input in shared memory): a block of
block_size_x x block_size_y threads copies its part of a row-major float32 image, with a border of 7 on each side, into
shared memory, one float per thread and access, synchronises once, and computes tile_size_x x tile_size_y outputs per
thread over 15 x 15 taps that are fully unrolled. A thread's outputs are block_size_x (block_size_y) apart. Taps are
operands in constant memory. read_only loads the image by `ld.global.nc`. use_padding pads rows in shared memory until
thread rows begin on consecutive banks.

Basis of each term:

- One iteration is a whole block: its copy, its barrier and its multiply-adds.
- `math`, `multiplies`: one FFMA per tap and output; a tap from constant memory costs no instruction. Threads past the
  edge of the image also compute.
- `issue`, `wavefronts`: the compiler reads a value once per thread where several of its outputs need it: columns never
  coincide, since block_size_x is at least the filter's width, and rows do if block_size_y is below the filter's height.
  SASS of NVRTC 12.9 has exactly this number of reads in all 80 shapes of a thread's tile. A shared access takes the
  load/store units' clocks (accesses.py), bank conflicts counted among the lanes that they take at once.
- `chain`: waits of the copy, then waits for the other blocks.
  The compiler unrolls the copy of a row by 4, with a remainder loop that loads one float at a time; rows follow each
  other. A wait is a trip to the L2, or to DRAM for the share of the image that no block has read before.
  Blocks that copy leave the shared memory to blocks that compute, so the roofline's maximum over resources is too
  optimistic where neither clearly dominates. The blocks of an SM form a closed queueing network: a delay (the copy),
  and one resource that they share. Mean-value analysis gives its cycle exactly for any distribution of times if the
  resource is shared evenly (Reiser and Lavenberg, 1980).
- `registers`, spilled words: as NVRTC 12.9 allocates for the 80 shapes, with and without guards at the image's edge.
- `l2_bytes`: the block's part of the image. `dram_bytes`: image and result once: the L2 holds the rows that the next
  row of blocks reads again.

Facts of the part come from archs.toml and accesses.py. Nothing here is fitted to measured times.
"""

from __future__ import annotations

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import SUBCORES, Terms, residency

from .accesses import BANKS, BARRIER, EXPOSED, WORD, Columns, least_clocks, tabulate

#: Columns of a configuration, in the order of the measured spaces.
NAMES = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
#: Rows and columns of the result, and of the filter.
SIZE, FILTER = 4096, 15
BORDER, TAPS = FILTER - 1, FILTER * FILTER
#: Unrolled loads of a copied row.
UNROLLED = 4
#: Instructions of the copy per float and per row: addresses, guards, loop (SASS of NVRTC 12.9).
COPY_ISSUE, ROW_ISSUE = 6.0, 10.0
#: Clocks of a wait in addition to the memory's: address, guard and store to shared memory depend on each other.
COPY_LATENCY = 30.0
#: Registers of threads with one output, with up to 12, and with more.
REGISTERS = (28.0, 40.0, 56.0)
#: (block_size_y, tile_size_x, tile_size_y, guarded): registers and spilled words where NVRTC 12.9 deviates from these.
#: It interleaves the sums of outputs so that each shared value is used up soon; here it does not manage to.
UNUSUAL = {
    (1, 4, 4, True): (255, 0),
    (2, 4, 4, True): (162, 0),
    (4, 4, 4, False): (79, 0),
    (4, 4, 4, True): (255, 23),
    (8, 3, 4, True): (242, 0),
    (8, 4, 3, True): (254, 0),
    (8, 4, 4, False): (255, 67),
    (8, 4, 4, True): (255, 494),
    (16, 4, 4, False): (40, 0),
}
#: The most threads of a block.
MOST_THREADS = 1024


def refused(columns: Columns) -> np.ndarray:
    """Return which rows are not configurations; bool (n,)."""
    sizes = [columns[name] < 1 for name in NAMES[:4]]
    flags = [(columns[name] < 0) | (columns[name] > 1) for name in NAMES[4:]]
    threads = columns["block_size_x"] * columns["block_size_y"]
    return np.any([*sizes, *flags], axis=0) | (threads > MOST_THREADS)


def _pitch(c: Columns) -> np.ndarray:
    """Return the floats of a row in shared memory."""
    width, block = c["block_size_x"] * c["tile_size_x"] + BORDER, c["block_size_x"]
    padded = (c["use_padding"] == 1) & (block % BANKS != 0)
    return width + np.where(padded, (block - width) % BANKS, 0)


def _shared_bytes(c: Columns) -> np.ndarray:
    return (c["block_size_y"] * c["tile_size_y"] + BORDER) * _pitch(c) * WORD


def access_clocks(across: int, pitch: int, threads: int, lanes: int) -> tuple[float]:
    """Return the mean clocks of a warp's shared access: `across` threads side by side, the next ones `pitch` floats on.

    The load/store units take `lanes` threads of a warp at once, missing ones included; threads that want several words
    of one bank take longer.
    """
    thread = np.arange(threads)
    banks = (thread // across * pitch + thread % across) % BANKS
    # Threads of a block read different words.
    turns = [int(np.bincount(banks[start : start + lanes]).max()) for start in range(0, threads, lanes)]
    warps = -(-threads // 32)
    return ((sum(turns) + warps * 32 // lanes - len(turns)) / warps,)


def reads(c: Columns) -> np.ndarray:
    """Return the shared reads of a thread: distinct values of the image under its outputs' filters."""
    rows = FILTER + (c["tile_size_y"] - 1) * np.minimum(c["block_size_y"], FILTER)
    columns = FILTER + (c["tile_size_x"] - 1) * np.minimum(c["block_size_x"], FILTER)
    return (rows * columns).astype(np.float64)


def waits(tile: np.ndarray) -> np.ndarray:
    """Return how often a warp waits for memory per copied row, by tile_size_x.

    The first BORDER threads of a row load one float more than the others and share a warp with some of them, so that
    the warp takes the longer of both remainder loops, and of both unrolled loops.
    """
    more, less = tile + 1, tile
    remainder = np.maximum(more % UNROLLED, less % UNROLLED)
    return remainder + np.maximum(more // UNROLLED, less // UNROLLED)


def _compiled(c: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return (registers per thread, spilled words)."""
    outputs = c["tile_size_x"] * c["tile_size_y"]
    usual = np.select([outputs == 1, outputs <= 12], REGISTERS[:2], REGISTERS[2])
    guarded = (SIZE % (c["block_size_x"] * c["tile_size_x"]) != 0) | (
        SIZE % (c["block_size_y"] * c["tile_size_y"]) != 0
    )
    shape = np.stack([c["block_size_y"], c["tile_size_x"], c["tile_size_y"], guarded], axis=1)
    spilled = np.zeros(len(outputs))
    for (rows, x, y, guard), (registers, words) in UNUSUAL.items():
        same = (shape == (rows, x, y, guard)).all(axis=1)
        usual, spilled = np.where(same, registers, usual), np.where(same, words, spilled)
    return usual, spilled


def cycle(blocks: np.ndarray, busy: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return the mean clocks of a cycle of each of `blocks` blocks that need a shared resource for `busy` clocks and
    spend `away` clocks elsewhere; (n,) each. Mean-value analysis of a closed queueing network."""
    found, queue = busy + away, np.zeros(len(busy))
    for count in range(1, int(blocks.max(initial=0)) + 1):
        response = busy * (1 + queue)
        queue = count * response / (response + away)
        found = np.where(blocks == count, response + away, found)
    return found


def _chain(copying: np.ndarray, own: np.ndarray, busy: np.ndarray, residents: np.ndarray) -> np.ndarray:
    """Return the clocks of a block that its own math does not overlap.

    `copying`: clocks of the copy, `own`: of its math; `busy`: clocks for which it keeps the busiest resource busy.
    """
    return cycle(residents, busy, copying + np.maximum(own - busy, 0.0)) - own


def terms(columns: Columns, arch: Arch) -> Terms:
    """Return the terms of configurations (integer arrays by NAMES) on a part; see machine.roofline.Terms."""
    c = columns
    across, down = c["block_size_x"] * c["tile_size_x"], c["block_size_y"] * c["tile_size_y"]
    threads, outputs = c["block_size_x"] * c["block_size_y"], (c["tile_size_x"] * c["tile_size_y"]).astype(np.float64)
    warps = np.ceil(threads / 32)
    blocks = np.ceil(SIZE / across) * np.ceil(SIZE / down)
    registers, spilled = _compiled(c)
    shared_bytes = _shared_bytes(c)
    residents = np.maximum(residency(warps, registers, shared_bytes, arch), 1.0)

    lanes = np.full(len(threads), 32 // least_clocks(arch))
    access = tabulate(access_clocks, c["block_size_x"], _pitch(c), threads, lanes)[0]
    rows = np.ceil((down + BORDER) / c["block_size_y"])  # copied by a thread
    loads = rows * (c["tile_size_x"] + 1.0)
    accesses = reads(c) + 2 * loads + 2 * spilled
    issue = accesses + COPY_ISSUE * loads + ROW_ISSUE * rows
    multiplies = TAPS * outputs
    math = multiplies * (32 * SUBCORES / arch.rate("fma_f32"))
    shared_clk = warps * accesses * access

    l2_bytes = (down + BORDER) * (across + BORDER) * 4.0
    image = (SIZE + BORDER) ** 2 * 4.0
    new = np.minimum(image / blocks / l2_bytes, 1.0)
    latency = new * (arch.dram_latency - arch.l2_latency) + arch.l2_latency
    copying = rows * waits(c["tile_size_x"]) * (latency + COPY_LATENCY) + 2 * BARRIER
    pipe = np.maximum(math, multiplies + issue)
    busy = np.maximum(shared_clk, warps / SUBCORES * pipe)
    spilled_bytes = spilled * threads * 4.0
    values = {
        "blocks": blocks,
        "residents": residents,
        "warps": warps,
        "iterations": 1.0,
        "math": math,
        "multiplies": multiplies,
        "issue": issue,
        "wavefronts": shared_clk * (arch.smem_bytes_per_clk / 128),
        "chain": _chain(copying, np.ceil(warps / SUBCORES) * pipe, busy, residents),
        "l2_bytes": l2_bytes + 2 * spilled_bytes,
        "dram_bytes": image + SIZE * SIZE * 4.0,
        "in_flight": 1.0,
        "exposed": EXPOSED,
        "prologue": 0.0,
        "epilogue": outputs * 4.0 + 200.0,
        "epilogue_busy": outputs * warps,
        "epilogue_bytes": 0.0,
        "after": 0.0,
        "registers": registers,
        "shared_bytes": shared_bytes,
    }
    like = np.ones(len(threads), dtype=np.float32)
    return Terms(**{name: np.asarray(value, dtype=np.float32) * like for name, value in values.items()})
