"""Cut float64 operands into 8-bit slices (Ozaki's scheme): contraction_sliced, their products on integer tensor cores.

slices.cuh and sliced_math.cuh have the scheme.  The first launch writes the slices. The main loop, contraction_mma,
computes an int8 product whose k is as long as that of all pairs of slices together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction.cases import contraction_cases
from gensor_kernels.families.contraction.mma.family import ContractionMma
from gensor_kernels.families.contraction.mma.instructions import instructions
from gensor_kernels.families.contraction.mma.split_float import AGAIN
from gensor_kernels.families.core.cases import USUAL, Case
from gensor_kernels.families.core.family import Columns, Coordinate, Launch, math_mode, operators
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import SLICE_PRODUCTS, Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, SUBCORES, fixed_us
from gensor_kernels.operators.tolerance.sliced import SLICES
from gensor_kernels.operators.types.workload import Workload

from .base import Constants, Rewritten

#: Coordinates of contraction_mma that have one value here.
FIXED = {"split_k": 1, "copy": 1, "vector_a": 16, "vector_b": 16, "swizzle": 1, "instruction": 3}
#: Macros of contraction_mma.cu that contraction_sliced.cu does not have.
WITHOUT = (
    *("IN_TYPE", "ACC_TYPE", "SPLIT", "MATH_TF32", "SWIZZLE", "INSTRUCTION", "ASYNC"),
    *(f"{operand}_{what}" for operand in "AB" for what in ("LAYOUT", "UNIT", "WINDOW", "VECTOR")),
)
#: Elements of the case whose slices do not suffice differ by up to two to twice this.
SPREAD = 300
#: The math mode that allows it.
MATH = "ozaki"
#: Bytes that slices.cuh writes per element: its digits, and its leading bits.
WRITTEN_SLICES = SLICES + 1
#: Longest sums: SLICES products of digits of at most 64 each are added in 32 bits.
MOST_K = (2**31 - 1) // (SLICES * 64 * 64)
SLICE_THREADS, LINES_PER_BLOCK = 256, 8
#: Instructions of a warp to slice 32 elements, counted in the SASS, and double ones per output: of every sum of equal
#: s + t a conversion and a multiply-add.
SLICE_ISSUE, DOUBLES_PER_OUTPUT = 95.0, 2.0 * SLICES


def pitch(k: int) -> int:
    """Return the bytes of a row of a slice."""
    return -(-k // 16) * 16


@lru_cache(maxsize=4096)
def product_of_slices(workload: Workload) -> Workload:
    """Return the int8 product of slices: K-contiguous, k once per pair of slices, float64 sums and results."""
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
    """Return the number of rows of A and columns of B."""
    z = workload.size
    return z["batch"] * (z["m"] + z["n"])


def workspace(workload: Workload) -> int:
    """Return the bytes of all slices and exponents."""
    return lines(workload) * (WRITTEN_SLICES * pitch(workload.size["k"]) + 4)


def microseconds(workload: Workload, arch: Arch) -> float:
    """Return the time of slicing, and of the main launch's double arithmetic, which nothing overlaps."""
    z = workload.size
    elements = lines(workload) * float(z["k"])
    moved = elements * (8 + WRITTEN_SLICES) / (arch.dram_gb_s * DRAM_EFFICIENCY * 1e3)
    clocks = arch.sms * arch.clock_ghz * 1e3
    issue = elements / 32 * SLICE_ISSUE / (SUBCORES * clocks)
    doubles = float(z["batch"]) * z["m"] * z["n"] * DOUBLES_PER_OUTPUT / (arch.rate("fma_f64") * clocks)
    return float(np.maximum(moved, issue)) + doubles + fixed_us(arch)


class ContractionSliced(Rewritten):
    """Slicing before integer products, where a caller allows it."""

    abi = 5
    needs = (
        operators(("matmul",), "is no product that may be cut into slices"),
        math_mode(MATH, "allows no product that may be cut into slices"),
    )

    rewritten = staticmethod(product_of_slices)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve float64 products that may be computed in slices, on parts where that is faster."""
        if workload.size["k"] > MOST_K:
            return f"sums of more than {MOST_K} products of slices leave 32 bits"
        if not instructions("s8", arch) or "mma_m16n8k32_s8" not in arch.features:
            return f"{arch.name} has no mma_m16n8k32_s8"
        if arch.rate("mma_s8") / SLICE_PRODUCTS <= max(arch.rate("mma_f64"), arch.rate("fma_f64")):
            return f"{arch.name} multiplies float64 itself faster"
        return None

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return the cost of slicing and of the double arithmetic; no slices are counted as kept in the L2."""
        return microseconds(workload, arch), 0.0

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Copy slices 16 bytes at a time, and do not split k."""
        found = super().coordinates(workload, arch)
        return tuple(each._replace(values=(FIXED[each.name],)) if each.name in FIXED else each for each in found)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Set the coordinates that have one value."""
        found, like = super().defaults(columns, workload, arch), np.ones_like(columns["block_m"])
        return found | {name: value * like for name, value in FIXED.items() if name in found}

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Leave out the macros that contraction_sliced.cu does not have."""
        return {name: each for name, each in super().constants(program, workload).items() if name not in WITHOUT}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put slicing before the product."""
        (main,) = super().launches(program, workload)
        first = Launch("contraction_slice", -(-lines(workload) // LINES_PER_BLOCK), SLICE_THREADS, 0)
        return first, replace(main, dependent=True)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of slices and exponents."""
        return workspace(workload), False

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return short products, and a tile with exponents so far apart that slices do not suffice.

        Few k-iterations are enough, since passes through k follow each other.
        """
        found = contraction_cases(workload, self.tile(program) | {"stages": -1}, epilogue)
        corner = next(case for case in found if case.name == "corner")
        suffice = [replace(case, needless=frozenset({AGAIN})) for case in found]
        return [*suffice, replace(corner, name="wide exponents", spread=SPREAD, schedule=USUAL)]

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of product and slicing, and of tiles whose slices do not suffice."""
        return self.main.branches(program, workload) - {"steady", "drain"} | {"slice", AGAIN}


SLICED = ContractionSliced(ContractionMma("contraction_sliced", streams=False))
