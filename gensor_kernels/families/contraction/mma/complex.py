"""complex128 on the tensor cores of doubles: the cost of contraction_mma's math (mma_complex.cuh)."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.complex import GAUSS, NAME
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from . import column as mma
from .instructions import MMA_LATENCY, instructions, kind, waits


def multiply(workload: Workload, arch: Arch) -> Part:
    """Math of a warp's iteration: 16 x 8 outputs x 4 of k at a time, 32 bytes of one part of the numbers."""
    choices = instructions(kind(workload) or "", arch)
    counts = {choice.code: choice.needed for choice in choices}
    clocks = 4 * 4 / arch.rate(choices[0].rate)
    conjugated = sum(extents(workload).conjugated[x] for x in "ab")

    def function(v: Values) -> dict[Column, np.ndarray]:
        steps, gauss = v["block_k"] / 4, v[NAME] == GAUSS
        count = np.array([counts[int(code)] for code in v["instruction"]])
        of_k = 1 / np.minimum(count, 1)  # fragments along k that one instruction takes
        outputs, elements = v["warp_m"] * v["warp_n"], v["warp_m"] + v["warp_n"]
        held = outputs * np.where(gauss, 6, 4)
        # Small instructions do not reach the full rate on parts that have the large one.
        products = outputs * steps * clocks * v[NAME] * np.where(count <= max(1, choices[0].needed), 1, 2)
        # Two of four products are added to the same sums. The pipe of doubles forms sums of parts.
        latency = np.maximum(steps * MMA_LATENCY * np.sqrt(count) * np.where(gauss, 1, 2) - products, 0)
        mixed = gauss * elements * v["block_k"] / 32
        fragments = elements / 2 * of_k
        return waits(latency, steps / of_k, v["copy"]) | {
            column.MATH: products + mixed * (32 * 4 / arch.rate("fma_f64")),
            column.MULTIPLIES: outputs * steps / 128 * count * v[NAME],
            column.STEP_ISSUE: steps / of_k + 9,
            mma.PARTS_ISSUE: mixed + (~gauss * v["warp_m"] + conjugated * elements / 2) * v["block_k"] / 32,
            # DOUBLE_FRAGMENTS of mma_pipeline.cuh; the rest is fitted to the allocations of NVRTC 12.9 for 85 Programs
            # of both forms, asynchronous copies, its constant to 36 of form 4: median error 10 registers.
            mma.DOUBLE_NEEDS: held / 32 + 2 * fragments + 48,
            column.BASE_REGISTERS: held / 32 + 0.8 * fragments + 0.2 * fragments * steps / of_k + 34,
            mma.SECOND_FRAGMENTS: 0 * fragments,
            column.OUTPUTS: outputs,
            column.K_STEPS: steps,
        }

    return Part(("warp_m", "warp_n", "block_k", "instruction", "copy", NAME), function, fixed=True)
