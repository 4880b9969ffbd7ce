"""Tabulated cost of contraction_wgmma: registers that change hands, ring, products (wgmma_*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import BLOCK_START, Loop, shared_parts
from gensor_kernels.families.contraction.norm import norm_parts
from gensor_kernels.families.contraction.problem import Extents, extents, scales_of_b
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Coordinate, Part, Values
from gensor_kernels.families.core.tensor_maps import ROW_BYTES
from gensor_kernels.machine.arch import BFLOAT16_PRODUCTS, Arch
from gensor_kernels.machine.roofline import SUBCORES, Terms
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, PARTS
from gensor_kernels.operators.types.workload import Workload

from . import column as wgmma
from .cluster import boxed_columns, cluster_parts
from .implicit_gemm import taps
from .store import copies, rest_columns, store_parts


class Kind(NamedTuple):
    """Multiplication of a type of elements: their bytes, the rate (Arch), the SASS opcode, types of C.

    ``promoted``: short sums are added to float32 ones, one of a step, or, of elements in ``parts``, one more for every
    PRODUCT_BYTES of k.  ``products`` of parts stand for one.  ``summed``: the type of short sums that have few bits.
    ``together``: values of k that are one element.
    """

    element: int
    rate: str
    opcode: str
    outputs: tuple[str, ...] = ("float16", "bfloat16", "float32")
    promoted: bool = False
    summed: str = ""
    parts: int = 1
    products: int = 1
    together: int = 1

    @property
    def k_contiguous(self) -> bool:
        """Only 16-bit elements are multiplied from rows of k."""
        return self.element != 2

    @property
    def overlaps(self) -> bool:
        """Short sums of whole steps can be added while the next products run."""
        return self.promoted and self.parts == 1


INTEGERS = ("int32", "int8", "float16", "bfloat16", "float32")
KINDS = {
    "float16": Kind(2, "peak_f16", "HGMMA"),
    "bfloat16": Kind(2, "peak_f16", "HGMMA"),
    "tf32": Kind(4, "peak_tf32", "HGMMA"),
    "int8": Kind(1, "peak_s8", "IGMMA", INTEGERS),
    "float8": Kind(1, "peak_f8", "QGMMA", promoted=True, summed="float22"),
    PARTS: Kind(2, "peak_f16", "HGMMA", ("float32",), promoted=True, parts=3, products=BFLOAT16_PRODUCTS),
}


def columns(e: Extents, kind: Kind) -> tuple[int, ...]:
    """Return the columns that a block may have: steps of 8 are those of plain 16-bit products alone.

    Where B is N-contiguous, a box at least, which has its bytes whole.
    """
    if e.unit["b"] == "n":
        return BLOCKS_N_ROWS if e.gate else BLOCKS_N[7:]
    step = 8 if kind.element == 2 and kind.parts == 1 and not e.gate else 16
    return BLOCKS_N[step // 8 - 1 :: step // 8]


def kind(workload: Workload) -> Kind | None:
    """Return the row of KINDS of a product's operands, or None if warpgroups do not multiply them."""
    a, b = (extents(workload).dtype[operand] for operand in "ab")
    if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS:
        return KINDS["float8"]
    return KINDS.get("tf32" if workload.math == "tf32" else a) if a == b else None


def heat(workload: Workload, arch: Arch) -> float:
    """Return the share of the clock that products take where they are always busy."""
    found = kind(workload)
    return arch.heat(found.rate) if found else 0.0


BLOCKS_M = (64, 128, 192, 256)
#: Columns per block, in steps of the product; of a gate's matrices that are N-contiguous, whole rows of swizzled boxes.
BLOCKS_N, BLOCKS_N_ROWS = tuple(range(8, 257, 8)), (64, 128, 192, 256)
#: Bytes of k per step; sums of 8-bit floats are kept for the first of these only.
STEP_BYTES = (128, 256)
STAGES = (2, 3, 4, 5, 6, 7, 8)
CONSUMERS = (1, 2, 3)
#: A block per tile; blocks that walk tiles; and whose warpgroups take these in turn, or are some steps apart.
PERSISTENT = ONE_TILE, WALKING, IN_TURNS, APART = (0, 1, 2, 3)
#: Rows and bytes of k of one product, threads of a warpgroup, bytes for mbarriers before the ring.
PRODUCT_ROWS, PRODUCT_BYTES, GROUP_THREADS, RING = 64, 32, 128, 1024
#: Registers a multiplying thread needs in addition to its sums, and where it continues with other tiles or fills boxes.
OTHER_REGISTERS, WALKING_REGISTERS = 32, 64
#: Registers with which an epilogue's operations store the rest of a row.
REST_REGISTERS = 8
#: Registers of a main loop of 8-bit floats in addition to sums and short sums.
LOOP_REGISTERS = 16
#: 1: a warpgroup has two sets of short sums, and adds one while the products of the other run.
OVERLAPPED = "overlapped"
#: Clocks in which the requesting thread issues a step, and one of its copies: stall counts in the SASS of twelve
#: Programs.
STEP_ISSUE, COPY_ISSUE = 70.0, 4.0
#: Clocks by which a tensor copy takes longer than the load whose latency archs.toml has, and two mbarriers are waited
#: for, of which one says that a buffer is free, and one that it is full: an estimate, not measured.
COPY_LATENCY = 200.0
#: Clocks in which another block's shared memory is reached: a pair's buffer is free where it is free in both blocks. An
#: estimate.
PEER_LATENCY = 180.0
#: Instructions of a thread that loads the scales of a step: of B and all addresses, and of the two rows of a tile of
#: 64, counted in the SASS of two Programs; registers without the scales and their products, an estimate.
SCALING, ROW_SCALING, SCALE_REGISTERS = 20.0, 6.0, 10
#: Scales of B that the columns of a tile may have: with three, sums do not fit the registers.
MOST_SCALES = 2
#: Instructions per sum that choose its factor of two: for 16 columns a comparison and two choices of eight sums' own,
#: counted in the SASS of a Program.
CHOOSING = 0.65
#: Clocks of an iteration in which a lone warpgroup has nothing on its way: it waits for a buffer, then issues.
TURN = 30.0
#: Clocks for which sums are waited for before they are added: the products on their way end first. Fitted to times of
#: 8-bit floats on an H100.
DRAIN = 120.0
#: Clocks in which a block makes its mbarriers and its warpgroups exchange registers, before the first request: blocks
#: that walk tiles gain as much for each. Fitted to times on an H100.
GROUPS_START = 800.0
#: Share of hidden work that stays in sight. Fitted to times on an H100.
EXPOSED = 0.06


def entry_registers(consumers: Numbers, blocks: Numbers, arch: Arch) -> Numbers:
    """Return the registers of each thread at entry, for ``blocks`` per SM."""
    threads = GROUP_THREADS * (consumers + 1)
    return np.minimum(arch.regs_per_sm // (threads * blocks) // 8 * 8, 256)


def multiplying_registers(consumers: Numbers, blocks: Numbers, arch: Arch) -> Numbers:
    """Return the registers of a multiplying thread once the others have given theirs."""
    entry = entry_registers(consumers, blocks, arch)
    given = np.where(consumers == 3, 32, 40)
    taken = np.minimum(240, (entry * (consumers + 1) - given) // consumers // 8 * 8)
    return np.where(entry > 240, arch.regs_per_thread, taken)


def ring_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of the shared buffers."""
    columns = e.matrices * boxed_columns(v["block_n"], e)
    return v["stages"] * (v["block_m"] + columns) * v["block_k"] * e.bytes_a


def sharing(v: Mapping[str, Numbers]) -> Numbers:
    """Warpgroups that multiply a tile: one where they take turns."""
    return np.where(v["persistent"] == IN_TURNS, 1, v["consumers"])


def overlapped(kind: Kind) -> tuple[Coordinate, ...]:
    """Return whether a warpgroup adds short sums while its next products run."""
    doc = "1: short sums are added while the next products run"
    return (Coordinate(OVERLAPPED, (0, 1), 2, "stages", doc),) if kind.overlaps else ()


def group_rows(v: Mapping[str, Numbers]) -> Numbers:
    """Return the tiles of 64 rows that a warpgroup multiplies."""
    return v["block_m"] // (PRODUCT_ROWS * sharing(v))


def shared_bytes(ring: Numbers, slab: Numbers, persistent: Numbers) -> Numbers:
    """Return the dynamic shared bytes of a block: mbarriers, the ring, and slabs in its place or, where blocks walk,
    after it."""
    return RING + np.maximum(ring + (persistent > 0) * slab, slab)


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_wgmma tabulates."""
    e, own = extents(workload), kind(workload)
    assert own is not None
    return (
        *shared_parts(e, arch, taps(workload)),
        *cluster_parts(e),
        _products(own, e, arch),
        Part(("block_m", "block_n", "consumers", "persistent"), _ends, fixed=True),
        _registers(own, e, arch),
        Part(("block_m", "block_n", "block_k", "stages"), lambda v: {column.RING: ring_bytes(v, e)}, fixed=True),
        # A buffer is given back once its products are done, and needed again `stages` - 1 iterations later.
        Part(("stages",), lambda v: {column.IN_FLIGHT: v["stages"] - 1.0}, fixed=True),
        requests(own, e),
        *store_parts(e),
        *(norm_parts(e, arch) if e.norm else ()),
    )


def _products(kind: Kind, e: Extents, arch: Arch) -> Part:
    """Return a block's iteration, seen as if its warps, requesting warps included, shared the work evenly."""
    rate, depth = arch.rate(kind.rate), PRODUCT_BYTES // kind.element

    def function(v: Values) -> dict[Column, np.ndarray]:
        groups = v["consumers"] + 1
        at_once = sharing(v)
        share = at_once / groups
        tiles = np.maximum(group_rows(v), 1)
        steps = v["block_k"] // depth
        count = tiles * steps * kind.products
        # A product reads its own rows of A and all columns of B, both matrices'; every element is written once.
        columns = e.matrices * v["block_n"]
        read = count * at_once * (PRODUCT_ROWS + columns) * PRODUCT_BYTES
        boxed = e.matrices * boxed_columns(v["block_n"], e)
        written = (v["block_m"] + boxed) * v["block_k"] * kind.element * kind.parts
        math = v["block_m"] * columns * v["block_k"] * kind.products / rate
        # Sums that are added are waited for, tile by tile, while the other warpgroups of the tile multiply: those that
        # take tiles in turn wait for their turn.
        waited = kind.promoted * tiles * (1 + (kind.parts > 1) * steps)
        added = waited * columns / 2
        # Scales are loaded and multiplied by one another once a step, and multiplied into sums as these are added.
        scaling = e.in_blocks * (SCALING + ROW_SCALING * tiles)
        if e.in_blocks:
            scaling = scaling + (scales_of_b(columns, e.group) > 1) * CHOOSING * added
        turn = np.where(at_once == 1, TURN, 0.0)
        own = math / at_once + turn + added + scaling + waited * DRAIN
        if kind.overlaps:  # a round of tiles waits for its first products, and adds each set while others run
            ran, adding = math / (at_once * tiles) + DRAIN, (added + scaling) / tiles
            later = np.maximum(ran - DRAIN, np.where(tiles > 2, (ran + adding) / 2, adding))
            steps_of_round = 1 + tiles % 2
            whole = turn + ran + (tiles * steps_of_round - 1) * later
            own = np.where(v[OVERLAPPED], whole / steps_of_round, own)
        chain = np.maximum(own - math, 0) if kind.promoted else turn
        return {
            column.WARPS: 4 * groups,
            column.MATH: math / groups,
            column.MULTIPLIES: count * share,
            # Counted in the SASS of hot loops.
            column.ISSUE: (30 + 3.5 * count + added + scaling) * share,
            wgmma.WAVEFRONTS: (read + written) / 128.0,
            column.CHAIN: chain,
            column.STAGING_ROWS: tiles * 1.0,
            column.K_STEPS: steps,
        }

    overlapped = (OVERLAPPED,) if kind.overlaps else ()
    return Part(("block_m", "block_n", "block_k", "consumers", "persistent", *overlapped), function, fixed=e.is_steady)


def requests(kind: Kind, e: Extents) -> Part:
    """Tabulate the requests of a step: boxes of UNIT elements along an operand's contiguous axis (wgmma_ring.cuh)."""
    unit = ROW_BYTES // kind.element * kind.together

    def function(v: Values) -> dict[Column, np.ndarray]:
        rows = {"a": v["block_m"], "b": boxed_columns(v["block_n"], e)}
        boxes_a, boxes_b = ((v["block_k"] if e.unit[x] == "k" else rows[x]) / unit for x in "ab")
        issuing = STEP_ISSUE + COPY_ISSUE * kind.parts * (boxes_a + e.matrices * boxes_b)
        return {
            wgmma.ISSUING: issuing,
            wgmma.REQUEST: issuing + COPY_LATENCY + (v["cluster"] > 0) * PEER_LATENCY,
            wgmma.BOXED: rows["b"] / v["block_n"],
        }

    return Part(("block_m", "block_n", "block_k", "cluster"), function, fixed=True)


def _ends(v: Values) -> dict[Column, np.ndarray]:
    """Tabulate begin and end of tiles. Later tiles begin while the tile before is multiplied, where blocks walk, and
    end while the next one is, where warpgroups take turns."""
    turns, walks, at_once = v["persistent"] == IN_TURNS, v["persistent"] > 0, sharing(v)
    return {
        wgmma.STORING: 4.0 * np.where(walks, at_once, v["consumers"] + 1),
        column.OUTPUTS: v["block_m"] * v["block_n"] / (4.0 * at_once),
        wgmma.AHEAD: walks * 1.0,
        wgmma.BEHIND: np.where(turns, v["consumers"] - 1.0, 0.0),
        wgmma.TAKING: at_once / v["consumers"],
        wgmma.SHARE: at_once / (v["consumers"] + 1.0),
    }


def _registers(kind: Kind, e: Extents, arch: Arch) -> Part:
    """Tabulate registers at entry; registers that sums need beyond a multiplying thread's come on top, as spills."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        consumers, blocks = v["consumers"], np.maximum(v["min_blocks"], 1)
        tiles = np.maximum(group_rows(v), 1)
        columns = e.matrices * v["block_n"]
        # Copies of sums that no operation changes, as the compiler knows, are unrolled.
        unchanged = copies(v) & (v["epilogue_fixed"] > 0) & (not e.steps and not e.gate)
        walking = ((v["persistent"] > 0) | copies(v)) & ~unchanged
        others = np.where(walking, WALKING_REGISTERS, OTHER_REGISTERS)
        others = others + (copies(v) & ~unchanged & (rest_columns(v["block_n"], e) > 0)) * REST_REGISTERS
        wanted = tiles * columns // 2 + others
        if kind.promoted:  # short sums are dead in the epilogue
            sets = 1 + v[OVERLAPPED] if kind.overlaps else 1
            loop = (tiles + sets) * columns // 2 + (others if kind.parts > 1 else LOOP_REGISTERS)
            if e.in_blocks:
                scales = scales_of_b(columns, e.group)
                loop = loop + SCALE_REGISTERS + 2 * scales + 2 * (1 + scales) * tiles
            wanted = np.maximum(wanted, loop)
        most = multiplying_registers(consumers, blocks, arch)
        entry = np.minimum(entry_registers(consumers, blocks, arch), arch.regs_per_thread)
        return {wgmma.ENTRY: entry + np.maximum(wanted - most, 0)}

    names = ("block_m", "block_n", "consumers", "min_blocks", "persistent", "epilogue_staged", "epilogue_fixed")
    return Part((*names, OVERLAPPED) if kind.overlaps else names, function, fixed=e.is_steady)


def hidden_apart(terms: Terms, consumers: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the share of a block's main loop that runs during the end of a tile where warpgroups are apart.

    While one stores its results, the others multiply the buffers between them: all of the ring but one, and those that
    a tile passes on its way (roofline.py's ``fill``).
    """
    step = np.ceil(terms.warps * (1 / SUBCORES)) * terms.math
    transfer = terms.l2_bytes * (arch.sms / arch.l2_bytes_per_clk)
    under_way = (arch.l2_latency + terms.request + transfer) / step
    # Integers would turn it into doubles, and batches that have a walking block into others than those that have none.
    return np.maximum(terms.in_flight - under_way, 0.0) / (consumers.astype(np.float32) * terms.iterations)


def warpgroup_loop(c: Columns, memory: np.ndarray, rows: np.ndarray, touched: np.ndarray, heat: float) -> Loop:
    """Return the Loop that kernels of warpgroups have in common; ``rows`` counts 16-row passes of a staged epilogue."""
    return Loop(
        warps=c[column.WARPS],
        math=c[column.MATH],
        multiplies=c[column.MULTIPLIES],
        issue=c[column.ISSUE],
        wavefronts=c[wgmma.WAVEFRONTS],
        chain=c[column.CHAIN],
        in_flight=c[column.IN_FLIGHT],
        exposed=np.full_like(c[column.MATH], EXPOSED),
        heat=heat,
        start=BLOCK_START + GROUPS_START,
        registers=c[wgmma.ENTRY],
        memory=memory,
        outputs=c[column.OUTPUTS],
        touched=touched,
        staging=rows * (60.0 + c[wgmma.STORING] * c[column.STAGING_CLOCKS]),
        storing=c[wgmma.STORING],
    )
