"""The terms of a gemv Program: a stream of weights, x, sums that meet at the end."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.contraction.complex import RATES
from gensor_kernels.families.contraction.cost import BLOCK_START, L2_USABLE, granted, reduction
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.prologue import element_issue, vector_words
from gensor_kernels.families.core.family import Columns, Facts
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import HIDDEN_US, Terms, promised_registers, residency
from gensor_kernels.operators.types.workload import Workload

from .shape import EARLY, Shape, of_form, shape

#: Registers of addresses, predicates and counters.
BASE_REGISTERS = 23.0
#: Clocks of a barrier, and of a read of shared memory.
BARRIER, SHARED_READ = 30.0, 30.0
SECTOR, LINE = 32.0, 128.0
#: Share of what overlaps the stream of weights that is not hidden: as of other loops of ordinary loads. With twice this
#: share, the mean error of four Programs on an H100 would be 19 %, not 24 %, but products of CUDA
#: cores, which were not timed next to these, would seem faster.
EXPOSED = 0.1
#: Instructions of a thread for a fetch into the L2.
FETCH_ISSUE = 5.0


def registers(c: Columns, e: Extents, s: Shape) -> np.ndarray:
    """Return the registers a thread wants: sums, loads under way, operands of the current multiply-adds; fitted to 96
    Programs of every type (NVRTC 12.9: median error 9 registers)."""
    words = e.bytes_acc / 4
    sums = c["small"] * s.entries * words
    loads = c["rows"] * c["items"] * np.maximum(c["vector"] * e.bytes_a / 4, 1.0)
    run = np.where(c["form"] % 2 == 1, np.minimum(c["items"], max(1, 16 // e.bytes_acc)), c["vector"]) * words
    pieces = np.where(c["x_shared"] == 1, s.x_loads, c["small"] * c["items"] * c["vector"] / s.x_elements)
    x = pieces * (np.maximum(s.x_elements * e.bytes_a / 4, 1.0) + 1.5)
    if e.prologue:
        x = x + pieces * vector_words(e.prologue.vectors, s.x_elements) + 4.0 * len(e.prologue.vectors)
    return (BASE_REGISTERS + 1.25 * sums + 0.4 * loads + 3.0 * run + x).astype(np.float32)


def _multiplies(c: Columns, e: Extents) -> np.ndarray:
    """Multiply-adds of a warp's step, four real ones of a complex one."""
    return c["small"] * c["rows"] * c["items"] * c["vector"] * (4.0 if e.is_complex else 1.0)


def _issue(c: Columns, e: Extents, s: Shape) -> np.ndarray:
    """Return the instructions of a warp's step without its multiply-adds."""
    by_columns, shared = c["form"] % 2 == 1, c["x_shared"] == 1
    convert = 0.0 if e.bytes_a == e.bytes_acc else 1.2
    words = max(1, 16 // e.bytes_acc)
    loads = c["rows"] * c["items"]
    weights = loads * (3.0 + convert * c["vector"])
    run = np.where(by_columns, c["items"], c["vector"])
    reads = c["small"] * np.where(by_columns, 1, c["items"]) * np.maximum(run / words, 1.0)
    stage = s.x_loads * (12.0 + s.x_elements * (convert + 1.0 / np.minimum(s.x_elements, words)))
    if e.prologue:
        stage = stage + s.x_loads * (
            s.x_elements * element_issue(e.prologue, e.element) + len(e.prologue.vectors) * (3.0 + s.x_elements)
        )
    pieces = c["small"] * c["items"] * (c["vector"] / s.x_elements)
    direct = pieces * (3.0 + convert * s.x_elements)
    return 12.0 + weights + np.where(shared, reads + stage + 6.0, direct)


def _lines(c: Columns, e: Extents, s: Shape) -> np.ndarray:
    """128-byte lines of L1 and shared memory that a block touches in one step."""
    by_columns, shared = c["form"] % 2 == 1, c["x_shared"] == 1
    side = np.minimum(np.where(by_columns, c["threads_l"], c["threads_k"]), 32.0)
    touched = (32.0 / side) * np.maximum(side * c["vector"] * e.bytes_a / LINE, 1.0)
    words = max(1, 16 // e.bytes_acc)
    run = np.where(by_columns, c["items"], c["vector"])
    piece = np.minimum(run, words)
    # Lanes of one output read words side by side; lanes of other outputs read the same words.
    reads = c["small"] * np.where(by_columns, 1, c["items"]) * (run / piece)
    distinct = np.minimum(np.where(by_columns, 32.0 / side, side), 32.0)
    read = reads * np.maximum(distinct * piece * e.bytes_acc / LINE, 1.0)
    stage = s.x_loads * (np.maximum(32 * s.x_elements * e.bytes_a / LINE, 1) + 32 * s.x_elements * e.bytes_acc / LINE)
    pieces = c["small"] * c["items"] * (c["vector"] / s.x_elements)
    direct = pieces * np.maximum(touched, 1.0)
    return (c["rows"] * c["items"] * touched + np.where(shared, read + stage, direct)) * (s.threads / 32.0)


def _bytes(c: Columns, e: Extents, s: Shape, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """Return (L2 bytes of a block and step, DRAM bytes in all)."""
    by_columns = c["form"] % 2 == 1
    unit = of_form(c, e.unit["b"] != "s", e.unit["a"] != "s")
    side = np.where(by_columns, c["threads_l"], c["threads_k"]).astype(np.float64)
    adjacent = np.where(unit, side * c["vector"] * e.bytes_a, float(e.bytes_a))
    # Whole sectors are moved.
    wasted = np.maximum(SECTOR / adjacent, 1.0)
    k = e.k / (s.split * s.steps)
    wide, small = of_form(c, e.n, e.m) / s.tiles_long, of_form(c, e.m, e.n) / s.tiles_small
    # Without shared memory every warp that needs x requests it: hits in L1 do not count.
    readers = np.where(c["x_shared"] == 1, 1.0, np.where(c["threads_k"] >= 32, c["threads_l"], s.threads / 32.0))
    l2 = (wide * wasted + small * readers) * k * e.bytes_a
    weights = of_form(c, e.whole_b, e.whole_a) * e.batch
    x = of_form(c, e.whole_a, e.whole_b) * e.batch
    # Blocks that share columns of A's rows run side by side; rows of B come again after all of it.
    again = np.where(c["form"] >= 2, 0.0, s.tiles_small - 1.0)
    lost = np.clip(1.0 - arch.l2_mb * 2**20 * L2_USABLE / np.maximum(weights / e.batch, 1.0), 0.0, 1.0)
    return l2, weights * (1.0 + again * lost) + x


def _meeting(c: Columns, e: Extents, s: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return (clocks after the last step, clocks of them in which the SM is busy): lanes meet, then parts, then the
    epilogue."""
    by_columns, words = c["form"] % 2 == 1, e.bytes_acc / 4
    count, lanes = c["small"] * s.entries, np.minimum(c["threads_k"], 32)
    moved, levels = np.zeros(len(count)), np.where(by_columns, 0.0, np.log2(lanes))
    for level in range(5):
        halved = np.where(count % 2 == 0, count // 2, count)
        taken = (level < levels).astype(np.float64)
        moved += taken * halved
        count = np.where(taken > 0, halved, count)
    groups = c["small"] * s.long / (s.rounds * s.c_width)
    turns = np.ceil(groups / s.threads)
    each = s.parts * 10.0 + s.c_width * (2.0 + 2.0 * e.steps) + 60.0
    wait = 30.0 * levels + 4.0 * moved * words + s.rounds * (2 * BARRIER + SHARED_READ + turns * each)
    warps = s.threads / 32.0
    stores = np.ceil(groups / 32.0) * s.rounds * (s.parts * s.c_width + s.c_width * (2.0 + 2.0 * e.steps) + 20.0)
    busy = warps * (5.0 * moved * words + count * 2.0 * words) / 4.0 + stores / 4.0
    return wait, busy


def terms(columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
    """See machine.roofline.Terms.  An iteration is a step of k."""
    c, e = columns, extents(workload)
    s = shape(c, e)
    warps = s.threads / 32.0
    limit = promised_registers(np.maximum(c["min_blocks"], 1) * warps, arch)
    used, spilled = granted(registers(c, e, s), limit, facts)
    single = [np.asarray(x, dtype=np.float32) for x in (warps, used, s.memory)]
    residents = np.maximum(residency(single[0], single[1], single[2], arch), 1.0)
    multiplies, issue = _multiplies(c, e), _issue(c, e, s) + spilled
    if facts is not None:
        issue = np.where(np.isnan(facts.issue), issue, np.maximum(facts.issue - multiplies, 0.0))
    l2_bytes, dram_bytes = _bytes(c, e, s, arch)
    wait, busy = _meeting(c, e, s)
    written, after = reduction(c["split_k"], e, arch)
    early = c[EARLY]
    like = np.ones(len(warps))
    values: dict[str, np.ndarray] = {
        "blocks": s.tiles_small * s.tiles_long * s.split * e.batch, "residents": residents, "warps": warps,
        "iterations": s.steps, "math": multiplies * (128.0 / arch.rate(RATES[workload.accumulator])),
        "multiplies": multiplies, "issue": issue, "wavefronts": _lines(c, e, s) + spilled * warps,
        "chain": 40.0 + np.where(c["x_shared"] == 1, BARRIER + SHARED_READ, 0.0),
        "l2_bytes": l2_bytes, "dram_bytes": dram_bytes, "in_flight": like, "exposed": EXPOSED * like,
        "prologue": BLOCK_START + FETCH_ISSUE * early * c["rows"] * c["items"],
        "epilogue": wait, "epilogue_busy": busy, "epilogue_bytes": written,
        "after": after - early * HIDDEN_US, "registers": used, "shared_bytes": s.memory,
        "stalls": 0.0 * like if facts is None else np.nan_to_num(facts.stalls),
    }  # fmt: skip
    return Terms(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})
