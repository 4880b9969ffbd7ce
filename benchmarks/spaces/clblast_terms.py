"""CLBlast's Xgemm kernel as a `terms` function over our roofline: a foreign family, with nothing fitted to one GPU.

The kernel (CLBlast, src/kernels/level3/xgemm_part*.opencl, GEMMK = 0): a work group of MDIMC x NDIMC threads computes
MWG x NWG of C, KWG steps of k at a time.  A is k-major and contiguous along M, B k-major and contiguous along N.
With SA (SB) the group copies its part of A (B) into shared memory between two barriers, MDIMA (NDIMB) threads side by
side; without, every thread reads what it multiplies through the L1.  VWM (VWN) are the words of one access; STRM
(STRN) spreads a thread's outputs instead of keeping them side by side.  The k loop is unrolled by KWI.

Basis of each term:

- `math`, `multiplies`: one FFMA per output and k; the Arch has the rate.
- `issue`: the loads and stores as below, two integer instructions per global access (a 64-bit address whose stride is
  a kernel argument), the loop's own.
- `wavefronts`: shared accesses by enumerating the 32 lanes over 32 banks.  Lanes of an 8- or 16-byte read that want
  the same words are served together when neighbours do.  A global access costs one tag look-up per 128-byte line, and
  its words return to the registers of all 32 lanes, also where many lanes want one word: a shared read broadcasts
  before, a global one after the L1's data path.  The load/store units bound the rate of every access.
- `chain`: staged, one trip to the L2 per KWG between two barriers.  Not staged, one per group of k steps the compiler
  unrolls, to DRAM: every group begins with rows of A and B that no block has touched yet.
- `l2_bytes`: the group's parts of A and B once per step (the L1 serves the rest), and spilled words: the L1 writes
  through.
  A spilled word comes or goes SPILL_TOUCHES times per k step: 2.4 in SASS of NVRTC 12.9, and the compiler of the
  timings kept worse order.
- `registers`: one per output, fragments, addresses; or the words on their way into shared memory if these are more.
  Coefficients as NVRTC 12.9 allocates for 640 configurations of this kernel on sm_75 and sm_86.

Facts of the part come from archs.toml, except WIDE_LOAD_STORE. Nothing here is fitted to one GPU: the same numbers
serve all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import SUBCORES, Terms, residency

from .accesses import BARRIER, EXPOSED, SHARED_LATENCY, WORD, Columns, least_clocks, lines, shared_clocks, tabulate

#: Columns of a configuration, in the order of the measured spaces.
NAMES = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN", "STRM", "STRN", "SA", "SB")
#: M = N = K of the measured spaces.
SIZE = 4096
#: Integer instructions per global access.
ADDRESS_ISSUE = 2.0
#: The loop's own instructions: fully unrolled, and per group of KWI steps.
UNROLLED_ISSUE, GROUP_ISSUE = 20.0, 6.0
#: Multiply-adds up to which the compiler unrolls a whole KWG, by operands that are staged.
UNROLLED = (256, 1024, 2048)
#: Registers of a thread in addition to sums and fragments, and to sums and words under way.
BASE_REGISTERS, COPY_REGISTERS = 30.0, 18.0
LEAST_REGISTERS = 40.0
#: How often a spilled word comes or goes per k step.
SPILL_TOUCHES = 4.0


@dataclass(frozen=True)
class Operand:
    """Accesses of one operand, float64 arrays over configurations.

    outputs: a thread's outputs along its axis. reads: accesses of a warp per k; read_clocks, read_lines: wavefronts and
    128-byte lines of one access of read_words words. copies, stores: accesses of a thread per KWG on the way into
    shared memory, with copy_lines, copy_words and store_clocks. staged: 1 or 0. words_under_way: words of a thread
    between global and shared memory.
    """

    staged: np.ndarray
    outputs: np.ndarray
    reads: np.ndarray
    read_words: np.ndarray
    read_clocks: np.ndarray
    read_lines: np.ndarray
    copies: np.ndarray
    copy_words: np.ndarray
    copy_lines: np.ndarray
    stores: np.ndarray
    store_clocks: np.ndarray
    words_under_way: np.ndarray


def read_costs(width: int, apart: int, words: int) -> tuple[float, float]:
    """Return (wavefronts, lines) of reading a fragment whose lanes are `apart` words from each other.

    `width` > 0: lanes 0 to width - 1 are adjacent, and the next lanes repeat them. `width` < 0: groups of that many
    lanes read the same words, and the next group the following words.
    """
    lane = np.arange(32)
    place = lane % width if width > 0 else lane // -width
    addresses = place * (apart * WORD)
    return float(shared_clocks(addresses, words)), float(lines(addresses, words))


def copy_costs(side: int, apart: int, row: int, words: int) -> tuple[float, float]:
    """Return (wavefronts, lines) of a copy: `side` lanes `apart` words from each other, the next `row` words on."""
    lane = np.arange(32)
    addresses = (lane // side) * (row * WORD) + (lane % side) * (apart * WORD)
    return float(shared_clocks(addresses, words)), float(lines(addresses, words))


def _operand(c: Columns, name: str) -> Operand:
    """Return the accesses of A (lanes along M are neighbours) or B (they repeat)."""
    m = name == "A"
    block, across, copiers, width = (c[x] for x in (("MWG", "MDIMC", "MDIMA", "VWM") if m else _B_NAMES))
    staged, strided = c["SA" if m else "SB"], c["STRM" if m else "STRN"]
    threads = c["MDIMC"] * c["NDIMC"]
    outputs, per_copier = block // across, block // copiers
    rows = c["KWG"] * copiers // threads
    global_words = np.minimum(width, 4)
    joined = (strided == 0) & (staged == 1)
    read_words = np.where(joined & _aligned(c, m), np.minimum(outputs & -outputs, 4), global_words)
    store_words = np.where(joined, np.minimum(per_copier & -per_copier, 4), global_words)
    apart = np.where(strided == 1, width, outputs)
    lanes = c["MDIMC"] if m else -c["MDIMC"]
    read_clocks, read_lines = tabulate(read_costs, lanes, apart, read_words)
    between = np.where(strided == 1, width, per_copier)
    copy_lines = tabulate(copy_costs, copiers, between, rows * SIZE, global_words)[1]
    store_clocks = tabulate(copy_costs, copiers, between, rows * block, store_words)[0]
    words = per_copier * rows * staged
    return Operand(
        staged=staged.astype(np.float64),
        outputs=outputs.astype(np.float64),
        reads=outputs / read_words,
        read_words=read_words.astype(np.float64),
        read_clocks=read_clocks,
        read_lines=read_lines,
        copies=words / global_words,
        copy_words=global_words.astype(np.float64),
        copy_lines=copy_lines,
        stores=words / store_words,
        store_clocks=store_clocks,
        words_under_way=words.astype(np.float64),
    )


_B_NAMES = ("NWG", "NDIMC", "NDIMB", "VWN")


def _aligned(c: Columns, m: bool) -> np.ndarray:
    """Return where the compiler joins single-word shared reads: an array after one of vectors inherits its alignment.

    This concerns only B, whose array follows A's, of VWM words.
    """
    if m:
        return np.zeros(len(c["SA"]), dtype=bool)
    return (c["SA"] == 1) & (c["VWM"] > 1) & (c["VWN"] == 1)


def _registers(c: Columns, a: Operand, b: Operand, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """Return (registers per thread, words spilled)."""
    sums = a.outputs * b.outputs
    multiplying = sums + BASE_REGISTERS + (a.outputs + b.outputs) * 0.5
    copying = sums + COPY_REGISTERS + a.words_under_way + b.words_under_way
    wanted = np.maximum(np.maximum(multiplying, copying), LEAST_REGISTERS)
    limit = np.minimum(arch.regs_per_sm / (c["MDIMC"] * c["NDIMC"]) // 8 * 8, arch.regs_per_thread)
    # Words on their way can go in several turns; sums and fragments cannot.
    return np.minimum(wanted, limit), np.maximum(multiplying - limit, 0.0)


def _wavefronts(operand: Operand, steps: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the 128-byte wavefronts of a warp per KWG for one operand, at the Arch's bytes per clock."""
    least = least_clocks(arch) * arch.smem_bytes_per_clk / 128
    direct = np.maximum(np.maximum(operand.read_clocks, operand.read_lines), operand.read_words)
    read = np.maximum(np.where(operand.staged == 1, operand.read_clocks, direct), least)
    copy = np.maximum(np.maximum(operand.copy_lines, operand.copy_words), least)
    store = np.maximum(operand.store_clocks, least)
    return operand.reads * steps * read + operand.copies * copy + operand.stores * store


def _dram_bytes(c: Columns, residents: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the DRAM traffic.

    Groups run M first: B is read once, A again for each set of columns resident at a time (the L2 holds neither).
    """
    down, across = SIZE / c["MWG"], SIZE / c["NWG"]
    columns = np.maximum(np.ceil(np.minimum(down * across, residents * arch.sms) / down), 1.0)
    return SIZE * SIZE * 4.0 * (np.maximum(across / columns, 1.0) + 1.0)


def _instructions(c: Columns, a: Operand, b: Operand, unrolled: np.ndarray) -> np.ndarray:
    """Return the instructions of a warp per KWG, without multiply-adds and spills."""
    steps = c["KWG"]
    direct = ((1 - a.staged) * a.reads + (1 - b.staged) * b.reads) * steps
    copies = a.copies + b.copies
    accesses = (a.reads + b.reads) * steps + copies + a.stores + b.stores
    loop = np.where(unrolled, UNROLLED_ISSUE, steps / c["KWI"] * GROUP_ISSUE)
    return accesses + ADDRESS_ISSUE * (direct + copies) + loop


def _chain(c: Columns, staged: np.ndarray, unrolled: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the clocks per KWG that a warp waits for data; `staged` counts operands."""
    groups = c["KWG"] / c["KWI"]
    # An unrolled loop keeps about four groups of loads under way.
    waits = np.where(unrolled, np.minimum(groups, 4.0), groups)
    copying = np.where(staged > 0, arch.l2_latency + 2 * BARRIER, 0.0)
    return copying + waits * np.where(staged == 2, SHARED_LATENCY, arch.dram_latency)


def refused(columns: Columns) -> np.ndarray:
    """Return which rows are not configurations: blocks without threads, or threads without an output; bool (n,)."""
    sizes = [columns[name] < 1 for name in NAMES if name not in ("STRM", "STRN", "SA", "SB")]
    return np.any(sizes, axis=0) | (columns["MWG"] < columns["MDIMC"]) | (columns["NWG"] < columns["NDIMC"])


def terms(columns: Columns, arch: Arch) -> Terms:
    """Return the terms of configurations (integer arrays by NAMES) on a part; see machine.roofline.Terms."""
    c = columns
    a, b = _operand(c, "A"), _operand(c, "B")
    steps = c["KWG"].astype(np.float64)
    warps, staged = c["MDIMC"] * c["NDIMC"] / 32, a.staged + b.staged
    sums = a.outputs * b.outputs
    registers, spilled = _registers(c, a, b, arch)
    spills = spilled * steps * SPILL_TOUCHES
    shared_bytes = 4.0 * steps * (a.staged * c["MWG"] + b.staged * c["NWG"])
    residents = np.maximum(residency(warps, registers, shared_bytes, arch), 1.0)
    unrolled = sums * steps <= np.take(UNROLLED, staged.astype(np.int64))
    values = {
        "blocks": (SIZE / c["MWG"]) * (SIZE / c["NWG"]),
        "residents": residents,
        "warps": warps,
        "iterations": SIZE / steps,
        "math": sums * steps * (32 * SUBCORES / arch.rate("fma_f32")),
        "multiplies": sums * steps,
        "issue": _instructions(c, a, b, unrolled) + spills,
        "wavefronts": (_wavefronts(a, steps, arch) + _wavefronts(b, steps, arch) + spills) * warps,
        "chain": _chain(c, staged, unrolled, arch),
        # Half of the spilled traffic are stores.
        "l2_bytes": (c["MWG"] + c["NWG"]) * steps * 4.0 + spills * 0.5 * 128.0 * warps,
        "dram_bytes": _dram_bytes(c, residents, arch),
        "in_flight": 1.0,
        "exposed": EXPOSED,
        "prologue": 150.0,
        "epilogue": sums * 4.0 + 200.0,
        "epilogue_busy": sums * warps,
        # C is read and written.
        "epilogue_bytes": 8.0 * SIZE * SIZE,
        "after": 0.0,
        "registers": registers,
        "shared_bytes": shared_bytes,
    }
    like = np.ones(len(steps), dtype=np.float32)
    return Terms(**{name: np.asarray(value, dtype=np.float32) * like for name, value in values.items()})
