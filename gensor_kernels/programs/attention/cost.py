"""Terms of attention for the roofline: grid, L2 and DRAM bytes, residency, what begins and ends a block."""

from __future__ import annotations

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, residency
from gensor_kernels.programs.contraction.cost import BLOCK_START, L2_USABLE, Loop, granted
from gensor_kernels.programs.core.family import Columns, Facts

from .shape import ELEMENT, Sizes

#: Instructions of the main loop that only run in tiles which the diagonal or the edge cuts: per score.
CUT_ISSUE = 3.0


def loop_of(c: Columns, registers: np.ndarray, memory: np.ndarray) -> Loop:
    """A step of keys; names as in roofline.Terms."""
    warps = c["warps"]
    copies = c["copies_k"] + c["copies_v"]
    issue = c["weigh_issue"] + c["read_issue"] + copies * c["copy_issue"] + (c["passes_k"] + c["passes_v"]) * 2.4
    return Loop(
        warps=warps,
        math=c["math"],
        multiplies=c["multiplies"],
        issue=issue,
        wavefronts=warps * (c["read_clocks"] + c["copy_clocks_k"] + c["copy_clocks_v"]),
        chain=c["chain"],
        in_flight=c["in_flight"],
        exposed=c["exposed"],
        registers=registers,
        memory=memory,
        outputs=c["outputs"],
        staging=c["epilogue_staged"] * (c["warp_q"] / 16.0) * (60.0 + warps * c["staging_clocks"]),
        touched=np.float32(2.0) * np.ones_like(warps),
    )


def dram_bytes(c: Columns, e: Sizes, blocks: np.ndarray, residents: np.ndarray, arch: Arch) -> np.ndarray:
    """Q once, and K and V once for each time that the blocks of an entry come by and do not find them in the L2."""
    window = np.minimum(blocks, residents * arch.sms)
    per_entry = c["tiles"] * c["split_k"]
    entry = 2.0 * ELEMENT * e.keys * e.n
    passes = np.maximum(per_entry / window, 1.0)
    held = np.ceil(window / per_entry) * entry
    lost = np.maximum(1.0 - arch.l2_mb * 2**20 * L2_USABLE / held, 0.0)
    share = np.minimum(c["iterations"] * c["split_k"] * c["block_k"] / e.keys, 1.0)
    once = float(e.batch) * (e.m * e.n * ELEMENT + entry) + e.mask_whole
    return once + e.batch * entry * (passes - 1.0) * lost * share


def assemble(c: Columns, e: Sizes, arch: Arch, facts: Facts | None, loop: Loop) -> Terms:
    """The complete terms."""
    blocks = c["tiles"] * c["slabs"]
    registers, spilling, issue = granted(loop, c, facts, arch)
    if facts is not None:
        cut = c["warp_q"] * c["block_k"] * (CUT_ISSUE / 32)
        issue = np.where(np.isnan(facts.issue), issue, np.maximum(issue - cut, 0.0))
    residents = np.maximum(residency(loop.warps, registers, loop.memory, arch), 1.0)
    stores = loop.outputs * c["stores"]
    finish = stores * 6.0 + loop.outputs * ((3 + 2 * e.steps) / 32)
    rows = c["held_q"] * (e.n * ELEMENT)
    return Terms(
        blocks=blocks,
        residents=residents,
        warps=loop.warps,
        iterations=c["iterations"],
        math=loop.math,
        multiplies=loop.multiplies,
        issue=issue,
        wavefronts=loop.wavefronts + spilling * loop.warps,
        chain=loop.chain,
        l2_bytes=c["block_k"] * (2.0 * ELEMENT * e.n + c["held_q"] * e.mask_bytes),
        dram_bytes=dram_bytes(c, e, blocks, residents, arch),
        in_flight=loop.in_flight,
        exposed=loop.exposed,
        # Rows of Q: about ten instructions a piece, four on their way at a time.
        prologue=BLOCK_START + rows / (16 * 32) / loop.warps * 30.0,
        epilogue=finish * 2.0 + loop.staging + 100.0,
        epilogue_busy=loop.warps * np.maximum(finish * 0.25, stores * c["store_lines"]) + loop.staging,
        epilogue_bytes=c["written"],
        after=c["after"],
        registers=registers,
        shared_bytes=loop.memory,
    )
