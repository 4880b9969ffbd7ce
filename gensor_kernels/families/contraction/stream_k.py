"""Stream-K: a fixed number of blocks shares the steps of k of all tiles evenly (stream_k.cuh).

After Osama, Merrill, Cecka, Garland and Owens, arXiv:2301.03598: whole waves of tiles are computed as usual, but for
the last one; the tiles of the last wave and of the partial wave after it are cut into equal shares ("two-tile"
stream-K).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Columns, Coordinate, Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import SM_L2_BYTES, Terms

from .problem import Extents

NAME = "stream"
#: Blocks of a stream, the same on every part: one, two or more on each multiprocessor of most, and less.
BLOCKS = (4, 8, 16, 24, 32, 40, 56, 64, 80, 108, 128, 132, 148, 160, 170, 216, 256, 264, 296, 324, 340, 396, 432)
#: Bytes of a block's flag in the workspace; sums begin at a multiple of 16.
FLAG_BYTES = 16
#: Shared bytes of a tile's place while a main loop has no registers for it.
PLACE_BYTES = 32
#: Trips to the L2 between the last store of a block's sums and the first load of another, and for each block whose sums
#: are added: stores and the fence behind them, the flag's store, its load. Fitted to 40 times of streams on an H100.
FLAG_TRIPS, SUM_TRIPS = 20.0, 3.5
#: Share of a step's time that steps of cut tiles take longer: blocks stand at different places of k, and find less of
#: each other's operands in the L2. On an H100 streams that cut tiles took 4 to 19 % longer than was predicted without,
#: from 2048^3 to 4096^3; of the values tried, this one orders the kernels timed there best.
APART = 0.1
#: Value of a flag that is set, in two halves (stream_mark): drawn by each process, because a new workspace must not
#: hold it by chance.
MARK = (secrets.randbits(31), secrets.randbits(31))
#: Registers of a thread without its tiles' registers: position and progress of the block. SASS of 40 Programs has 0 to
#: 30.
STREAM_REGISTERS = 14.0
#: STREAM_REGISTERS where sums are doubles: 12 to 36 in the SASS of 32 Programs.
DOUBLE_STREAM_REGISTERS = 30.0
#: Coverage names of a stream's kernel.
BRANCHES = frozenset({"whole_tile", "stream_leave", "stream_join"})


def serves(e: Extents) -> bool:
    """Whether the products of a class can be streamed: plain ones. The sums of a gate leave no registers for it."""
    return not (e.rows or e.norm or e.prologue or e.gate)


def coordinate(e: Extents) -> tuple[Coordinate, ...]:
    """Return the blocks that share the steps of all tiles; 0: none do, a block has a tile, or a part of one."""
    if not serves(e):
        return ()
    doc = "blocks that share the steps of all tiles"
    return (Coordinate(NAME, (0, *BLOCKS), 0, "split", doc, runtime=True),)


def blocks_of(program: Program) -> int:
    """Return the blocks that share a Program's steps; 0 where none do."""
    return program.get(NAME)


def tile(program: Program) -> dict[str, int]:
    """Return what verification cases need to know of a stream."""
    return {"stream": 1} if blocks_of(program) else {}


def promise(program: Program) -> int:
    """Return the blocks per multiprocessor that a stream's compiler was promised; 0 where none is."""
    return program["min_blocks"] if blocks_of(program) else 0


def branches(program: Program) -> frozenset[str]:
    """Coverage names of a stream's kernel."""
    return BRANCHES if blocks_of(program) else frozenset()


def constants(program: Program) -> dict[str, int | str]:
    """Return the macro bindings of a stream."""
    return {"STREAM": 1} if blocks_of(program) else {}


def workspace_bytes(program: Program, e: Extents) -> int:
    """Return the bytes of a flag and the sums of a tile for every block."""
    blocks = blocks_of(program)
    return blocks * (FLAG_BYTES + program["block_m"] * program["block_n"] * e.bytes_acc) if blocks else 0


def tiling(found: Tiling, program: Program) -> Tiling:
    """Arguments of a stream: it has a mark where others have parts of k."""
    return replace(found, split=MARK[0], k_per_split=MARK[1]) if blocks_of(program) else found


def launch(main: Launch, program: Program) -> Launch:
    """Return the launch of a stream's blocks, of which no more run than the compiler was promised."""
    blocks = blocks_of(program)
    return replace(main, grid=blocks, per_sm=program["min_blocks"], together=True) if blocks else main


def least_blocks(columns: Columns, arch: Arch) -> Numbers:
    """Return the blocks per multiprocessor that a stream needs; 0 where none is."""
    blocks = columns.get(NAME)
    return 0 if blocks is None else -(-blocks // arch.sms)


def default(columns: Columns, arch: Arch) -> dict[str, Numbers]:
    """Return the blocks that a stream needs as a default of ``min_blocks``, where a family has streams."""
    return {"min_blocks": least_blocks(columns, arch)} if NAME in columns else {}


def place_bytes(c: Columns | Mapping[str, int]) -> Numbers:
    """Return the bytes of shared memory after a ring in which a stream keeps a tile's place (PLACE_BYTES)."""
    blocks = c.get(NAME)
    return 0 if blocks is None else (blocks > 0) * PLACE_BYTES


def registers(c: Columns, each: float = STREAM_REGISTERS) -> Numbers:
    """Return the registers a stream needs in addition to its tiles' registers: ``each`` per thread."""
    blocks = c.get(NAME)
    return 0.0 if blocks is None else (blocks > 0) * np.float32(each)


def with_streams(
    terms: Terms, c: Columns, e: Extents, arch: Arch, outputs: np.ndarray, iterations: float = 1.0
) -> Terms:
    """Return the terms of Programs, some of which are streams; ``outputs`` of a block, ``iterations`` of a step.

    A stream's block has all its steps in one round.  What it does between them is added to its epilogue: the start and
    end of every tile but one, and the sums it writes for others and reads from them.
    """
    given = c.get(NAME)
    if given is None or not given.any():
        return terms
    on = np.flatnonzero(given)
    blocks, tiles = given[on].astype(np.float32), terms.blocks[on]
    steps = np.rint(terms.iterations[on] * np.float32(1 / iterations))
    shares = _shares(blocks, tiles, steps)
    left = outputs[on] * np.float32(e.bytes_acc) * (shares.others > 0)
    moved = left * (1 + shares.others)
    waits = (shares.others > 0) * (arch.l2_latency * FLAG_TRIPS) + shares.others * (arch.l2_latency * SUM_TRIPS)
    begun = (shares.met - 1) * (arch.dram_latency + np.broadcast_to(terms.prologue, terms.blocks.shape)[on])
    ended, traffic = shares.ended, moved * (1 / SM_L2_BYTES)
    busy = np.maximum(traffic, moved * (arch.sms / arch.l2_bytes_per_clk))
    crowd = np.maximum(np.ceil(blocks * (1 / arch.sms)), 1.0)

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        found = old.copy()
        found[on] = new
        return found

    terms.blocks = put(terms.blocks, blocks)
    terms.iterations = put(terms.iterations, (shares.steps + APART * shares.cut) * np.float32(iterations))
    terms.residents = put(terms.residents, np.minimum(terms.residents[on], crowd))
    terms.epilogue = put(terms.epilogue, terms.epilogue[on] * ended + begun + waits + traffic)
    terms.epilogue_busy = put(terms.epilogue_busy, terms.epilogue_busy[on] * ended + busy)
    return terms


class _Shares(NamedTuple):
    """Shares of the busiest block: ``steps``, those of tiles that are ``cut``, tiles ``met`` and ``ended``, and
    ``others`` whose sums it adds."""

    steps: np.ndarray
    cut: np.ndarray
    met: np.ndarray
    ended: np.ndarray
    others: np.ndarray


def _shares(blocks: np.ndarray, tiles: np.ndarray, steps: np.ndarray) -> _Shares:
    """Return the shares that struct Stream of stream_k.cuh deals out, for the busiest block."""
    waves = np.floor(tiles / blocks)
    own = np.where(tiles == waves * blocks, waves, np.maximum(waves - 1, 0))
    rest = (tiles - own * blocks) * steps
    active = np.maximum(np.minimum(blocks, rest), 1)
    share = np.ceil(rest / active)
    touched, parts = np.ceil(share / steps), np.ceil(steps / np.maximum(share, 1))
    # Shares that are neither whole tiles nor whole parts of one meet one tile more.
    even = active * share == rest
    whole, cut = even & (touched * steps == share), even & (parts * share == steps)
    apart = ~(whole | cut)
    others = np.where(whole, 0, parts - 1 + apart)
    return _Shares(own * steps + share, share * (others > 0), own + touched + apart, own + touched, others)
