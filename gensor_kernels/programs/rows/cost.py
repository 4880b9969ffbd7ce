"""The terms of a rows Program: passes over x, instructions per element, lanes that join, a split's second launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, Terms, promised_registers, ramp_us, residency
from gensor_kernels.programs.contraction.cost import BLOCK_START, L2_USABLE
from gensor_kernels.programs.core.family import Columns, Facts, Points

from .shape import COPY, TWO_FORMS, View

#: Instructions of an exponential (``exp_of_negative``), and of a maximum that keeps NaN.
EXP, COMPARE = 6.0, 1.0
#: Those that an exponential does without where results have 16 bits (``exp_of_element``).
SPARED = 4.0
#: Instructions per element: of the one-pass fold, of the first and the second of two passes, of the map; and further
#: instructions of the one-pass fold per step.
COSTS: Mapping[str, tuple[float, float, float, float, float]] = {
    "copy": (0, 0, 0, 0, 0),
    "sum": (1, 0, 0, 0, 0),
    "mean": (1, 0, 0, 0, 0),
    "max": (COMPARE + 1, 0, 0, 0, 0),
    "min": (COMPARE + 1, 0, 0, 0, 0),
    "prod": (2, 0, 0, 0, 0),
    "argmax": (9, 0, 0, 0, 0),
    "argmin": (9, 0, 0, 0, 0),
    "l2_norm": (2, 0, 0, 0, 0),
    "var": (4, 1, 3, 0, 40),
    "logsumexp": (COMPARE + EXP + 2, COMPARE, EXP + 2, 0, 2 * EXP),
    "softmax": (COMPARE + EXP + 2, COMPARE, EXP + 2, EXP + 1, 2 * EXP),
    "log_softmax": (COMPARE + EXP + 2, COMPARE, EXP + 2, 2, 2 * EXP),
    "layernorm": (4, 1, 3, 2, 40),
    "rmsnorm": (2, 0, 0, 1, 0),
}
#: Maps whose second pass leaves its terms in registers, and operations on exponentials.
HOLDING, EXPONENTIALS = ("softmax", "layernorm"), ("softmax", "log_softmax", "logsumexp")
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


def shape(c: Points, e: View) -> Shape:
    """Threads, elements per access, per thread and per step, parts of k, steps of a part, tiles of rows."""
    lanes, rows, vector, items = (c[n].astype(np.float64) for n in ("threads_k", "threads_m", "vector", "items"))
    step = lanes * items * (1 if e.by_columns else vector)
    every = np.ceil(e.k / step)
    split = every if e.form == COPY else c["split_k"].astype(np.float64)
    steps = np.maximum(np.ceil(every / split), 1.0)
    tiles = np.ceil(e.columns / (rows * vector)) * e.lines if e.by_columns else np.ceil(e.lines / rows)
    return Shape(lanes * rows, vector, vector * items, step, split, steps, tiles)


def scratch_bytes(c: Points, e: View, s: Shape) -> np.ndarray:
    """Shared bytes of the states that threads exchange (scratch_bytes in rows_source.cuh)."""
    if e.by_columns:
        states = np.where(c["threads_k"] > 1, s.threads * s.elements, 0)
    else:
        states = np.where(c["threads_k"] > 32, s.threads / 32, 0)
    total = np.zeros_like(states)
    for online in (0, 1):
        for words in e.words(bool(online)):
            total += np.where(c["online"] == online, np.ceil(states * words * e.bytes_acc / 16) * 16, 0)
    return total


def shared_bytes(c: Points, e: View, s: Shape) -> np.ndarray:
    """Return the dynamic shared bytes of a block."""
    kept = np.ceil(e.k / s.step) * c["items"] * s.threads * s.elements * e.bytes_a
    return scratch_bytes(c, e, s) + np.where(c["keep"] == 2, kept, 0)


def registers(c: Columns, e: View, s: Shape) -> np.ndarray:
    """Registers a thread wants: the step's elements, raw and converted, states, and values in the epilogue."""
    words = e.bytes_acc / 4
    held = s.held * words
    raw = np.where(c["keep"] == 1, 0.3, 1.0) * s.held * e.bytes_a / 4
    states = (s.elements if e.by_columns else 1) * max(e.words(True)) * words
    store = np.minimum(s.held, AT_ONCE) * words * 1.5 if e.maps else 0.0
    folded = 0.5 * held if not e.by_columns else 0.0
    return (BASE_REGISTERS + held + np.maximum(raw + folded, store) + states).astype(np.float32)


class Work(NamedTuple):
    """Instructions of a warp over a whole part of k, and passes."""

    multiplies: np.ndarray
    issue: np.ndarray
    passes: np.ndarray


def _work(c: Columns, e: View, s: Shape) -> Work:
    """Instructions per thread over all passes of a part, and passes that read x from global memory."""
    online, first, second, mapping, extra = COSTS[e.rows.operation]
    two = (c["online"] == 0) & (e.rows.operation in TWO_FORMS)
    split = (c["split_k"] > 1) & (e.form != COPY)
    folds = (e.form != COPY) * (1.0 + two)
    maps = np.where(split, 0.0, float(e.maps))
    count = s.steps * s.held
    per_state = (s.elements if e.by_columns else 1) * s.steps
    fold = np.where(two, (first + second) * count, online * count + extra * per_state)
    # The second pass leaves its exponentials or deviations where the row stays in registers.
    held = two & (c["keep"] == 1) & (e.rows.operation in HOLDING)
    multiplies = fold + maps * np.where(held, 1.0, mapping) * count
    if e.bytes_c == 2 and e.rows.operation in EXPONENTIALS:
        twice = ~held & (e.rows.operation == "softmax")  # once in a fold, once in the map
        multiplies = multiplies - SPARED * (1.0 + maps * twice) * count
    passes = np.where(c["keep"] == 0, folds + maps, 1.0)
    convert = 0.0 if e.bytes_a == e.bytes_acc else 1.5
    loads = s.steps * c["items"] * (7.0 + 14.0 * (e.rows.digits == 3))
    issue = passes * (loads + convert * count)
    issue = issue + np.where(c["keep"] == 2, (folds + maps) * s.steps * c["items"] * 4.0 + convert * count, 0.0)
    # A run-time epilogue rotates its values; compiled in, nothing moves.
    rounds = np.maximum(s.held / AT_ONCE, 1.0)
    moves = np.where((c["epilogue_fixed"] == 0) & (rounds > 1), rounds, 0.0)
    width = np.minimum(s.elements, max(e.align_c // e.bytes_c, 1))
    issue = issue + maps * count * (1.0 + moves + 2.0 * e.steps + 7.0 / width)
    return Work(multiplies, issue, passes)


def _lines_touched(c: Columns, e: View, s: Shape) -> np.ndarray:
    """128-byte lines that a warp's access touches: at least its bytes, and one per separate piece of memory."""
    side = c["threads_m"] if e.by_columns else c["threads_k"]
    adjacent = np.minimum(side, 32.0)
    piece = adjacent * s.elements * e.bytes_a
    if e.rows.along == "s":
        return np.full_like(s.threads, 32.0)
    return 32.0 / adjacent * np.maximum(piece / 128.0, 1.0)


def _overfetch(c: Columns, e: View, s: Shape) -> np.ndarray:
    """Bytes from the L2 over bytes used: whole sectors of 32 are moved."""
    if e.rows.along == "s":
        return np.full_like(s.threads, 32.0 / e.bytes_a)
    if not e.by_columns:
        return np.ones_like(s.threads)
    piece = np.minimum(c["threads_m"] * s.elements, e.columns) * e.bytes_a
    return np.maximum(32.0 / piece, 1.0)


def _after(c: Columns, e: View, s: Shape, arch: Arch) -> np.ndarray:
    """Microseconds of a split's second launch: the states, and for a map all of x again."""
    dram, l2 = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3, arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    states = e.words(True)[0] * e.bytes_acc * s.parts * e.lines * e.columns
    serial = np.ceil(s.parts / c["threads_k"]) * arch.l2_latency * 2e-3 / arch.clock_ghz
    whole = float(e.lines) * e.columns * e.k * e.bytes_a
    again = np.where(whole < arch.l2_mb * 2**20 * L2_USABLE, whole / l2, whole / dram) if e.maps else 0.0
    moved = states / l2 + again + (e.outputs * e.bytes_c + e.extra) / dram
    fixed = ramp_us(arch) + (arch.dram_latency + BLOCK_START) * 1e-3 / arch.clock_ghz
    return np.where((c["split_k"] > 1) & (e.form != COPY), moved + fixed + serial, 0.0)


def _fitting(c: Columns, e: View, s: Shape, facts: Facts | None, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """(registers per thread, words a thread spills) under the launch bounds, or compiler facts."""
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


def _epilogue(c: Columns, e: View, s: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Clocks behind the last step: the lanes' states join, once per pass; and the clocks of them that keep the SM
    busy."""
    lanes = np.where(c["threads_k"] > 1, 30.0 * np.log2(c["threads_k"]), 0.0) + 80.0 * (scratch_bytes(c, e, s) > 0)
    joining = lanes * np.where(c["online"] == 0, 2.0, 1.0) * (s.elements if e.by_columns else 1.0) * (e.form != COPY)
    warps = s.threads / 32
    return joining + 60.0, joining * warps * 0.1 + 4.0 * warps


def _wavefronts(c: Columns, e: View, s: Shape, work: Work) -> np.ndarray:
    """128-byte lines of L1 and shared memory that a block touches in one iteration."""
    kept = np.where(c["keep"] == 2, 2.0 + e.maps, 0.0) * s.held / work.passes * e.bytes_a * 32 / 128
    return (c["items"] * _lines_touched(c, e, s) + kept) * (s.threads / 32)


def _written(c: Columns, e: View, s: Shape, running: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes stored while other blocks load, and bytes stored behind all loads; ``running`` blocks at once.

    Elements of a map are stored while blocks that started earlier or later load theirs; a lone round has none such.
    """
    split = (c["split_k"] > 1) & (e.form != COPY)
    total = float(e.outputs) * e.bytes_c + e.extra
    apart = 1.0 - np.minimum(running / (s.tiles * s.parts), 1.0)
    among = np.where((c["keep"] == 0) & (e.form != COPY), 1.0, apart) * total * e.maps
    partial = e.words(True)[0] * e.bytes_acc * s.parts * e.lines * e.columns
    return np.where(split, 0.0, among), np.where(split, partial, total - among)


def _between(work: Work, lost: np.ndarray, arch: Arch) -> np.ndarray:
    """Clocks in which a block waits for the first elements of its later passes over global memory.

    A pass needs the states that the pass before has joined, so that no warp asks for these elements any earlier.
    """
    return (work.passes - 1.0) * (arch.l2_latency + lost * (arch.dram_latency - arch.l2_latency))


def terms(c: Columns, e: View, arch: Arch, facts: Facts | None) -> Terms:
    """See machine.roofline.Terms.  An iteration is a step of one pass over global memory."""
    s, work = shape(c, e), _work(c, e, shape(c, e))
    blocks, warps, memory = s.tiles * s.parts, s.threads / 32, shared_bytes(c, e, s)
    used, spilled = _fitting(c, e, s, facts, arch)
    single = [x.astype(np.float32) for x in (warps, used, memory)]
    residents = np.maximum(residency(single[0], single[1], single[2], arch), 1.0)
    iterations = s.steps * work.passes
    whole = float(e.lines) * e.columns * e.k * e.bytes_a
    each = whole / blocks / s.steps
    among, behind = _written(c, e, s, residents * arch.sms)
    lost = np.clip(1.0 - arch.l2_mb * 2**20 * L2_USABLE / (residents * arch.sms * each * s.steps), 0.0, 1.0)
    # Sums of 64-bit integers are three instructions.
    multiplies = work.multiplies / iterations * (3.0 if e.bytes_acc == 8 and not e.real else 1.0)
    epilogue, busy = _epilogue(c, e, s)
    values: dict[str, np.ndarray | float] = {
        "blocks": blocks, "residents": residents, "warps": warps, "iterations": iterations,
        "math": multiplies * (128.0 / arch.rate("fma_f64" if e.bytes_acc == 8 and e.real else "fma_f32")),
        "multiplies": multiplies, "issue": (work.issue + spilled * 4.0) / iterations,
        "wavefronts": _wavefronts(c, e, s, work), "chain": np.full_like(blocks, 40.0),
        "l2_bytes": each * _overfetch(c, e, s) + among / (blocks * iterations),
        "dram_bytes": whole * (1.0 + (work.passes - 1.0) * lost) + among, "in_flight": np.ones_like(blocks),
        "exposed": np.full_like(blocks, 0.05), "prologue": BLOCK_START + _between(work, lost, arch),
        "epilogue": epilogue, "epilogue_busy": busy, "epilogue_bytes": behind,
        "after": _after(c, e, s, arch), "registers": used, "shared_bytes": memory,
    }  # fmt: skip
    return Terms(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})
