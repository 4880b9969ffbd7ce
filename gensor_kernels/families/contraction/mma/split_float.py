"""float32 on bfloat16 tensor cores: products that INSTRUCTION 5 of contraction_mma serves, and their cost
(mma_floats.cuh).

Six products of bfloat16 parts stand for one of float32.  docs/float32.md has the errors measured and the errors
of ordinary multiply-adds, which they must not exceed, and the parts on which six products are faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.problem import Extents
from gensor_kernels.families.core.cases import USUAL, Case
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Values
from gensor_kernels.machine.arch import LEAST_FLOAT_SUM, Arch

from . import column as mma

#: Its name among instructions.INSTRUCTIONS.
KIND = "f32"
#: The branch of sums that are formed again.
AGAIN = "again"
#: Inputs are drawn times two to this where sums have to be lost and formed again: lifted they overflow, in truth not.
LOST = 52
#: Instructions of splitting one element (conversions, shifts, masks and float ones), and of adding a 16 x 8 tile to the
#: accumulators; for the pipe of floats, and for the pipe of integers and conversions.
SPLIT_FLOATS, SPLIT_OTHERS, ADDITIONS = 3.0, 3.5, 8.0
#: Clocks from the load of a fragment to its parts, from these to the sums of a tile (five products wait for one
#: another), and of an iteration's barrier. Once in 16 of k a warp's own math does not hide the first two.
SPLIT_LATENCY, SUM_LATENCY, BARRIER = 80.0, 180.0, 25.0


def refusal(e: Extents) -> str | None:
    """Return why a product of float32 operands is left to ordinary multiply-adds, or None."""
    if e.dtype["c"] != "float32" or e.gate or e.norm or e.prologue:
        return "products of float32 parts write plain sums of float32: no other type, gate, norm or prologue"
    if e.k < LEAST_FLOAT_SUM:
        least = LEAST_FLOAT_SUM
        return f"no tensor-core sums of {e.k} float32 products: they are more exact than multiply-adds from {least} on"
    return None


def pays(products: int, rate: float, arch: Arch) -> bool:
    """Return whether this number of products takes less time on tensor cores than a multiply-add each."""
    return products == 1 or rate / products > arch.rate("fma_f32")


def costs(v: Values, arch: Arch) -> dict[Column, np.ndarray]:
    """Return a warp's instructions in an iteration, and the clocks of the busier pipe (floats, or the other one)."""
    elements = (v["warp_m"] + v["warp_n"]) * v["block_k"] / 32
    additions = v["warp_m"] * v["warp_n"] / 128 * v["block_k"] / 16 * ADDITIONS
    floats = (SPLIT_FLOATS * elements + additions) * (128 / arch.rate("fma_f32"))
    others = SPLIT_OTHERS * elements * 2
    return {
        column.CHAIN: BARRIER + v["block_k"] / 16 * (SPLIT_LATENCY + SUM_LATENCY),
        mma.PARTS_ISSUE: (SPLIT_FLOATS + SPLIT_OTHERS) * elements + additions,
        mma.PARTS_CLOCKS: np.maximum(floats, others),
    }


def registers(v: Values) -> np.ndarray:
    """Accumulators, the parts of B and of one fragment of A, sums of the tiles that take turns, addresses; and
    the registers with which NVRTC 12.9 reads further ahead where a warp has more than 16 tiles."""
    tiles = v["warp_m"] * v["warp_n"] / 128
    together = np.minimum(np.where(tiles > 16, 2, 4), v["warp_n"] / 8)
    return tiles * 4 + v["warp_n"] * 0.75 + 20 + 8 * together + np.where(tiles > 16, 90, 30)


def with_lost_sums(cases: Sequence[Case]) -> list[Case]:
    """Return the cases, and edges and the batch once more with inputs whose sums have to be formed again; sums of the
    other cases need not."""
    finite = [replace(case, needless=frozenset({AGAIN})) for case in cases]
    lost = [
        replace(case, name=f"lost sums, {case.name}", magnitude=LOST, schedule=USUAL)
        for case in cases
        if case.name in ("corner", "granule", "batch")
    ]
    return [*finite, *lost]
