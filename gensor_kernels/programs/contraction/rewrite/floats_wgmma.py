"""contraction_floats_wgmma: float32 on Hopper's bfloat16 warpgroup products, behind a launch that divides the operands.

The kernels are contraction_floats_wgmma.cu. To the main launch the workload is another one, of
operands in three bfloat16 parts (split_float.py), a product of matrices or a convolution: coordinates, legality, terms
and constants are those of contraction_wgmma there. Which are served, and how exact they are: mma/split_float.py,
docs/float32.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.programs.contraction.mma import split_float as mma_split_float
from gensor_kernels.programs.contraction.problem import extents, is_product
from gensor_kernels.programs.contraction.wgmma import implicit_gemm as windows
from gensor_kernels.programs.contraction.wgmma import store as stores
from gensor_kernels.programs.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.program import Program

from . import copy_launch
from . import split_float as rewrite_split_float
from .base import OfRewritten
from .pack_cases import THIN, one_tap
from .split_float import divided

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Terms of the shortest sums. At 512 the largest of 4,096 errors is above that of multiply-adds for one of twelve kinds
#: of inputs (8.6 beside 8.1; typical, 1.28 beside 1.67); from 1,000 on none is, on the coarsest tensor core known.
LEAST_SUM = 1000
#: Macros that have one value here.
FIXED = ("IN_TYPE", "OUT_TYPE", "A_LAYOUT", "B_LAYOUT")


class ContractionFloatsWgmma(OfRewritten, ContractionWgmma):
    """Warpgroup products of the parts of float32 operands."""

    name = "contraction_floats_wgmma"
    abi = 2
    source = "contraction_floats_wgmma.cu"
    streams = False
    gates = False
    ragged = False
    norms = False
    image = "ab"

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Long products of float32 matrices, and convolutions, where a caller does not allow coarser ones."""
        if not is_product(workload):
            return f"{workload.operator} is no matrix product"
        e = extents(workload)
        if {e.dtype["a"], e.dtype["b"]} != {"float32"} or workload.math != "ieee":
            return f"no product of float32 parts stands for {e.dtype['a']} and {e.dtype['b']} with {workload.math}"
        if e.window and workload.size["groups"] != 1:
            return "groups of channels are not divided"
        terms = windows.least_terms(workload)
        if terms < LEAST_SUM:
            return f"no warpgroup sums of {terms} float32 terms: no less exact than multiply-adds from {LEAST_SUM} on"
        copies = rewrite_split_float.copies(workload)
        return (
            mma_split_float.refusal(e)
            or super().serves(divided(workload), arch)
            or copy_launch.too_large(copies, workload)
        )

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Operands are read wherever they lie; results that copies cannot store are not."""
        return stores.writes(workload, geometry)

    def rewritten(self, workload: Workload) -> Workload:
        """The product of the parts."""
        return divided(workload)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Dividing."""
        return copy_launch.cost(rewrite_split_float.copies(workload), workload, arch)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_floats_wgmma.cu."""
        common = super().constants(program, divided(workload))
        own = {name: value for name, value in common.items() if name not in FIXED}
        return own | copy_launch.constants(rewrite_split_float.copies(workload))

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Parts, the product, and for a split the reduction."""
        product, copies = super().launches(program, divided(workload)), rewrite_split_float.copies(workload)
        return copy_launch.in_front("contraction_divide", copies, program, workload, product)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the parts; nothing needs to be zero."""
        return copy_launch.offsets(rewrite_split_float.copies(workload), program, workload)[1], False

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Those of every contraction, of convolutions also with one tap along an axis, and sums that have to be formed
        again."""
        cases = super().cases(program, workload, epilogue)
        return mma_split_float.with_lost_sums([*cases, *(one_tap(cases) if extents(workload).window else ())])

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of contraction_wgmma, of the first launch, and of sums that are not finite."""
        own = copy_launch.branches(rewrite_split_float.copies(workload)) | {mma_split_float.AGAIN}
        own |= THIN if extents(workload).window else set()
        return super().branches(program, workload) | own
