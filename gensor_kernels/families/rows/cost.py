"""The terms of a rows Program: passes over x, instructions per element, lanes that join, a split's second launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.contraction.cost import BLOCK_START, L2_USABLE
from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Columns, Facts, Points
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, SUBCORES, Terms, promised_registers, ramp_us, residency

from .shape import COPY, TWO_FORMS, View

#: Instructions of a maximum that keeps NaN, and of an exponential: of 16-bit results (``exp_of_element``), others and
#: doubles.
COMPARE, EXP = 1.0, {2: 2.0, 4: 6.0, 8: 24.0}
#: Instructions per element without exponentials: of the one-pass fold, of the first and the second of two passes, of
#: the map; further ones of the one-pass fold per step, and those that finish a row. Counted, like the numbers below, in
#: machine code of sm_90.
COSTS: Mapping[str, tuple[float, float, float, float, float, float]] = {
    "copy": (0, 0, 0, 0, 0, 20),
    "sum": (1, 0, 0, 0, 0, 5),
    "mean": (1, 0, 0, 0, 0, 15),
    "max": (COMPARE + 1, 0, 0, 0, 0, 5),
    "min": (COMPARE + 1, 0, 0, 0, 0, 5),
    "prod": (2, 0, 0, 0, 0, 5),
    "argmax": (9, 0, 0, 0, 0, 5),
    "argmin": (9, 0, 0, 0, 0, 5),
    "l2_norm": (3, 0, 0, 0, 0, 25),
    "var": (5, 1, 4, 0, 35, 35),
    "logsumexp": (COMPARE + 2, COMPARE, 2, 0, 12, 20),
    "softmax": (COMPARE + 2, COMPARE, 2, 2, 12, 10),
    "log_softmax": (COMPARE + 2, COMPARE, 2, 2, 12, 20),
    "layernorm": (5, 1, 4, 2, 35, 40),
    "rmsnorm": (3, 0, 0, 1, 0, 25),
    "cumsum": (1, 0, 0, 2, 0, 5),
    "cumprod": (2, 0, 0, 2, 0, 5),
}
#: Maps whose second pass leaves its terms in registers, and operations on exponentials.
HOLDING, EXPONENTIALS = ("softmax", "layernorm"), ("softmax", "log_softmax", "logsumexp")
#: Instructions of a thread without those of its elements: in all, and of a further pass over global or shared memory.
START, PASS, SHARED_PASS = 75.0, 40.0, 15.0
#: The same of an access to global memory: along k, or with a stride.
ACCESS, COLUMN_ACCESS = 7.0, 16.0
#: The same of staged rows: those of a row without its elements, and of an element in the one-pass fold.
STAGED_COSTS: Mapping[str, tuple[float, float]] = {
    **{"sum": (13, 1), "mean": (27, 1), "prod": (13, 1), "max": (17, 1), "min": (17, 1), "argmax": (15, 5.5)},
    **{"argmin": (15, 5.5), "l2_norm": (28, 1.75), "var": (38, 8.5), "logsumexp": (46, COMPARE + 2)},
    **{"softmax": (20, COMPARE + 2), "log_softmax": (30, COMPARE + 2), "layernorm": (54, 8.5), "rmsnorm": (45, 1.75)},
}
#: The same of an access of shared memory, by whether the row stays in registers, of an element's store there, of a step
#: and of a pass; of four vectors that are copied to shared memory, of one from there, and of all of a block's to C.
STAGED_ACCESS, STAGED_STORE, STAGED_STEP, STAGED_PASS = (2.75, 4.25), 4.0, 3.5, 10.0
COPIES, COPY_OUT, START_OUT = 40.0, 10.0, 70.0
#: Clocks until a load of shared memory can be used, a barrier included, and until a word of another lane can.
SHARED_LATENCY, EXCHANGED, SHUFFLED = 35.0, 80.0, 30.0
#: Instructions that join two states: of one word, of a value with an index, of exponentials and of moments.
JOIN, JOIN_INDEX, JOIN_EXPONENTIALS, JOIN_MOMENTS = 2.0, 10.0, 24.0, 30.0
#: The same of a fold whose states pass through shared memory.
SCRATCH = 15.0
#: Clocks in which a lone warp issues an instruction: the sum of the stall counts of compiled paths over their length.
STALL = 1.75
#: Share of the work of other resources than the busiest that is seen. The family's 26 times on an H100 are 1.04 times
#: their predictions (1.06 with 0.05, 0.99 with 0.2), and nine of softmax and layer norm of 4096 x 4096 in float16
#: within 6 % of them. Any share from 0.05 to 0.2 predicts the fastest of these first.
EXPOSED = 0.1
#: Registers of addresses, predicates and counters.
BASE_REGISTERS = 26.0
#: Values that pass through the epilogue at once (rows_finish.cuh).
AT_ONCE = 16


class Shape(NamedTuple):
    """Numbers that follow from tiles alone, float64 arrays."""

    threads: np.ndarray
    elements: np.ndarray
    held: np.ndarray
    step: np.ndarray
    parts: np.ndarray
    steps: np.ndarray
    tiles: np.ndarray
    staged: np.ndarray


def shape(c: Points, e: View) -> Shape:
    """Threads, elements per access, per thread and per step, parts of k, steps of a part, tiles of rows."""
    lanes, rows, vector, items = (c[n].astype(np.float64) for n in ("threads_k", "threads_m", "vector", "items"))
    step = lanes * items * (1 if e.by_columns else vector)
    every = np.ceil(e.k / step)
    split = every if e.form == COPY else c["split_k"].astype(np.float64)
    steps = np.maximum(np.ceil(every / split), 1.0)
    staged = c["staged"].astype(np.float64) if e.staged and "staged" in c else np.zeros_like(rows)
    block = rows * np.maximum(staged, 1.0)
    tiles = np.ceil(e.columns / (rows * vector)) * e.lines if e.by_columns else np.ceil(e.lines / block)
    return Shape(lanes * rows, vector, vector * items, step, split, steps, tiles, staged)


def scratch_bytes(c: Points, e: View, s: Shape) -> np.ndarray:
    """Shared bytes of the states that threads exchange (scratch_bytes in rows_source.cuh)."""
    if e.by_columns:
        states = np.where(c["threads_k"] > 1, s.threads * s.elements, 0)
    else:
        states = np.where(c["threads_k"] > 32, s.threads / 32, 0)
    if e.scans:
        states = states * (2 if e.by_columns else 2 * c["items"])
    total = np.zeros_like(states)
    for online in (0, 1):
        for words in e.words(bool(online)):
            total += np.where(c["online"] == online, np.ceil(states * words * e.bytes_acc / 16) * 16, 0)
    return total


def shared_bytes(c: Points, e: View, s: Shape, k: Numbers | None = None) -> np.ndarray:
    """Return the dynamic shared bytes of a block, of rows of ``k`` elements in place of the View's."""
    k = e.k if k is None else k
    kept = np.ceil(k / s.step) * c["items"] * s.threads * s.elements * e.bytes_a
    # The first row begins anywhere in 16 bytes (rows_staged.cuh).
    staged = np.where(s.staged > 0, s.threads * s.staged * k * e.bytes_a + 16, 0)
    return scratch_bytes(c, e, s) + np.where(c["keep"] == 2, kept, staged)


def registers(c: Columns, e: View, s: Shape) -> np.ndarray:
    """Return the registers a thread wants: the step's elements, raw, or converted where they are needed twice; states;
    values in the epilogue."""
    words = e.bytes_acc / 4
    held, raw = s.held * words, s.held * e.bytes_a / 4
    folded = (c["online"] == 1) & (e.rows.operation in TWO_FORMS)
    # A row that stays in registers is held with the terms of its one-pass fold, or of the epilogue.
    beside = np.where(folded, 0.4, 0.2) * held
    wanted = np.where((c["keep"] == 1) | e.scans, held + beside, np.where(folded, 1.2 * held, raw))
    if e.by_columns:
        wanted = np.maximum(wanted, 0.7 * held)
    states = (s.elements if e.by_columns else 1) * np.where(_two_passes(c, e), 1, e.words(True)[0]) * words
    store = np.minimum(s.held, AT_ONCE) * words * 1.5 * ((c["epilogue_fixed"] == 0) | (e.steps > 0)) * e.maps
    prefixes = 2.0 * (s.elements if e.by_columns else c["items"]) * words * e.scans
    return (BASE_REGISTERS + np.maximum(wanted, raw + store) + states + prefixes).astype(np.float32)


class Work(NamedTuple):
    """Instructions of a warp over a whole part of k, passes, and instructions of a warp that maps a split's part."""

    multiplies: np.ndarray
    issue: np.ndarray
    passes: np.ndarray
    mapping: np.ndarray


def _two_passes(c: Columns, e: View) -> np.ndarray:
    return (c["online"] == 0) & (e.rows.operation in TWO_FORMS)


def _folds(c: Columns, e: View) -> np.ndarray:
    """Return the passes that fold a row: of a scan, that of the first launch of a split."""
    return (c["split_k"] > 1) * 1.0 if e.scans else (e.form != COPY) * (1.0 + _two_passes(c, e))


def _through(c: Columns, e: View) -> np.ndarray:
    """Return the times that elements are read: once where a row stays in registers."""
    return np.where(c["keep"] == 1, 1.0, _folds(c, e) + e.maps)


def _exchange(c: Columns, e: View, s: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return a thread's instructions that exchange states in a step of a scan, and the clocks until it has them."""
    lanes, word = np.log2(c["threads_k"]), e.bytes_acc / 4
    if not e.scans:
        return 0.0 * lanes, 0.0 * lanes
    if e.by_columns:
        rounds = (lanes > 0) * (lanes + 1.0)
        return rounds * (4.0 * s.elements + SCRATCH), rounds * EXCHANGED
    near, far = np.minimum(lanes, 5.0), np.maximum(lanes - 5.0, 0.0)
    instructions = c["items"] * ((near + 2.0 * far) * (word + JOIN) + 4.0 * (far > 0)) + SCRATCH * (far > 0)
    return instructions, (near + far) * SHUFFLED + (far > 0) * EXCHANGED


def _joins(c: Columns, e: View) -> np.ndarray:
    """Return the instructions that join two states of the first fold."""
    if e.rows.operation in ("argmax", "argmin"):
        return np.full(len(c["online"]), JOIN_INDEX)
    carried = JOIN_EXPONENTIALS if e.rows.operation in EXPONENTIALS else JOIN_MOMENTS
    return np.where((c["online"] == 1) & (e.rows.operation in TWO_FORMS), carried, JOIN)


def _work(c: Columns, e: View, s: Shape) -> Work:
    """Return the instructions per thread over all passes of a part, and passes that read x from global memory: without
    the second launch of a split, whose instructions are apart."""
    online, first, second, mapping, extra, finish = COSTS[e.rows.operation]
    exponential = EXP[8 if e.bytes_acc == 8 else e.bytes_c] if e.rows.operation in EXPONENTIALS else 0.0
    two = _two_passes(c, e)
    split = (c["split_k"] > 1) & (e.form != COPY)
    folds = _folds(c, e)
    maps = np.where(split, 0.0, float(e.maps))
    staged, rows, kept = s.staged > 0, np.maximum(s.staged, 1.0), c["keep"] == 1
    alone, single = STAGED_COSTS.get(e.rows.operation, (0.0, 0.0))
    count, loads = s.steps * s.held * rows, s.steps * c["items"] * rows
    states = s.elements if e.by_columns else 1
    fold = np.where(
        two,
        (first + second + exponential) * count,
        (np.where(staged, single, online) + exponential) * count
        + (extra + 2.0 * exponential) * states * s.steps * rows,
    ) * (folds > 0)
    # The second pass leaves its exponentials or deviations where the row stays in registers.
    held = two & kept & (e.rows.operation in HOLDING)
    mapping = mapping + exponential * (e.rows.operation == "softmax")
    multiplies = fold + maps * np.where(held, 1.0, mapping) * count
    through = np.where(split, folds, _through(c, e))
    passes = np.where((c["keep"] == 0) & ~staged, folds + maps, 1.0)
    shared = np.where(c["keep"] == 2, folds + maps, 0.0)
    # Words of an access become elements, past the end of a row -inf if they are exponents.
    convert = 0.0 if e.bytes_a == e.bytes_acc else 1.0
    select = e.bytes_a / 4 if e.rows.operation in EXPONENTIALS else 0.0
    # Lanes of a row all join; of columns, half of the threads that are left.
    levels = np.log2(c["threads_k"])
    if e.by_columns:
        levels = (levels > 0) * 0.5 + levels / (s.threads / 32)
    joining = levels * states * (_joins(c, e) + JOIN * two) * (folds > 0)
    joining = joining + SCRATCH * folds * (scratch_bytes(c, e, s) > 0)
    issue = START + PASS * (passes - 1.0) + SHARED_PASS * shared + joining
    steps = rows * through * (STAGED_STEP * s.steps + STAGED_PASS) * ~kept
    issue = issue + np.where(staged, alone * rows + steps + copies(e, s), finish * states)
    access = np.where(staged, np.where(kept, *STAGED_ACCESS), COLUMN_ACCESS if e.by_columns else ACCESS)
    again = np.where(staged, through, passes)
    load = loads * (access + 14.0 * (e.rows.digits == 3))
    issue = issue + again * load + shared * loads * 4.0 + through * (convert + select) * count
    # A run-time epilogue rotates its values; compiled in, nothing moves.
    rounds = np.maximum(s.held / AT_ONCE, 1.0)
    moves = np.where((c["epilogue_fixed"] == 0) & (rounds > 1), rounds, 0.0)
    width = np.minimum(s.elements, max(e.align_c // e.bytes_c, 1))
    narrow = 0.0 if e.bytes_c == e.bytes_acc else 0.5
    store = count * (narrow + moves + 2.0 * e.steps + np.where(staged, STAGED_STORE, access) / width)
    exchange = s.steps * _exchange(c, e, s)[0]
    last = START + e.maps * (load + (convert + select + mapping) * count + store) + exchange
    return Work(multiplies, issue + maps * (store + exchange), passes, last)


def copies(e: View, s: Shape) -> np.ndarray:
    """Return a thread's instructions that copy staged rows to shared memory, and mapped ones from there."""
    vectors = s.staged * e.k * e.bytes_a / 16
    return np.ceil(vectors / 4) * COPIES + e.maps * (START_OUT + np.ceil(vectors) * COPY_OUT)


def _staged_wavefronts(c: Columns, e: View, s: Shape) -> np.ndarray:
    """Return the lines of L1 and shared memory that a warp touches for its staged rows.

    Vectors pass through both once, of maps twice; then each thread accesses its own rows.
    """
    moved = s.staged * e.k * e.bytes_a * 32 / 128 * 2.0 * (1.0 + e.maps)
    width = s.elements * e.bytes_a
    ways = np.choose(np.log2(width).astype(int), [conflicts(2**p, e.k * e.bytes_a) for p in range(5)])
    accesses = e.k / s.elements * (_through(c, e) + e.maps) * ways
    return moved + s.staged * (accesses + (not e.maps) * max(e.bytes_c / 4, 1.0))


@lru_cache(maxsize=1024)
def conflicts(width: int, pitch: int) -> int:
    """Return the wavefronts of a warp whose threads access ``width`` bytes, each ``pitch`` after the one before."""
    words = np.arange(32)[:, None] * pitch // 4 + np.arange(max(width // 4, 1))
    # One wavefront serves at most 128 bytes: 8 threads of 16.
    return sum(int(np.bincount(np.unique(some) % 32).max()) for some in np.split(words, max(width // 4, 1)))


def _lines_touched(c: Columns, e: View, s: Shape) -> np.ndarray:
    """128-byte lines that a warp's access touches: at least its bytes, and one per separate piece of memory."""
    side = c["threads_m"] if e.by_columns else c["threads_k"]
    adjacent = np.minimum(side, 32.0)
    piece = adjacent * s.elements * e.bytes_a
    if e.rows.along == "s":
        return np.full_like(s.threads, 32.0)
    return 32.0 / adjacent * np.maximum(piece / 128.0, 1.0)


def _overfetch(c: Columns, e: View, s: Shape) -> np.ndarray:
    """Return the bytes from the L2 over bytes used: whole sectors of 32 are moved."""
    if e.rows.along == "s":
        return np.full_like(s.threads, 32.0 / e.bytes_a)
    if not e.by_columns:
        return np.ones_like(s.threads)
    piece = np.minimum(c["threads_m"] * s.elements, e.columns) * e.bytes_a
    return np.maximum(32.0 / piece, 1.0)


def _after(c: Columns, e: View, s: Shape, work: Work, running: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the microseconds of a split's second launch: the states, and for a map all of x again; of a scan, step
    after step, where ``running`` blocks run at once."""
    dram, l2 = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3, arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    states = e.words(True)[0] * e.bytes_acc * s.parts * e.lines * e.columns
    serial = np.ceil(s.parts / c["threads_k"]) * arch.l2_latency * 2e-3 / arch.clock_ghz
    whole = float(e.lines) * e.columns * e.k * e.bytes_a
    again = np.where(whole < arch.l2_mb * 2**20 * L2_USABLE, whole / l2, whole / dram) if e.maps else 0.0
    moved = states / l2 + again + (e.outputs * e.bytes_c + e.extra) / dram
    # For a map with as many blocks as the first launch.
    warps = s.tiles * s.threads / 32 * (s.parts if e.maps else 1.0)
    busy = work.mapping * warps / (SUBCORES * arch.sms * arch.clock_ghz * 1e3)
    moved = np.maximum(moved, busy) + EXPOSED * np.minimum(moved, busy)
    steps = s.steps * np.ceil(s.tiles * s.parts / running) * e.scans
    moved = np.maximum(moved, steps * (_exchange(c, e, s)[1] + arch.l2_latency) * 1e-3 / arch.clock_ghz)
    fixed = ramp_us(arch) + (arch.dram_latency + BLOCK_START) * 1e-3 / arch.clock_ghz
    return np.where((c["split_k"] > 1) & (e.form != COPY), moved + fixed + serial, 0.0)


def _fitting(c: Columns, e: View, s: Shape, facts: Facts | None, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """Return (registers per thread, words a thread spills) under the launch bounds, or compiler facts."""
    wanted = registers(c, e, s)
    limit = promised_registers(np.maximum(c["min_blocks"], 1) * s.threads / 32, arch)
    if facts is not None:
        wanted = wanted + facts.register_offset
    used = np.minimum(wanted, limit)
    spilled = wanted - used
    if facts is not None:
        used = np.where(np.isnan(facts.registers), used, facts.registers)
        spilled = np.where(np.isnan(facts.spill_bytes), spilled, facts.spill_bytes / 8)
    return used, spilled


def _latency(joins: np.ndarray | float) -> np.ndarray | float:
    """Return the clocks in which a state is joined with another lane's: one instruction after the other."""
    return 30.0 + 3.0 * (joins - JOIN)


def _epilogue(c: Columns, e: View, s: Shape) -> np.ndarray:
    """Return the clocks after the last step: the lanes' states join, once per fold."""
    joins, two = _joins(c, e), _two_passes(c, e)
    others = s.elements - 1.0 if e.by_columns else 0.0
    level = _latency(joins) + others * joins + two * (_latency(JOIN) + others * JOIN)
    scratch = 80.0 * (scratch_bytes(c, e, s) > 0) * (1.0 + two)
    return (np.log2(c["threads_k"]) * level + scratch) * (_folds(c, e) > 0) + 60.0


def _wavefronts(c: Columns, e: View, s: Shape, work: Work) -> np.ndarray:
    """128-byte lines of L1 and shared memory that a block touches in one iteration."""
    kept = np.where(c["keep"] == 2, 1.0 + _two_passes(c, e) + e.maps, 0.0) * s.held / work.passes * e.bytes_a * 32 / 128
    direct = c["items"] * _lines_touched(c, e, s) + kept
    staged = _staged_wavefronts(c, e, s) if e.staged else direct
    return np.where(s.staged > 0, staged, direct) * (s.threads / 32)


def _stored_bytes(c: Columns, e: View, s: Shape, running: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes stored while other blocks load, and bytes stored after all loads; ``running`` blocks at once.

    Elements of a map are stored while blocks that started earlier or later load theirs; a lone round has none such.
    """
    split = (c["split_k"] > 1) & (e.form != COPY)
    total = float(e.outputs) * e.bytes_c + e.extra
    apart = 1.0 - np.minimum(running / (s.tiles * s.parts), 1.0)
    later = (c["keep"] == 0) & (s.staged == 0) & (s.steps > 1 if e.scans else e.form != COPY)
    among = np.where(later, 1.0, apart) * total * e.maps
    partial = e.words(True)[0] * e.bytes_acc * s.parts * e.lines * e.columns
    return np.where(split, 0.0, among), np.where(split, partial, total - among)


def _between(work: Work, lost: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the clocks in which a block waits for the first elements of its later passes over global memory.

    A pass needs the states that the pass before has joined, so that no warp requests these elements any earlier.
    """
    return (work.passes - 1.0) * (arch.l2_latency + lost * (arch.dram_latency - arch.l2_latency))


def terms(c: Columns, e: View, arch: Arch, facts: Facts | None) -> Terms:
    """See machine.roofline.Terms.  An iteration is a step of one pass over global memory."""
    s, work = shape(c, e), _work(c, e, shape(c, e))
    blocks, warps, memory = s.tiles * s.parts, s.threads / 32, shared_bytes(c, e, s)
    used, spilled = _fitting(c, e, s, facts, arch)
    single = [x.astype(np.float32) for x in (warps, used, memory)]
    residents = np.maximum(residency(single[0], single[1], single[2], arch), 1.0)
    # Staged rows arrive together.
    steps = np.where(s.staged > 0, 1.0, s.steps)
    iterations = steps * work.passes
    whole = float(e.lines) * e.columns * e.k * e.bytes_a
    each = whole / blocks / steps
    among, behind = _stored_bytes(c, e, s, residents * arch.sms)
    lost = np.clip(1.0 - arch.l2_mb * 2**20 * L2_USABLE / (residents * arch.sms * each * steps), 0.0, 1.0)
    # Sums of 64-bit integers are three instructions.
    multiplies = work.multiplies / iterations * (3.0 if e.bytes_acc == 8 and not e.real else 1.0)
    issue = (work.issue + spilled * 4.0) / iterations
    # The next step's elements take the registers of this step's, so that a warp requests them after its last
    # instruction; the first ones wait for nothing.
    chain = 40.0 + _latency(_joins(c, e)) + np.where(c["split_k"] > 1, 0.0, _exchange(c, e, s)[1])
    chain = np.where(s.staged > 0, s.staged * s.steps * _through(c, e) * (chain - 40.0 + SHARED_LATENCY), chain)
    stalls = STALL * (multiplies + issue) + chain
    values: dict[str, np.ndarray | float] = {
        "blocks": blocks, "residents": residents, "warps": warps, "iterations": iterations,
        "math": multiplies * (128.0 / arch.rate("fma_f64" if e.bytes_acc == 8 and e.real else "fma_f32")),
        "multiplies": multiplies, "issue": issue,
        "wavefronts": _wavefronts(c, e, s, work), "chain": chain, "stalls": stalls, "request": stalls,
        "l2_bytes": each * _overfetch(c, e, s) + among / (blocks * iterations),
        "dram_bytes": whole * (1.0 + (work.passes - 1.0) * lost) + among, "in_flight": np.ones_like(blocks),
        "exposed": np.full_like(blocks, EXPOSED), "prologue": BLOCK_START + _between(work, lost, arch) - stalls,
        "epilogue": _epilogue(c, e, s), "epilogue_busy": 4.0 * warps, "epilogue_bytes": behind,
        "after": _after(c, e, s, work, residents * arch.sms, arch), "registers": used, "shared_bytes": memory,
    }  # fmt: skip
    return Terms(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})
