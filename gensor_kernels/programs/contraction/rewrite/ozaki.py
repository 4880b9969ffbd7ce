"""What a float64 product of slices is to contraction_mma: one of int8 with many times the k, and a launch in front.

slices.cuh and sliced_math.cuh have the scheme; a pass through k is made for every pair of slices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import SLICE_PRODUCTS, Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, SUBCORES
from gensor_kernels.operators.tolerance.sliced import SLICES
from gensor_kernels.programs.core.launch_cost import fixed_us

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: The math mode that allows it.
MATH = "ozaki"
#: What slices.cuh writes of an element: its digits, and its leading bits.
WRITTEN_SLICES = SLICES + 1
#: Longest sums: SLICES products of digits of at most 64 each are added in 32 bits.
MOST_K = (2**31 - 1) // (SLICES * 64 * 64)
SLICE_THREADS, LINES_PER_BLOCK = 256, 8
#: Instructions of a warp to slice 32 elements, counted in the SASS, and double ones per output: of every sum of equal
#: s + t a conversion and a multiply-add.
SLICE_ISSUE, DOUBLES_PER_OUTPUT = 95.0, 2.0 * SLICES


def pitch(k: int) -> int:
    """Bytes of a row of a slice."""
    return -(-k // 16) * 16


@lru_cache(maxsize=4096)
def sliced(workload: Workload) -> Workload:
    """The product of slices as one of int8: K-contiguous, k once per pair of slices, sums and results float64."""
    from gensor_kernels.operators.types.workload import Workload

    k = SLICE_PRODUCTS * pitch(workload.size["k"])
    return Workload(
        operator=workload.operator,
        sizes=tuple({**workload.size, "k": k}.items()),
        dtypes=(("a", "int8"), ("b", "int8"), ("c", "float64")),
        accumulator="float64",
        math="ieee",
        layout=(("a", "k"), ("b", "k"), ("c", workload.layouts["c"])),
        alignment=(("a", 16), ("b", 16), ("c", workload.align["c"])),
        epilogue=workload.epilogue,
    )


def lines(workload: Workload) -> int:
    """Rows of A and columns of B."""
    z = workload.size
    return z["batch"] * (z["m"] + z["n"])


def workspace(workload: Workload) -> int:
    """Bytes of all slices and exponents."""
    return lines(workload) * (WRITTEN_SLICES * pitch(workload.size["k"]) + 4)


def microseconds(workload: Workload, arch: Arch) -> float:
    """The launch in front, and the double arithmetic of the second, which nothing else overlaps."""
    z = workload.size
    elements = lines(workload) * float(z["k"])
    moved = elements * (8 + WRITTEN_SLICES) / (arch.dram_gb_s * DRAM_EFFICIENCY * 1e3)
    clocks = arch.sms * arch.clock_ghz * 1e3
    issue = elements / 32 * SLICE_ISSUE / (SUBCORES * clocks)
    doubles = float(z["batch"]) * z["m"] * z["n"] * DOUBLES_PER_OUTPUT / (arch.rate("fma_f64") * clocks)
    return float(np.maximum(moved, issue)) + doubles + fixed_us(arch)
