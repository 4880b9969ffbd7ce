"""Stream-K: a fixed number of blocks shares the steps of k of all tiles evenly (cuda/stream_k.cuh).

After Osama, Merrill, Cecka, Garland and Owens, arXiv:2301.03598: whole waves of tiles are computed as usual, but for
the last one; what that one and the partial wave behind it hold is cut into equal shares ("two-tile" stream-K).
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import SM_L2_BYTES, Terms
from .extents import Extents
from .family import Columns, Coordinate, Launch
from .params import Tiling

if TYPE_CHECKING:
    from .program import Program

NAME = "stream"
#: Blocks per multiprocessor that a stream's blocks are chosen from.
PER_SM = (0.5, 1, 2, 3, 4)
#: Bytes of a block's flag in the workspace; sums begin at a multiple of 16.
FLAG_BYTES = 16
#: Trips to the L2 between the last store of a block's sums and the first load of another: the fence, the flag's store,
#: its load.
FLAG_TRIPS = 3.0
#: What a flag holds when it is set, in two halves (stream_mark): drawn by each process, because what lies in a new
#: workspace must not look like it.
MARK = (secrets.randbits(31), secrets.randbits(31))
STREAM_REGISTERS = 14.0
#: Coverage names of a stream's kernel.
BRANCHES = frozenset({"whole_tile", "stream_leave", "stream_join"})


def serves(e: Extents) -> bool:
    """Whether the products of a class can be streamed: plain ones. The sums of a gate leave no registers for it."""
    return not (e.rows or e.norm or e.prologue or e.gate)


def coordinate(e: Extents, arch: Arch) -> tuple[Coordinate, ...]:
    """Blocks that share the steps of all tiles; 0: none do, a block has a tile, or a part of one."""
    if not serves(e):
        return ()
    blocks = {max(2, int(arch.sms * each)) for each in PER_SM}
    return (
        Coordinate(NAME, (0, *sorted(blocks)), 0, "split", "blocks that share the steps of all tiles", runtime=True),
    )


def blocks_of(program: Program) -> int:
    """Blocks that share a Program's steps; 0 where none do."""
    return dict(program.values).get(NAME, 0)


def branches(program: Program) -> frozenset[str]:
    """Coverage names of a stream's kernel."""
    return BRANCHES if blocks_of(program) else frozenset()


def constants(program: Program) -> dict[str, int | str]:
    """Macro bindings of a stream."""
    return {"STREAM": 1} if blocks_of(program) else {}


def workspace_bytes(program: Program, e: Extents) -> int:
    """Bytes of a flag and the sums of a tile for every block."""
    sums = program["block_m"] * program["block_n"] * e.bytes_acc
    return blocks_of(program) * (FLAG_BYTES + sums)


def tiling(found: Tiling, program: Program) -> Tiling:
    """Arguments of a stream: it has a mark where others have parts of k."""
    return replace(found, split=MARK[0], k_per_split=MARK[1]) if blocks_of(program) else found


def launch(main: Launch, program: Program) -> Launch:
    """The launch of a stream's blocks, of which no more run than the compiler was promised."""
    blocks = blocks_of(program)
    return replace(main, grid=blocks, per_sm=program["min_blocks"], together=True) if blocks else main


def promised(columns: Columns, arch: Arch) -> Any:
    """Blocks per multiprocessor that a stream needs; 0 where none is."""
    blocks = columns.get(NAME)
    return 0 if blocks is None else -(-blocks // arch.sms)


def legal(c: Columns, arch: Arch) -> Any:
    """Blocks of a stream wait for one another: as many as were promised to the compiler fit on the device. Without a
    promise it may aim at more of them, and spill."""
    blocks = c.get(NAME)
    if blocks is None:
        return True
    return (blocks == 0) | ((c["split_k"] == 1) & (blocks <= c["min_blocks"] * arch.sms))


def registers(c: Columns) -> Any:
    """Registers a stream needs beside those of its tiles: where it is, and how far. From the SASS of 14."""
    blocks = c.get(NAME)
    return 0.0 if blocks is None else (blocks > 0) * np.float32(STREAM_REGISTERS)


def streamed(terms: Terms, c: Columns, e: Extents, arch: Arch, outputs: Any) -> Terms:
    """The terms of Programs, some of which are streams; ``outputs`` those of a block.

    A stream's block has all its steps in one round.  What it does between them is added to its epilogue: the start and
    end of every tile but one, and the sums it writes for others and reads from them.
    """
    blocks = c.get(NAME)
    if blocks is None or not blocks.any():
        return terms
    on = blocks > 0
    tiles, steps = terms.blocks, terms.iterations
    wide = np.maximum(blocks, 1).astype(np.float32)
    whole = np.where(tiles % wide == 0, tiles, np.maximum(np.floor(tiles / wide) - 1, 0) * wide)
    rest = (tiles - whole) * steps
    active = np.maximum(np.minimum(wide, rest), 1)
    share = np.ceil(rest / active)
    own = np.floor(whole / wide)
    # A share that is no whole number of tiles, or no whole part of one, meets one tile more.
    aligned = (share % steps == 0) | (steps % np.maximum(share, 1) == 0)
    met = np.ceil(share / steps) + ~aligned
    parts = np.where(aligned, np.ceil(steps / np.maximum(share, 1)), np.ceil(steps / np.maximum(share, 1)) + 1)
    others = np.where((share > 0) & (share != steps), parts - 1, 0)
    ended = own + np.ceil(share / steps)
    sums = outputs * e.bytes_acc
    latency = arch.l2_latency * FLAG_TRIPS
    crowd = np.maximum(np.ceil(wide / arch.sms), 1.0)
    moved = sums * (others > 0) * (1 + others)
    fixing = (others > 0) * latency + others * arch.l2_latency + moved / SM_L2_BYTES
    begun = (own + met - 1) * (arch.dram_latency + terms.prologue)
    terms.blocks = np.where(on, np.where(whole > 0, wide, active), tiles)
    terms.iterations = np.where(on, own * steps + share, steps)
    terms.residents = np.where(on, np.minimum(terms.residents, crowd), terms.residents)
    terms.epilogue = np.where(on, terms.epilogue * ended + begun + fixing, terms.epilogue)
    busy = np.maximum(moved / SM_L2_BYTES, moved * arch.sms / arch.l2_bytes_per_clk)
    terms.epilogue_busy = np.where(on, terms.epilogue_busy * ended + busy, terms.epilogue_busy)
    return terms
