"""The terms of a pointwise Program: one pass over all operands, instructions of the program for each element."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_kernels.families.contraction.cost import BLOCK_START
from gensor_kernels.families.core.family import Columns, Facts, Points
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, promised_registers, residency

from .shape import APART, View

#: Instructions of a thread that finds a vector: of each axis beyond the first, of an operand, and of its access.
START, AXIS, OPERAND, ACCESS = 30.0, 8.0, 6.0, 3.0
#: Clocks in which a lone warp issues an instruction; share of the work of other resources that is seen (rows/cost.py).
STALL, EXPOSED = 1.75, 0.1
#: Registers of addresses and counters, of an operand, and of values that an element needs at once.
BASE_REGISTERS, OPERAND_REGISTERS, LIVE = 16.0, 2.0, 8.0
#: Bytes of a sector, which an access moves whole.
SECTOR = 32.0


class Shape(NamedTuple):
    """Numbers that follow from the coordinates, float64 arrays: threads, elements of a thread, vectors, blocks."""

    threads: np.ndarray
    vector: np.ndarray
    items: np.ndarray
    vectors: np.ndarray
    blocks: np.ndarray


def shape(c: Points, e: View) -> Shape:
    """Return the numbers that follow from the coordinates."""
    threads, vector, items = (np.asarray(c[name], np.float64) for name in ("threads", "vector", "items"))
    vectors = np.ceil(e.row / vector) * (e.elements / max(e.row, 1))
    return Shape(threads, vector, items, vectors, np.ceil(vectors / (threads * items)))


def held_bytes(e: View, s: Shape) -> np.ndarray:
    """Return the bytes of inputs that a thread holds: whole registers."""
    total = np.zeros_like(s.threads)
    for each in e.arrays[:-1]:
        apart = s.vector * max(each.bytes, 4)
        total += np.maximum(np.choose(each.form, [0.0 * apart + each.bytes, s.vector * each.bytes, apart]), 4.0)
    return total * s.items


def registers(e: View, s: Shape) -> np.ndarray:
    """Return the registers a thread wants."""
    words = 2.0 if e.program.accumulator in ("float64", "int64") else 1.0
    live = min(LIVE, len(e.program.operations)) * words
    result = np.maximum(s.vector * e.arrays[-1].bytes / 4, 1.0) * len(e.program.outputs)
    held = held_bytes(e, s) / 4 + result + 2.0 * s.items
    return (BASE_REGISTERS + OPERAND_REGISTERS * len(e.arrays) + held + live).astype(np.float32)


def terms(c: Columns, e: View, arch: Arch, facts: Facts | None) -> Terms:
    """See machine.roofline.Terms.  A block has one iteration, in which all of its loads are under way at once."""
    s = shape(c, e)
    warps, count = s.threads / 32, s.vector * s.items
    wanted = registers(e, s)
    limit = promised_registers(np.maximum(c["min_blocks"], 1) * warps, arch)
    wanted = wanted if facts is None else wanted + facts.register_offset
    used = np.minimum(wanted, limit)
    spilled = wanted - used
    if facts is not None:
        used = np.where(np.isnan(facts.registers), used, facts.registers)
        spilled = np.where(np.isnan(facts.spill_bytes), spilled, facts.spill_bytes / 8)
    single = [x.astype(np.float32) for x in (warps, used, 0.0 * used)]
    residents = np.maximum(residency(single[0], single[1], single[2], arch), 1.0)
    *inputs, output = e.arrays
    like = np.ones_like(s.blocks)
    accesses, lines, fetched = 0.0 * like, 0.0 * like, 0.0 * like
    for each in e.arrays:
        separate = (s.vector if each.form == APART else like) * (len(e.program.outputs) if each is output else 1)
        # Bytes that a warp's access moves: whole sectors of elements apart, and one of an element for all.
        wide = np.choose(each.form, [SECTOR * like, 32.0 * s.vector * each.bytes, 32.0 * SECTOR * like])
        accesses += s.items * separate * ACCESS + OPERAND
        lines += s.items * separate * np.maximum(wide / 128.0, 1.0)
        if each is not output:
            fetched += wide * separate / 32.0 * s.items * s.threads
    moved = sum(float(each.elements) * each.bytes for each in inputs)
    multiplies = count * max(e.work, 1.0)
    convert = count * sum(each.bytes not in (4, 8) for each in e.arrays)
    issue = START + AXIS * (e.rank - 1) * s.items + accesses + convert + spilled * 4.0
    total = float(output.elements) * output.bytes
    blocks = np.maximum(s.blocks, 1.0)  # of no elements there are none
    # Elements are stored while blocks that started earlier or later load theirs; a lone round has none such.
    among = (1.0 - np.minimum(residents * arch.sms / blocks, 1.0)) * total
    rate = arch.rate("fma_f64" if e.program.accumulator == "float64" else "fma_f32")
    stalls = STALL * (multiplies + issue) + 40.0
    values: dict[str, np.ndarray | float] = {
        "blocks": blocks, "residents": residents, "warps": warps, "iterations": like,
        "math": multiplies * (128.0 / rate), "multiplies": multiplies, "issue": issue, "wavefronts": lines * warps,
        "chain": 40.0 * like, "stalls": stalls, "request": stalls, "l2_bytes": fetched + among / blocks,
        "dram_bytes": moved + among, "in_flight": like, "exposed": EXPOSED * like, "prologue": BLOCK_START - stalls,
        "epilogue": 60.0 * like, "epilogue_busy": 4.0 * warps, "epilogue_bytes": total - among, "after": 0.0 * like,
        "registers": used, "shared_bytes": 0.0 * like,
    }  # fmt: skip
    return Terms(**{name: np.asarray(value, dtype=np.float32) for name, value in values.items()})
