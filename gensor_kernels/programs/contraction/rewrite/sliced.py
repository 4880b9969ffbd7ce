"""contraction_sliced: float64 products of 8-bit slices on integer tensor cores
(contraction_sliced.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so. What
the main loop costs is what contraction_mma says of the int8 product that ozaki.py makes of a Workload.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import SLICE_PRODUCTS, Arch
from gensor_kernels.programs.contraction.build import common_constants
from gensor_kernels.programs.contraction.mma import cost as parts
from gensor_kernels.programs.contraction.mma.family import ContractionMma
from gensor_kernels.programs.contraction.mma.instructions import instructions
from gensor_kernels.programs.contraction.mma.split_float import AGAIN
from gensor_kernels.programs.contraction.problem import extents, is_product
from gensor_kernels.programs.core.cases import USUAL, Case, contraction_cases
from gensor_kernels.programs.core.family import Columns, Coordinate, Launch
from gensor_kernels.programs.core.program import Program

from . import ozaki
from .base import OfRewritten

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Coordinates of contraction_mma that have one value here.
FIXED = {"split_k": 1, "copy": 1, "vector_a": 16, "vector_b": 16, "swizzle": 1, "instruction": 3}
#: Bytes in which warps tell whether slices suffice.
VOTES = 128
#: Elements of the case whose slices do not suffice differ by up to two to twice this.
SPREAD = 300


class ContractionSliced(OfRewritten, ContractionMma):
    """float64 products by Ozaki's scheme, where a caller allows them."""

    name = "contraction_sliced"
    abi = 3
    source = "contraction_sliced.cu"
    streams = False

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Matrix products of float64 that may be computed so, on parts where that is faster."""
        if workload.operator != "matmul" or workload.math != ozaki.MATH:
            return f"{workload.operator} with math {workload.math!r} is no product that may be cut into slices"
        if workload.size["k"] > ozaki.MOST_K:
            return f"sums of more than {ozaki.MOST_K} products of slices leave 32 bits"
        if not instructions("s8", arch) or "mma_m16n8k32_s8" not in arch.features:
            return f"{arch.name} has no mma_m16n8k32_s8"
        if arch.rate("mma_s8") / SLICE_PRODUCTS <= max(arch.rate("mma_f64"), arch.rate("fma_f64")):
            return f"{arch.name} multiplies float64 itself faster"
        return None if is_product(workload) else "no matrix product"

    def rewritten(self, workload: Workload) -> Workload:
        """The product of slices."""
        return ozaki.sliced(workload)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Slicing, and double arithmetic."""
        return ozaki.microseconds(workload, arch), 0.0

    # ---- those of contraction_mma, of slices

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Those of contraction_mma; slices are always copied 16 bytes at a time, and k is not split."""
        return tuple(
            each._replace(values=(FIXED[each.name],)) if each.name in FIXED else each
            for each in super().coordinates(workload, arch)
        )

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """See contraction_mma."""
        like = np.ones_like(columns["block_m"])
        found = super().defaults(columns, workload, arch)
        return found | {name: value * like for name, value in FIXED.items() if name in found}

    def widest(self, program: Program, workload: Workload) -> Program:
        """The same Program with stores as wide as the class allows."""
        staged = max(1, program["epilogue_staged"])
        return program.replace(vector_c=extents(workload).align["c"], epilogue_staged=staged)

    @staticmethod
    def _memory(c: Columns, warps: np.ndarray, workload: Workload) -> np.ndarray:
        """Dynamic shared bytes of a block."""
        return ContractionMma._memory(c, warps, workload) + VOTES

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_sliced.cu."""
        fixed = ("IN_TYPE", "ACC_TYPE", "A_LAYOUT", "B_LAYOUT", "SPLIT")
        common = common_constants(program, ozaki.sliced(workload))
        own: dict[str, int | str] = {"WARP_M": program["warp_m"], "WARP_N": program["warp_n"]}
        return {name: value for name, value in common.items() if name not in fixed} | own

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Slicing, and the product."""
        e, p = extents(ozaki.sliced(workload)), dict(program.values)
        warps = (p["block_m"] // p["warp_m"]) * (p["block_n"] // p["warp_n"])
        memory = max(parts.ring_bytes(p, ozaki.sliced(workload)), parts.slab_bytes(p, e) * warps)
        tiles = -(-e.m // p["block_m"]) * -(-e.n // p["block_n"])
        lines = ozaki.lines(workload)
        return (
            Launch("contraction_slice", -(-lines // ozaki.LINES_PER_BLOCK), ozaki.SLICE_THREADS, 0),
            Launch(self.name, e.batch * tiles, 32 * warps, int(memory) + VOTES, dependent=True),
        )

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of slices and exponents; nothing needs to be zero."""
        return ozaki.workspace(workload), False

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Those of contractions, of few k-iterations, since passes follow each other; and a tile once more with
        exponents so far apart that slices do not suffice, as they do in the others."""
        found = contraction_cases(workload, self.tile(program) | {"stages": -1}, epilogue)
        corner = next(case for case in found if case.name == "corner")
        suffice = [replace(case, needless=frozenset({AGAIN})) for case in found]
        return [*suffice, replace(corner, name="wide exponents", spread=SPREAD, schedule=USUAL)]

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of contractions, of the launch in front, and of tiles whose slices do not suffice."""
        return super().branches(program, workload) - {"steady", "drain"} | {"slice", AGAIN}
