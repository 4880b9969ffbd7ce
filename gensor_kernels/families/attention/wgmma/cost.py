"""Tabulated cost of attention_wgmma: warpgroups that multiply and weigh in turns, ring, registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gensor_kernels.families.attention import mask
from gensor_kernels.families.attention.cost import CAP_ISSUE, EXPONENTIAL, REDUCE, shared_parts, slab_bytes
from gensor_kernels.families.attention.order import units_together
from gensor_kernels.families.attention.shape import ELEMENT, Sizes, sizes_of
from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import Loop
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cost import (
    GROUP_THREADS,
    PRODUCT_BYTES,
    PRODUCT_ROWS,
    TURN,
    entry_registers,
)
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Coordinate, Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

#: Rows per block: 64 for each warpgroup that multiplies.
BLOCKS_Q = (64, 128, 192)
STAGES = tuple(range(2, 17))
POLYNOMIALS = Coordinate(
    "polynomials", (0, 1, 2, 3, 4), 2, "instruction", "eighths of the exponentials on the FMA pipe"
)
#: Instructions of a polynomial beyond those of an exponential, by the type of weights: counted in SASS.
EVALUATION = {"float16": 8.0, "bfloat16": 7.0}
#: Elements of a head in a row of a box, and bytes of such a row.
UNIT, ROW_BYTES = 64, 128
#: Rows of shared memory after a tile of Q: the most rows by which boxes of whole queries are longer.
SPARE = 8
#: Bytes for mbarriers before Q and the ring, and before the slabs of the epilogue.
FRONT = 1024
#: Instructions of a step without instructions per score and per sum: counted in SASS.
STEP_ISSUE = 110.0
#: Clocks of a step that products and softmax of several warpgroups do not hide, because these wait for one another:
#: fitted to the times of attention on an H100.
HANDED_ON = 400.0
#: Clocks of a score in the softmax in addition to what its instructions explain: fitted to the same times.
SLOWED = 7.0
#: Instructions of a score: largest, difference, exponential, total, half a conversion; those from the exponent on.
WEIGH_ISSUE, POWER_ISSUE = 4.5, 3.0
#: Clocks of a score's maximum, and of its half of a conversion: a sub-core issues one of either every two clocks.
LARGEST, PACK = 2.0, 1.0


def boxes(head: Numbers) -> Numbers:
    """Boxes of 64 elements that a head has."""
    return -(-head // UNIT)


def ring_bytes(v: Mapping[str, Numbers]) -> Numbers:
    """Return the bytes of Q and of the ring of tiles of K and V."""
    return boxes(v["head_tile"]) * ROW_BYTES * (v["block_q"] + SPARE + v["stages"] * v["block_k"])


def consumers(v: Mapping[str, Numbers]) -> Numbers:
    """Warpgroups that multiply."""
    return v["block_q"] // PRODUCT_ROWS


def shared_bytes(ring: Numbers, slab: Numbers, warps: Numbers) -> Numbers:
    """Return the dynamic shared bytes of a block: mbarriers, then Q and the ring, later replaced by slabs of warps."""
    return FRONT + np.maximum(ring, slab * warps)


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that attention_wgmma tabulates."""
    e = sizes_of(workload)

    def groups(v: Values) -> dict[Column, np.ndarray]:
        count = consumers(v)
        return {column.WARPS: 4 * (count + 1), wgmma.STORING: 4 * count}

    def stages(v: Values) -> dict[Column, np.ndarray]:
        # Two tiles to a step, and while a step is multiplied two buffers are not free.
        return {column.IN_FLIGHT: np.maximum(v["stages"] / 2 - 1.0, 0.5)}

    return (
        *shared_parts(e, arch, whole=True),
        Part(("block_q",), groups),
        Part(("stages",), stages),
        Part(("block_q", "block_k", "head_tile", "stages"), lambda v: {column.RING: ring_bytes(v)}),
        _steps(e, EVALUATION[workload.dtype["a"]], arch),
        _entry(arch),
        *mask_parts(workload, e),
    )


def mask_parts(workload: Workload, e: Sizes) -> tuple[Part, ...]:
    """Tabulate the mask of a Workload, if it has one."""
    if mask.is_copied(workload):
        return (mask.copied_part(e, SPARE),)
    return (mask.loaded_part(e),) if e.mask_bytes else ()


def with_mask(c: Columns, loop: Loop, rows: int = PRODUCT_ROWS) -> Loop:
    """Return a step that also applies a mask, by reads and instructions that no other work of a warp hides; a
    warpgroup has so many ``rows``."""
    if mask.LINES in c:
        count = c["block_q"] // rows
        apply = c["block_k"] * (rows / GROUP_THREADS) * c[mask.APPLY]
        loop.issue = loop.issue + apply * count / (count + 1)
        loop.chain = loop.chain + apply + c[mask.WAITED]
        loop.wavefronts = loop.wavefronts + c[mask.LINES]
    return loop


def _steps(e: Sizes, evaluation: float, arch: Arch) -> Part:
    """Return a step of a block, seen as if its warps, requesting warps included, shared the work evenly; a polynomial
    has ``evaluation`` instructions more than an exponential."""
    rate = arch.rate("peak_f16")
    more = CAP_ISSUE * e.form.capped  # instructions of a score

    def function(v: Values) -> dict[Column, np.ndarray]:
        count = consumers(v)
        share = count / (count + 1)
        scores, sums = v["block_k"] / 2, v["head_tile"] / 2  # of a thread
        half = PRODUCT_ROWS * v["block_k"] * v["head_tile"] / rate  # clocks of either product of a warpgroup
        # A soft cap is an exponential and a reciprocal more per score.
        by_polynomial = v["block_k"] // 8 * v["polynomials"] // 8 * 4
        powers = ((3 if e.form.capped else 1) * scores - by_polynomial + 2) * EXPONENTIAL
        evaluated = by_polynomial * evaluation
        # Warps of a sub-core share its special-function unit and its tensor core.
        math = np.maximum(2 * half, powers) * count
        products = (v["head_tile"] + v["block_k"]) * ELEMENT // PRODUCT_BYTES
        # The softmax overlaps the warpgroup's second product; rescaling its sums does not. Exponentials wait for the
        # largest score.
        weigh = scores * (LARGEST + more + SLOWED) + REDUCE + np.maximum(powers, scores * POWER_ISSUE + evaluated)
        path = half + np.maximum(half, weigh) + np.maximum(sums + scores / 2, scores * PACK) + TURN
        tile = boxes(v["head_tile"]) * ROW_BYTES * v["block_k"]
        read = count * (PRODUCT_ROWS * v["head_tile"] * ELEMENT + 2 * tile)
        return {
            column.MATH: math / (count + 1),
            column.MULTIPLIES: products * share,
            column.ISSUE: (STEP_ISSUE + scores * (WEIGH_ISSUE + more) + evaluated + sums) * share,
            column.CHAIN: np.maximum(path - math, 0.0) + np.where(count == 1, TURN, HANDED_ON),
            wgmma.WAVEFRONTS: (read + 2 * tile) / ROW_BYTES,
            column.OUTPUTS: 16 * v["head_tile"],
        }

    return Part(("block_q", "block_k", "head_tile", "polynomials"), function)


def _entry(arch: Arch) -> Part:
    """Tabulate registers at entry."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        count, blocks = np.clip(consumers(v), 1, 3), np.maximum(v["min_blocks"], 1)
        return {wgmma.ENTRY: np.minimum(entry_registers(count, blocks, arch), arch.regs_per_thread)}

    return Part(("block_q", "min_blocks"), function)


def together(c: Columns, e: Sizes) -> np.ndarray | float:
    """Return how many units start together, as order.taken_together does on the host."""
    if e.form.ragged or e.diagonal >= e.keys:
        return 1.0
    keys = np.ceil(e.keys / c["split_k"])
    return np.where(c["longest_first"] == 1, units_together(c[column.SLABS], e.n, keys), 1.0)


def threads(v: Mapping[str, int]) -> int:
    """Return the threads of a block."""
    return int(GROUP_THREADS * (consumers(v) + 1))


def launch_bytes(v: Mapping[str, int], e: Sizes) -> int:
    """Return the dynamic shared bytes of a Program's block."""
    ring = ring_bytes(v) + v.get("mask_stages", 0) * mask.tile_bytes(v, e, SPARE)
    return int(shared_bytes(ring, slab_bytes(v), 4 * consumers(v)))
