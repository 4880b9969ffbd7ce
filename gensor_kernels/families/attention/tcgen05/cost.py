"""Tabulated cost of attention_tcgen05: warpgroups whose products a thread issues in turn, ring, tensor memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gensor_kernels.families.attention import mask
from gensor_kernels.families.attention.cost import CAP_ISSUE, EXPONENTIAL, REDUCE, shared_parts, slab_bytes
from gensor_kernels.families.attention.shape import ELEMENT, Sizes, in_parts, sizes_of
from gensor_kernels.families.attention.wgmma.cost import (
    EVALUATION,
    HANDED_ON,
    LARGEST,
    PACK,
    POWER_ISSUE,
    ROW_BYTES,
    SLOWED,
    SPARE,
    STEP_ISSUE,
    WEIGH_ISSUE,
    boxes,
    mask_parts,
    ring_bytes,
    shared_bytes,
)
from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cost import GROUP_THREADS, TURN, entry_registers
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Coordinate, Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

#: Rows per block: 128 for each warpgroup, the lanes of tensor memory.
GROUP_ROWS = 128
BLOCKS_Q = (GROUP_ROWS, 2 * GROUP_ROWS)
STAGES = tuple(range(2, 9))
SCORE_TILES = Coordinate("score_tiles", (1, 2), 1, "stages", "tiles of scores of a warpgroup in tensor memory")
#: Clocks in which a warp loads or stores a column of tensor memory, 32 lanes of 4 bytes. An estimate.
MEMORY_COLUMN = 1.0
#: Clocks between a warpgroup's last store of weights and its next scores, in addition to the products: an arrival, two
#: commits, three waits and the latency of loads and stores. An estimate.
HANDED_OVER = 3 * TURN + 200.0


def groups(v: Mapping[str, Numbers]) -> Numbers:
    """Return how many warpgroups have rows."""
    return v["block_q"] // GROUP_ROWS


def parts_of(queries: int, group: int) -> int:
    """Return into how many parts the heads of a group are divided, of which each has the keys of the whole group.

    One where whole queries leave few of GROUP_ROWS rows without one, and for few queries, where parts would leave more
    and read keys more often. Parts have as many heads as divide GROUP_ROWS.

    Examples
    --------
    >>> [parts_of(1024, group) for group in (1, 7, 8, 12, 20, 24, 40, 48, 96)]
    [1, 1, 1, 3, 5, 3, 5, 3, 3]
    >>> parts_of(1, 24)
    1
    """
    each = min(group & -group, GROUP_ROWS)
    fits = group <= GROUP_ROWS and -GROUP_ROWS % group <= SPARE and GROUP_ROWS % group < SPARE
    return 1 if fits or queries * each < GROUP_ROWS else group // each


def parted_sizes(workload: Workload) -> Sizes:
    """Return the numbers of an attention Workload after its groups of heads have been divided."""
    e = sizes_of(workload)
    return in_parts(e, parts_of(e.rows // e.group, e.group))


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that attention_tcgen05 tabulates."""
    e = parted_sizes(workload)

    def warps(v: Values) -> dict[Column, np.ndarray]:
        count = groups(v)
        return {column.WARPS: 4 * (count + 1), wgmma.STORING: 4 * count}

    return (
        *shared_parts(e, arch, whole=True),
        Part(("block_q",), warps),
        # Two tiles to a step, and while a step is multiplied two buffers are not free.
        Part(("stages",), lambda v: {column.IN_FLIGHT: np.maximum(v["stages"] / 2 - 1.0, 0.5)}),
        Part(("block_q", "block_k", "head_tile", "stages"), lambda v: {column.RING: ring_bytes(v)}),
        _steps(e, EVALUATION[workload.dtype["a"]], arch),
        _entry(arch),
        *mask_parts(workload, e),
    )


def _steps(e: Sizes, evaluation: float, arch: Arch) -> Part:
    """Return a step of a block, seen as if its warps, requesting warps included, shared the work evenly; a polynomial
    has ``evaluation`` instructions more than an exponential."""
    rate = arch.rate("peak_f16")
    more = CAP_ISSUE * e.form.capped  # instructions of a score

    def function(v: Values) -> dict[Column, np.ndarray]:
        count, scores = groups(v), v["block_k"]  # scores of a thread: of 32 rows of its warp
        half = GROUP_ROWS * v["block_k"] * v["head_tile"] / rate  # clocks of either product of a warpgroup
        # A soft cap is an exponential and a reciprocal more per score.
        by_polynomial = v["block_k"] // 8 * v["polynomials"] // 8 * 8
        powers = ((3 if e.form.capped else 1) * scores - by_polynomial + 4) * EXPONENTIAL
        evaluated = by_polynomial * evaluation
        # Warpgroups share the tensor cores and the special-function units.
        math = np.maximum(2 * half, powers) * count
        moved = MEMORY_COLUMN * 1.5 * scores  # scores, then weights
        weigh = scores * (LARGEST + PACK + more + SLOWED) + REDUCE
        weigh = weigh + np.maximum(powers, scores * POWER_ISSUE + evaluated)
        # With two tiles of scores, the softmax of a step runs next to the products of its neighbours.
        apart = v["score_tiles"] > 1
        products, softmax = 2 * half + HANDED_OVER, weigh + moved
        path = np.where(apart, np.maximum(products, softmax + TURN), products + softmax)
        tile = boxes(v["head_tile"]) * ROW_BYTES * v["block_k"]
        read = count * (GROUP_ROWS * v["head_tile"] * ELEMENT + 2 * tile)
        return {
            column.MATH: math / (count + 1),
            column.MULTIPLIES: 0 * math,
            column.ISSUE: (STEP_ISSUE + scores * (WEIGH_ISSUE + more) + evaluated) * count / (count + 1),
            column.CHAIN: np.maximum(path - math, 0.0) + np.where(count == 1, TURN, HANDED_ON),
            wgmma.WAVEFRONTS: (read + 2 * tile) / ROW_BYTES,
            column.OUTPUTS: 32 * v["head_tile"],
        }

    return Part(("block_q", "block_k", "head_tile", "score_tiles", "polynomials"), function)


def _entry(arch: Arch) -> Part:
    """Tabulate registers at entry."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        count, blocks = np.clip(groups(v), 1, 2), np.maximum(v["min_blocks"], 1)
        return {wgmma.ENTRY: np.minimum(entry_registers(count, blocks, arch), arch.regs_per_thread)}

    return Part(("block_q", "min_blocks"), function)


def threads(v: Mapping[str, int]) -> int:
    """Return the threads of a block."""
    return int(GROUP_THREADS * (groups(v) + 1))


def launch_bytes(v: Mapping[str, int], e: Sizes) -> int:
    """Return the dynamic shared bytes of a Program's block."""
    ring = ring_bytes(v) + v.get("mask_stages", 0) * mask.tile_bytes(v, e, SPARE)
    return int(shared_bytes(ring, slab_bytes(v), 4 * groups(v)))
