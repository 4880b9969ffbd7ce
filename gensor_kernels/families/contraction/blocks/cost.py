"""Cost of contraction_blocks beyond contraction_mma's: block scales (block_scales.cuh), float scales
(float_scales.cuh)."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.mma import column as mma
from gensor_kernels.families.contraction.mma import cost
from gensor_kernels.families.contraction.mma.instructions import (
    BARRIER,
    MMA_LATENCY,
    READ_LATENCY,
    Code,
    as_stored,
    instructions,
    kind,
)
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.products.quantised import SCALE_WORD
from gensor_kernels.operators.types.workload import Workload

#: Instructions to copy a word of scales by cp.async, and a scale through registers.
COPY_ISSUE, BYTE_ISSUE = 3.0, 6.0
#: Instructions to widen a power of two, and an 8-bit float of a column or a row of NVFP4 with the products by it; and
#: next to a product with scales, after which ptxas puts an idle one: fitted to the SASS of eight Programs.
POWER_ISSUE, COLUMN_ISSUE, ROW_ISSUE, IDLE_ISSUE = 4.0, 16.0, 10.0, 0.3
#: With float scales: instructions of a step and of its copies of scales, for the factors of a row of fragments, and
#: idle ones next to a product, counted in the SASS of four Programs; registers without sums and fragments, and the
#: share of a step's fragments of B that is held for one row of fragments: as few as 23 Programs do not spill with.
TURN_ISSUE, FACTOR_ISSUE, TURN_IDLE_ISSUE, TURN_REGISTERS, ONCE_HELD = 32.0, 4.0, 0.55, 28, 0.4


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return what contraction_mma tabulates, and the cost of scales, if there are any."""
    e = extents(workload)
    if e.in_blocks:
        return cost.parts_with(workload, arch, _in_turn(workload, arch))
    return *cost.parts(workload, arch), *((_scales(e, scale_vector(workload)),) if e.is_formatted else ())


def _in_turn(workload: Workload, arch: Arch) -> cost.Multiplied:
    """Return the products of rows of fragments in turn, each of which ends with its sums times float scales."""
    rates = {choice.code: arch.rate(choice.rate) for choice in instructions(kind(workload) or "", arch)}

    def columns(v: Values) -> dict[Column, np.ndarray]:
        down, across, steps = v["warp_m"] / 16, v["warp_n"] / 8, v["block_k"] / 32
        rate = np.array([rates[int(code)] for code in v["instruction"]])
        row = 16 * v["warp_n"] * v["block_k"] * 4 / rate
        return {
            column.STEP_ISSUE: TURN_ISSUE + down * (across * (4 + TURN_IDLE_ISSUE * steps) + FACTOR_ISSUE),
            column.CHAIN: BARRIER + 2 * READ_LATENCY + down * (np.maximum(steps * MMA_LATENCY - row, 0) + MMA_LATENCY),
            mma.CHAIN_SAVED: 0 * down,
            mma.DOUBLE_NEEDS: np.full_like(down, 1e6),
            column.BASE_REGISTERS: 4 * across * (down + 1)
            + 2 * across * steps * np.where(down > 1, 1, ONCE_HELD)
            + TURN_REGISTERS,
        }

    return columns


def scale_vector(workload: Workload) -> int:
    """Return SCALE_VECTOR: the bytes of an access of scales, as their alignment class allows."""
    return min((workload.align[name] for name in "de" if name in workload.align), default=1)


def _scales(e: Extents, vector: int) -> Part:
    """Tabulate a warp's iteration: copies that two warps share, reads, and products but those of tensor cores."""
    both, of_fragments, narrow = e.dtype["a"] == e.dtype["b"], e.group < 32, min(e.bytes_a, e.bytes_b)

    def function(v: Values) -> dict[Column, np.ndarray]:
        down, across = both * v["warp_m"] / 16, v["warp_n"] / 8
        stored, own = v["instruction"] == Code.BLOCK_SCALED, 1 if of_fragments else 2  # columns of a lane
        held = v["block_k"] / e.group  # scales of an entry
        word = np.minimum(held, SCALE_WORD)
        copies = held / word * (v["warp_m"] * both + v["warp_n"]) / 64
        copied = (word == SCALE_WORD) & (vector == SCALE_WORD)
        copying = copies * np.where(copied, COPY_ISSUE, 4 + word * BYTE_ISSUE)
        lanes = np.where(stored, np.ceil(down / 2) + np.ceil(across / 4), 2 * down + own * across)
        reads = lanes * np.where(stored, held / word, v["block_k"] * narrow / 32)
        sums = v["warp_m"] / 16 * across * 4
        products = sums * (1 + both) + POWER_ISSUE * 2 * (down + across)
        if of_fragments:
            products = COLUMN_ISSUE * across + ROW_ISSUE * down
        issue = np.where(stored, IDLE_ISSUE * sums / 4 * narrow, products)
        return {
            column.SCALE_ISSUE: copying + reads + issue * v["block_k"] / 32 + 8,
            column.SCALE_MULTIPLIES: 0 * across,
            # 8-bit floats as stored have two sets of sums anyway.
            column.SCALE_REGISTERS: 2 * lanes + ~as_stored(v["instruction"]) * (not of_fragments) * sums + 14,
        }

    return Part(("warp_m", "warp_n", "block_k", "instruction"), function)
