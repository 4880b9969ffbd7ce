"""Terms every contraction shares: grid, L2 and DRAM bytes, registers against limits, epilogue, split reduction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import DRAM_EFFICIENCY, Terms, residency
from .contraction import Extents, F
from .family import Columns, Facts

#: Share of the L2 that keeps a working set alive beside streams.
L2_USABLE = 0.75


@dataclass
class Loop:
    """A family's part of the terms: float32, one per Program; names as in roofline.Terms.

    ``registers`` are what a thread wants before any limit; ``store_width`` is bytes of C per thread and store;
    ``store_lines`` the 128-byte lines one warp-wide store touches; ``staging`` clocks of shared memory per block.
    """

    warps: np.ndarray
    math: np.ndarray
    issue: np.ndarray
    wavefronts: np.ndarray
    chain: np.ndarray
    in_flight: np.ndarray
    registers: np.ndarray
    memory: np.ndarray
    store_width: np.ndarray
    store_lines: np.ndarray
    staging: np.ndarray


def register_limit(threads: np.ndarray, min_blocks: np.ndarray, arch: Arch) -> np.ndarray:
    """Registers the compiler may give a thread under the launch bounds, float32; what it wants beyond spills."""
    share = F(arch.regs_per_sm) / (threads * np.maximum(min_blocks, 1))
    return np.minimum(np.floor(share * F(1 / 8)) * F(8), F(arch.regs_per_thread))


def dram_bytes(
    tiles: tuple[np.ndarray, np.ndarray],
    rows_columns: tuple[np.ndarray, np.ndarray],
    blocks: np.ndarray,
    raster: np.ndarray,
    residents: np.ndarray,
    e: Extents,
    arch: Arch,
) -> np.ndarray:
    """Bytes of A and B from DRAM over the whole main loop, with L2 reuse over one residency window.

    ``tiles`` are the tile counts along m and n, ``rows_columns`` the (average) rows and columns of C per tile.
    Blocks resident at once walk along k together: what several of them read in a step comes from DRAM once.
    Between windows a panel is found again in so far as it fits the L2.
    """
    tiles_m, tiles_n = tiles
    window = np.minimum(blocks, residents * F(arch.sms))
    # The window covers whole groups of `raster` tile rows once it is wider than one of them.
    columns = np.minimum(tiles_n, np.ceil(window / np.minimum(raster, tiles_m)))
    rows = np.minimum(tiles_m, np.ceil(window / columns))
    whole_a, whole_b = F(float(e.m) * e.k * e.bytes_a), F(float(e.n) * e.k * e.bytes_b)
    held_a = rows * rows_columns[0] * F(e.k * e.bytes_a)
    held_b = columns * rows_columns[1] * F(e.k * e.bytes_b)
    windows = np.maximum(tiles_m * tiles_n / (rows * columns), F(1))
    usable = F(arch.l2_mb * 2**20 * L2_USABLE)
    held = held_a + held_b
    lost_a = F(1) - np.minimum(usable / held, F(1))
    lost_b = F(1) - np.minimum(usable / (held_a + whole_b), F(1))
    again_a = np.maximum(windows * held_a - whole_a, F(0)) * lost_a
    again_b = np.maximum(windows * held_b - whole_b, F(0)) * lost_b
    return (again_a + again_b + (whole_a + whole_b)) * F(e.batch)


def reduction(split: np.ndarray, e: Extents, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """(bytes of C or partial sums the main kernel writes, microseconds of the reduction kernel).

    Partial sums pass through the L2 where they fit, otherwise through DRAM.
    """
    outputs = float(e.batch) * e.m * e.n
    plain = F(outputs * e.bytes_c + e.extra)
    partial = split * F(outputs * e.bytes_acc)
    taken = split > 1
    dram = F(arch.dram_gb_s * DRAM_EFFICIENCY * 1e3)
    l2 = F(arch.l2_bytes_per_clk * arch.clock_ghz * 1e3)
    spilled = np.clip(partial * F(1 / (arch.l2_mb * 2**20)) - F(0.5), F(0), F(1))
    moved = partial * (spilled / dram + (F(1) - spilled) / l2) + plain / dram
    fixed = F(1.0 + arch.dram_latency * 2e-3 / arch.clock_ghz)
    return np.where(taken, partial * spilled, plain), np.where(taken, moved + fixed, F(0))


def _registers(
    loop: Loop, threads: np.ndarray, min_blocks: np.ndarray, facts: Facts | None, arch: Arch
) -> tuple[np.ndarray, np.ndarray]:
    """(registers allocated, words spilled) per thread: estimates under the limit, or what the compiler said."""
    limit = register_limit(threads, min_blocks, arch)
    wanted = loop.registers if facts is None else loop.registers + facts.register_offset
    used, spilled = np.minimum(wanted, limit), np.maximum(wanted - limit, F(0))
    if facts is None:
        return used, spilled
    used = np.where(np.isnan(facts.registers), used, facts.registers)
    return used, np.where(np.isnan(facts.spill_bytes), spilled, facts.spill_bytes * F(0.25))


def assemble(c: Columns, e: Extents, arch: Arch, facts: Facts | None, loop: Loop) -> Terms:
    """The complete terms of a contraction from a family's loop."""
    block_m, block_n = c["block_m"].astype(F), c["block_n"].astype(F)
    split, block_k = c["split_k"].astype(F), c["block_k"].astype(F)
    tiles_m, tiles_n = np.ceil(F(e.m) / block_m), np.ceil(F(e.n) / block_n)
    iterations = np.ceil(np.ceil(F(e.k) / block_k) / split)
    blocks = tiles_m * tiles_n * split * F(e.batch)
    threads = loop.warps * F(32)
    registers, spilled = _registers(loop, threads, c["min_blocks"], facts, arch)
    residents = np.maximum(residency(loop.warps, registers, loop.memory, arch), F(1))
    # Past an edge nothing is loaded or stored: only compute is wasted there.
    rows, columns = F(e.m) / tiles_m, F(e.n) / tiles_n
    written, after = reduction(split, e, arch)
    outputs = block_m * block_n / loop.warps
    width_c = np.where(split > 1, F(e.bytes_acc), F(e.bytes_c))
    stores = outputs * width_c / (loop.store_width * F(32))
    finish = stores * F(6) + outputs * F((2 + 2 * e.steps) / 32)
    issue = loop.issue if facts is None else np.where(np.isnan(facts.issue), loop.issue, facts.issue)
    return Terms(
        blocks=blocks,
        residents=residents,
        warps=loop.warps,
        iterations=iterations,
        math=loop.math,
        issue=issue + spilled * F(2),
        wavefronts=loop.wavefronts + spilled * loop.warps * F(2),
        chain=loop.chain,
        l2_bytes=(rows * F(e.bytes_a) + columns * F(e.bytes_b)) * block_k,
        dram_bytes=dram_bytes((tiles_m, tiles_n), (rows, columns), blocks, c["raster"], residents, e, arch),
        in_flight=loop.in_flight,
        prologue=F(150),
        epilogue=F(100) + finish * F(2) + loop.staging,
        epilogue_busy=loop.warps * np.maximum(finish * F(0.25), stores * loop.store_lines) + loop.staging,
        epilogue_bytes=written,
        after=after,
        registers=registers,
        shared_bytes=loop.memory,
    )
