"""Tabulated parts and terms that all contractions share.

Parts: k steps, splits and their reduction, launch bounds, raster.  Terms: grid, L2 and DRAM bytes, registers against
limits, epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Facts, Part, Values
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import once
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, Terms, fixed_us, promised_registers, residency

from . import column
from .problem import Extents

#: EPILOGUE_STAGED of a block that has its rows whole and normalises them (norm.py).
WHOLE_ROWS = 2
#: Share of the L2 that keeps a working set alive while streams pass.
L2_USABLE = 0.75
#: Clocks in which a block counts the tiles of 32 groups: two loads and twenty-five shuffles, one after the other.
SEARCH = 1200.0
#: Clocks from a block's first instruction to its first request.
BLOCK_START = 150.0
#: Outputs of a lane that an epilogue finishes together, and trips to DRAM that each operation with an operand waits for
#: then: it loads them after the operation before. Fitted to times on an H100.
TOGETHER, OPERAND_TRIPS = 16, 2.0


# ---- tabulated parts

BOUNDS = Part(("min_blocks",), lambda v: {column.PROMISED: np.maximum(v["min_blocks"], 1)}, fixed=True)


def shared_parts(e: Extents, arch: Arch, taps: int = 1) -> tuple[Part, ...]:
    """Tabulate steps, splits, bounds and raster; each of ``taps`` parts of k has whole steps."""

    def steps(v: Values) -> dict[Column, np.ndarray]:
        count = taps * -(-max(1, e.k // taps) // v["block_k"])
        moved = v["block_k"] if taps == 1 else e.k / count  # zeros after a tap are not read
        return {
            column.ITERATIONS: -(-count // v["split_k"]),
            column.STEP["a"]: moved * e.moved_a,
            column.STEP["b"]: moved * e.moved_b * e.matrices,
        }

    return (Part(("block_k", "split_k"), steps), *split_parts(e, arch))


def tiles_part(extent: int, axis: str) -> Part:
    """Return the tiles of the grid along an axis, and how much of it one holds on the average."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        tiles = -(-extent // v[f"block_{axis}"])
        return {column.TILES[axis]: tiles, column.HELD[axis]: extent / tiles}

    return Part((f"block_{axis}",), function)


def split_parts(e: Extents, arch: Arch) -> tuple[Part, ...]:
    """Tabulate splits, bounds and raster."""

    def splits(v: Values) -> dict[Column, np.ndarray]:
        slabs = {column.SLABS: v["split_k"] * e.batch}
        if e.norm:  # norm.py
            return slabs
        written, after = reduction(v["split_k"], e, arch, e.matrices)
        return slabs | {column.WRITTEN: written, column.AFTER: after}

    return (
        Part(("split_k",), splits),
        BOUNDS,
        Part(("raster",), lambda v: {column.RASTER_ROWS: v["raster"]}, fixed=True),
    )


def in_workspace(v: Program | Values | Mapping[str, int], e: Extents) -> Numbers:
    """Whether sums go through the workspace, of a Program or of many: k is split, or a norm's rows are not whole."""
    split = v["split_k"] > 1
    return split | (v["epilogue_staged"] != WHOLE_ROWS) if e.norm else split


def reduction(
    split: np.ndarray, e: Extents, arch: Arch, sums: int = 1, *, through: np.ndarray | None = None, passes: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return (DRAM bytes the main kernel writes, microseconds of the reduction kernel), by split count; ``sums`` of an
    output.

    Partial sums pass through the L2 where they fit, otherwise through DRAM.  They are written where k is split, or
    where ``through`` says so, and read ``passes`` times.
    """
    through = split > 1 if through is None else through
    outputs = float(e.batch) * e.m * e.n
    plain = outputs * e.bytes_c + e.extra
    partial = split * outputs * e.bytes_acc * sums
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    spilled = np.clip(partial / (arch.l2_mb * 2**20) - 0.5, 0, 1)
    moved = passes * partial * (spilled / dram + (1 - spilled) / l2) + plain / dram
    after = moved + fixed_us(arch)
    return np.where(through, partial * spilled, plain), np.where(through, after, 0)


# ---- terms


@dataclass
class Loop:
    """A family's part of the terms: float32, one per Program; names as in roofline.Terms.

    ``registers`` are a thread's registers before any limit; ``outputs`` a warp's outputs; ``staging`` the clocks a
    block moves outputs through shared memory; ``touched`` how often an iteration comes back to a spilled word;
    ``storing`` the warps that store where not all do.  Of the compiled loop, ``taking`` is the share of iterations that
    a warp takes part in, and ``share`` the share of its instructions that the average warp issues.  ``start`` are the
    clocks before a block's first request.
    """

    warps: np.ndarray
    math: np.ndarray
    multiplies: np.ndarray
    issue: np.ndarray
    wavefronts: np.ndarray
    chain: np.ndarray
    in_flight: np.ndarray | float
    exposed: np.ndarray
    registers: np.ndarray
    memory: np.ndarray
    outputs: np.ndarray
    staging: np.ndarray
    touched: np.ndarray
    storing: np.ndarray | None = None
    ahead: np.ndarray | float = 0.0
    behind: np.ndarray | float = 0.0
    request: np.ndarray | float = 0.0
    slot: np.ndarray | float = 1.0
    stalls: np.ndarray | float = 0.0
    taking: np.ndarray | float = 1.0
    share: np.ndarray | float = 1.0
    heat: np.ndarray | float = 0.0
    start: float = BLOCK_START


def window_issue(
    entries: np.ndarray, ks: np.ndarray, masked: np.ndarray | float = 0.0, saved: float = 8.0
) -> np.ndarray:
    """Return the instructions of a thread's step without its loads where the operand is read through a window: the
    digits of each k, and address and predicates of each piece. Fitted to the SASS of 56 Programs; ``masked``: of MASKED
    ones, which look up a bit where others compare a row and a column, and save these instructions of a piece."""
    return ks * (26.0 + 4.0 * masked + (9.0 - saved * masked) * entries)


def window_registers(entries: np.ndarray, ks: np.ndarray, masked: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the registers for it: an entry's offset and place (or its bits), the digits of k and their steps."""
    return 5.0 + (4.0 - masked) * entries + 3.0 * ks


def dram_bytes(c: Columns, tiles: np.ndarray, blocks: np.ndarray, residents: np.ndarray, e: Extents, arch: Arch):
    """Return the bytes of A and B from DRAM over the whole main loop, with L2 reuse over one residency window; float32.

    Blocks resident at once walk along k together: data that several of them read in a step comes from DRAM once.
    Between windows a panel is found again in so far as it fits the L2.
    """
    tiles_m, tiles_n = c[column.TILES["m"]], c[column.TILES["n"]]
    window = np.minimum(blocks, residents * arch.sms)
    # The window covers whole groups of `raster` tile rows once it is wider than one of them.
    columns = np.minimum(tiles_n, np.ceil(window / np.minimum(c[column.RASTER_ROWS], tiles_m)))
    # A window of all columns ends within a group of rows: those after it read all columns again.
    rows = np.where(columns < tiles_n, np.ceil(window / columns), np.maximum(window / columns, 1.0))
    rows = np.minimum(tiles_m, rows)
    whole_a, whole_b = e.whole_a, e.whole_b
    # Neighbouring rows of an operand that is read through a window share elements.
    held_a = rows * (c[column.HELD["m"]] * (e.whole_a / e.m))
    held_b = columns * (c[column.HELD["n"]] * (e.whole_b / e.n))
    windows = np.maximum(tiles / (rows * columns), 1.0)
    # Each half of an L2 has what its own SMs read (the whitepaper of the A100): operands are in both.
    usable = arch.l2_mb * 2**20 * L2_USABLE / (2 if "l2_halves" in arch.features else 1)
    lost_a = np.maximum(1.0 - usable / (held_a + held_b), 0.0)
    lost_b = np.maximum(1.0 - usable / (held_a + whole_b), 0.0)
    again_a = np.maximum(windows * held_a - whole_a, 0.0) * lost_a
    again_b = np.maximum(windows * held_b - whole_b, 0.0) * lost_b
    return (again_a + again_b + (whole_a + whole_b)) * e.batch


def register_limit(c: Columns, warps: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the registers the compiler may give a thread under the launch bounds; more registers spill."""
    return promised_registers(warps * c[column.PROMISED], arch)


def granted(
    wanted: np.ndarray,
    limit: np.ndarray,
    facts: Facts | None,
    touched: np.ndarray | float = 1.0,
    least: float = -np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (registers per thread, accesses to spilled words): estimates, or compiler facts where they are known.

    A word that is spilled is loaded and stored again each time that it is ``touched``.  Spill bytes of compilers are
    those of loads and stores in the code.  Corrected estimates are at ``least`` so large.
    """
    wanted = wanted if facts is None else np.maximum(wanted + facts.register_offset, least)
    used = np.minimum(wanted, limit)
    spilling = (wanted - used) * (touched * 2.0)
    if facts is None:
        return used, spilling
    used = np.where(np.isnan(facts.registers), used, facts.registers)
    return used, np.where(np.isnan(facts.spill_bytes), spilling, facts.spill_bytes * 0.25)


def stalls(loop: Loop, facts: Facts | None) -> np.ndarray | float:
    """Clocks in which the busiest warp issues a block's iteration: a family's estimate, and the compiler's stalls."""
    if facts is None:
        return loop.stalls
    pipe = np.maximum(loop.math, loop.multiplies + loop.issue)
    clocks = np.where(np.isnan(facts.stalls), facts.stall_ratio * pipe, facts.stalls)
    return np.maximum(loop.stalls, clocks * loop.taking)


class Finishing(Protocol):
    """Numbers of a Workload: the operations of its epilogue, and those of them that read an operand."""

    @property
    def steps(self) -> int:
        """Return the number of operations."""

    @property
    def operands(self) -> int:
        """Return the number of operations that read an operand."""


#: Numbers of a Loop that are terms.
SAME = ("warps", "math", "multiplies", "chain", "in_flight", "exposed", "ahead", "behind", "request", "slot", "heat")


def fixed_terms(
    c: Columns,
    e: Finishing,
    arch: Arch,
    facts: Facts | None,
    loop: Loop,
    finishing: int = 2,
    cut: Numbers = 0.0,
) -> dict[str, Numbers]:
    """Return the terms that a family's loop decides, whatever the sizes.

    An output takes ``finishing`` instructions, and two for each operation; ``cut`` are instructions of the compiled
    main loop, spills included, that most iterations skip.
    """
    registers, spilling = granted(loop.registers, register_limit(c, loop.warps, arch), facts, loop.touched)
    issue = loop.issue + spilling
    if facts is not None:
        counted = np.maximum(np.maximum(facts.issue * loop.share - loop.multiplies, 0.0) - cut, 0.0)
        issue = np.where(np.isnan(facts.issue), issue, counted)
    stores = loop.outputs * c[column.STORES]
    storing = loop.warps if loop.storing is None else loop.storing
    finish = stores * 6.0 + loop.outputs * ((finishing + 2 * e.steps) / 32)
    loads = np.ceil(loop.outputs * (1 / (32 * TOGETHER))) * (e.operands * OPERAND_TRIPS * arch.dram_latency)
    return {name: getattr(loop, name) for name in SAME} | {
        "residents": np.maximum(residency(loop.warps, registers, loop.memory, arch), 1.0),
        "issue": issue,
        "wavefronts": loop.wavefronts + spilling * loop.warps,
        "epilogue": finish * 2.0 + loop.staging + loads + 100.0,
        "epilogue_busy": storing * np.maximum(finish * 0.25, stores * c[column.STORE_LINES]) + loop.staging,
        "registers": registers,
        "shared_bytes": loop.memory,
        "stalls": stalls(loop, facts),
        "prologue": loop.start,
    }


def complete_terms(c: Columns, e: Extents, arch: Arch, known: dict[str, Numbers]) -> Terms:
    """Return the complete terms from the `settled` terms."""
    tiles, residents = c[column.TILES["m"]] * c[column.TILES["n"]], known["residents"]
    blocks = tiles * c[column.SLABS]
    among = c[column.WRITTEN] * (1.0 - np.minimum(residents * arch.sms / blocks, 1.0))
    return Terms(
        **known | {"prologue": known["prologue"] + searching(e)},
        blocks=blocks,
        iterations=c[column.ITERATIONS],
        # Past an edge nothing is loaded: only compute is wasted there.
        l2_bytes=c[column.HELD["m"]] * c[column.STEP["a"]]
        + c[column.HELD["n"]] * c[column.STEP["b"]]
        + among / (blocks * c[column.ITERATIONS]),
        # Nobody waits for a store: all rounds but the last store while the next one loads and computes.
        dram_bytes=dram_bytes(c, tiles, blocks, residents, e, arch) + among,
        epilogue_bytes=c[column.WRITTEN] - among,
        after=c[column.AFTER] + c.get(column.BEFORE, 0.0),
    )


def searching(e: Extents) -> float:
    """Return the clocks in which a warp finds the group of a tile; 0 where groups do not differ in their rows."""
    return SEARCH * (e.batch // 32 + 1) if e.rows else 0.0


def assemble(c: Columns, e: Extents, arch: Arch, facts: Facts | None, loop: Callable[[], Loop]) -> Terms:
    """Return the complete terms of a contraction from a family's loop, which of plain products is found once."""
    plain = e.is_plain and facts is None
    return complete_terms(c, e, arch, once(c, "terms", plain, lambda: fixed_terms(c, e, arch, facts, loop())))
