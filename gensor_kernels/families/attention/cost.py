"""Terms of attention for the roofline: grid, L2 and DRAM bytes, residency, start and end of a block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import BOUNDS, L2_USABLE, SEARCH, Loop, fixed_terms, reduction
from gensor_kernels.families.contraction.mma.cost import unswizzled_degree
from gensor_kernels.families.contraction.mma.instructions import (
    BARRIER,
    INSTRUCTIONS,
    MMA_LATENCY,
    READ_LATENCY,
    Instruction,
    instructions,
)
from gensor_kernels.families.contraction.problem import power_of_two_in
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Facts, Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.workload import Workload

from . import column as own
from . import mask
from .order import unevenness
from .shape import ELEMENT, Sizes, sizes_of

#: Instructions of the main loop that only run in tiles which the diagonal or the edge cuts: per score.
CUT_ISSUE = 3.0


def loop_of(c: Columns, registers: np.ndarray, memory: np.ndarray) -> Loop:
    """Return a step of keys; names as in roofline.Terms."""
    warps = c[column.WARPS]
    copies = c[own.COPIES["k"]] + c[own.COPIES["v"]]
    passes = c[own.PASSES["k"]] + c[own.PASSES["v"]]
    issue = c[own.WEIGH_ISSUE] + c[own.READ_ISSUE] + copies * c[column.COPY_ISSUE] + passes * c[own.PASS_ISSUE]
    return Loop(
        warps=warps,
        math=c[column.MATH],
        multiplies=c[column.MULTIPLIES],
        issue=issue,
        wavefronts=warps * (c[own.READ_CLOCKS] + c[own.COPY_CLOCKS["k"]] + c[own.COPY_CLOCKS["v"]])
        + c.get(mask.LINES, 0.0),
        chain=c[column.CHAIN],
        in_flight=c[column.IN_FLIGHT],
        exposed=c[column.EXPOSED],
        registers=registers,
        memory=memory,
        outputs=c[column.OUTPUTS],
        staging=c["epilogue_staged"] * (c["warp_q"] / 16.0) * (60.0 + warps * c[column.STAGING_CLOCKS]),
        touched=np.float32(2.0) * np.ones_like(warps),
        slot=0.5,  # keys, then values
    )


def dram_bytes(c: Columns, e: Sizes, blocks: np.ndarray, residents: np.ndarray, arch: Arch) -> np.ndarray:
    """Q once, and K and V once for each time that the blocks of an entry come by and do not find them in the L2."""
    window = np.minimum(blocks, residents * arch.sms)
    per_entry = c[own.TILES] * c["split_k"] * e.parts / e.sequences
    entry = 2.0 * ELEMENT * e.read * e.n
    passes = np.maximum(per_entry / window, 1.0)
    held = np.ceil(window / per_entry) * entry
    lost = np.maximum(1.0 - arch.l2_mb * 2**20 * L2_USABLE / held, 0.0)
    share = np.minimum(c[column.ITERATIONS] * c["split_k"] * c["block_k"] / e.read, 1.0)
    entries = float(e.batch) / e.parts * e.sequences
    once = float(e.batch) * e.m * e.n * ELEMENT + entries * entry + e.mask_whole
    return once + entries * entry * (passes - 1.0) * lost * share


def assemble(
    c: Columns,
    e: Sizes,
    arch: Arch,
    facts: Facts | None,
    loop: Loop,
    cut: np.ndarray | float = 0.0,
    together: np.ndarray | float = 1.0,
) -> Terms:
    """Return the complete terms; ``cut`` are instructions of the compiled main loop that most steps skip, ``together``
    the units whose longest blocks start first."""
    blocks = c[own.TILES] * c[column.SLABS]
    known = fixed_terms(c, e, arch, facts, loop, finishing=3, cut=cut)
    search = SEARCH * (e.sequences // 32 + 1) if e.form.ragged else 0.0
    rows = c[own.HELD_Q] * (e.n * ELEMENT)
    return Terms(
        # Rows of Q: about ten instructions a piece, four on their way at a time.
        **known | {"prologue": loop.start + search + rows / (16 * 32) / loop.warps * 30.0},
        blocks=blocks,
        iterations=c[column.ITERATIONS],
        l2_bytes=c["block_k"] * (2.0 * ELEMENT * e.n) + c.get(mask.READ, 0.0),
        dram_bytes=dram_bytes(c, e, blocks, known["residents"], arch),
        epilogue_bytes=c[column.WRITTEN],
        after=c[column.AFTER],
        # Sequences differ in their lengths, which only the device knows.
        uneven=1.0
        if e.form.ragged
        else unevenness(
            (c[column.ITERATIONS], c[own.LONGEST], c[own.SHORTEST], c[own.SQUARE]),
            c[own.TILES],
            c[column.SLABS],
            together,
            known["residents"] * arch.sms,
        ),
    )


BLOCKS = tuple(range(16, 257, 16))
HEADS = tuple(range(16, 257, 16))
WARP_ROWS = (16, 32)
SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
#: Clocks a sub-core's special-function unit takes for a warp's exponentials: 16 lanes per clock and SM.
EXPONENTIAL = 8.0
#: Instructions of a pass of copies, a row of keys: its address; of pages also the page's load, bounds and product.
PASS_ISSUE, PAGED_ISSUE = 2.4, 11.0
#: Share of hidden work that stays in sight, of copies through registers and of cp.async. Decoding with steps of 16 keys
#: took 1.14 to 1.98 times its prediction on an H100 at a share of 0.08, by warpgroups 0.98 to 1.36 times.
EXPOSED_THROUGH, EXPOSED = 0.37, 0.27
#: Instructions of a soft cap per score: product, exponential, sum, reciprocal.
CAP_ISSUE = 4.0
#: Clocks of the two shuffles that end a row's maximum, and of the steps that wait for it.
REDUCE = 110.0


def kind(workload: Workload) -> str:
    """Return the row of INSTRUCTIONS that a Workload uses."""
    return {"float16": "f16", "bfloat16": "bf16"}.get(workload.dtype["a"], "")


def choices(workload: Workload, arch: Arch) -> tuple[Instruction, ...]:
    """Return the instructions the Arch has for a Workload, best first."""
    return instructions(kind(workload), arch) if kind(workload) in INSTRUCTIONS else ()


def ring_bytes(v: Mapping[str, Numbers]) -> Numbers:
    """Return the bytes of Q and of the ring of K and V, of numbers or arrays."""
    return (v["block_q"] + 2 * v["stages"] * v["block_k"]) * v["head_tile"] * ELEMENT


def slab_bytes(v: Mapping[str, Numbers]) -> Numbers:
    """Return the bytes of a warp's slab in the staged epilogue: 16 rows of 4-byte words."""
    return v["epilogue_staged"] * v["head_tile"] * 64


def cut_issue(c: Columns) -> np.ndarray:
    """Return the instructions of the compiled main loop that only the tiles run which the diagonal or the edge cuts."""
    return c["warp_q"] * c["block_k"] * (CUT_ISSUE / 32)


def rows_of(block: np.ndarray, e: Sizes, whole: bool) -> np.ndarray:
    """Return the rows of a block: of ``block``, or with ``whole`` queries as many as these have."""
    return np.maximum(block // e.group, 1) * e.group if whole else block


def shared_parts(e: Sizes, arch: Arch, whole: bool) -> tuple[Part, ...]:
    """Tabulate what attention families have in common: grid, steps, splits, launch bounds, stores of outputs.

    With ``whole`` a block has all heads of a group of its queries.
    """

    def grid(v: Values) -> dict[Column, np.ndarray]:
        block = v["block_q"]
        tiles = e.tiles(rows_of(block, e, whole))
        return {own.TILES: tiles, own.HELD_Q: e.m / tiles}

    def splits(v: Values) -> dict[Column, np.ndarray]:
        written, after = reduction(v["split_k"], e, arch)  # type: ignore[arg-type]
        return {column.SLABS: v["split_k"] * e.batch, column.WRITTEN: written, column.AFTER: after}

    return (
        Part(("block_q",), grid),
        Part(("block_q", "block_k", "split_k"), _iterations(e, whole)),
        Part(("split_k",), splits),
        BOUNDS,
        Part(("head_tile", "epilogue_staged", "vector_c", "split_k"), _store(e)),
    )


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Everything attention tabulates."""
    e = sizes_of(workload)

    def warps(v: Values) -> dict[Column, np.ndarray]:
        return {column.WARPS: v["block_q"] // v["warp_q"]}

    def copy(v: Values) -> dict[Column, np.ndarray]:
        through = v["copy"] == 0
        return {
            column.IN_FLIGHT: np.where(through, 0.5, v["stages"] - 0.5),
            column.EXPOSED: np.where(through, EXPOSED_THROUGH, EXPOSED),
            column.COPY_ISSUE: np.where(through, 4.2, 4.6),
            own.PASS_ISSUE: np.full(len(through), PAGED_ISSUE if e.form.paged else PASS_ISSUE),
            own.HOLD: np.where(through, 0.8 * np.maximum(v["vector_k"] / 4, 1), 1.2),
        }

    return (
        *shared_parts(e, arch, whole=False),
        Part(("block_q", "warp_q"), warps),
        Part(("copy", "stages", "vector_k", "vector_v"), copy),
        Part(("block_q", "block_k", "head_tile", "stages"), lambda v: {column.RING: ring_bytes(v)}),
        Part(("warp_q", "block_k", "head_tile", "instruction", "q_registers"), _multiply(workload, arch)),
        Part(("warp_q", "block_k", "head_tile", "q_registers", "swizzle"), _read),
        *(Part(("block_q", "warp_q", "block_k", "head_tile", f"vector_{x}"), _copies(x)) for x in "kv"),
        *((mask.loaded_part(e),) if e.mask_bytes else ()),
    )


def _iterations(e: Sizes, whole: bool):
    """Tabulate the steps of blocks: these skip keys that they do not see."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        steps, longest, shortest, square = np.empty((4, len(v["block_q"])))
        for block in np.unique(v["block_q"]):
            rows = int(rows_of(block, e, whole))
            last = np.arange(rows - 1, e.rows + rows - 1, rows)
            seen, unseen = e.visible(last), e.unseen(last - (rows - 1))
            for keys in np.unique(v["block_k"]):
                at = (v["block_q"] == block) & (v["block_k"] == keys)
                own_steps = np.maximum(-(-seen // keys) - unseen // keys, 0)
                steps[at], square[at] = np.mean(own_steps), np.mean(own_steps**2)
                longest[at], shortest[at] = own_steps.max(), own_steps.min()
        each = steps / v["split_k"]
        cut = e.causal or e.form.windowed
        return {
            column.ITERATIONS: np.maximum(each if cut else np.ceil(each - 1e-9), 0.5),
            own.LONGEST: longest / v["split_k"],
            own.SHORTEST: shortest / v["split_k"],
            own.SQUARE: square / v["split_k"] ** 2,
        }

    return function


def _multiply(workload: Workload, arch: Arch):
    """Both products and the softmax of a warp's step."""
    known = choices(workload, arch)
    counts = {choice.code: choice.needed for choice in known}
    rate = arch.rate(known[0].rate) / 4
    e = sizes_of(workload)
    masked, capped = e.mask_bytes > 0, e.form.capped

    def function(v: Values) -> dict[Column, np.ndarray]:
        fragments = v["warp_q"] / 16
        scores, sums = v["warp_q"] * v["block_k"] / 32, v["warp_q"] * v["head_tile"] / 32
        count = np.array([counts[int(code)] for code in v["instruction"]])
        products = 2.0 * v["warp_q"] * v["block_k"] * v["head_tile"]
        math = products / rate * np.where(count == known[0].needed, 1, 2)
        # A soft cap is an exponential and a reciprocal more per score, both of the special-function unit.
        powers = ((3 if capped else 1) * scores + 2 * fragments) * EXPONENTIAL
        # Largest, difference, exponential, sum and half a conversion per score, and the zero it starts from.
        weigh = scores * (5.0 + mask.loaded_issue(e) + CAP_ISSUE * capped) + sums + 24 * fragments
        queries = np.where(v["q_registers"] == 1, sums / 2, 8 * fragments)
        return {
            # Exponentials and products use different pipes, and follow each other in a warp.
            column.MATH: np.maximum(math, powers),
            column.CHAIN: np.minimum(math, powers) + weigh + 2 * (BARRIER + READ_LATENCY + MMA_LATENCY) + REDUCE,
            column.MULTIPLIES: products / 2048 * count,
            own.WEIGH_ISSUE: weigh + 40,
            # Fitted to the allocations of NVRTC 12.9; products of two instructions each hold more operands.
            column.BASE_REGISTERS: 1.2 * sums
            + queries
            + scores * (1.25 + 0.5 * masked)
            + 12
            + 16 * fragments
            + np.where(count > 1, 0.2 * sums + 8, 0),
            column.OUTPUTS: v["warp_q"] * v["head_tile"],
        }

    return function


def _read(v: Values) -> dict[Column, np.ndarray]:
    """Return the instructions and shared clocks of a warp to read the fragments of a step."""
    steps = v["head_tile"] / 16
    matrices = 2 * steps * v["block_k"] / 16 + (1 - v["q_registers"]) * steps * v["warp_q"] / 16
    plain = np.array([unswizzled_degree(int(row)) for row in v["head_tile"] * ELEMENT])
    return {own.READ_ISSUE: matrices, own.READ_CLOCKS: matrices * 4 * np.where(v["swizzle"] == 1, 1, plain)}


def _copies(operand: str):
    """Return a thread's pieces of a tile of K or V (OperandTile in mma_tiles.cuh)."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        threads = 32 * np.maximum(v["block_q"] // v["warp_q"], 1)
        width = v[f"vector_{operand}"]
        pieces = v["head_tile"] * ELEMENT // width
        lanes = np.minimum(power_of_two_in(pieces), power_of_two_in(threads))
        passes, columns = -(-v["block_k"] * lanes // threads), pieces // lanes
        scattered = np.maximum(32.0 / lanes, width * 32 / 128) + np.maximum(width / 4, 1) + 1
        return {
            own.COPIES[operand]: passes * columns,
            own.PASSES[operand]: passes,
            own.COPY_CLOCKS[operand]: passes * columns * scattered * 0.5,
        }

    return function


def _store(e: Sizes):
    """Tabulate the stores of a warp's outputs."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        staged, split = v["epilogue_staged"] == 1, v["split_k"] > 1
        size = np.where(split, e.bytes_acc, e.bytes_c)
        wide = np.where(split, 16, v["vector_c"])
        width = np.where(staged, wide, np.minimum(wide, 2 * size))
        return {
            column.STORES: size / (width * 32.0),
            column.STORE_LINES: np.where(staged, np.maximum(width / 4, 1), 8.0),
            column.SLAB: slab_bytes(v),
            column.STAGING_CLOCKS: np.where(staged, v["head_tile"] * (16 * 4 * 2 / 128), 0.0),
        }

    return function
