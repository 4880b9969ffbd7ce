"""contraction_packed: a convolution on tensor cores behind a launch that packs its channels.

The kernels are contraction_packed.cu and packed_operands.cuh.

To the main launch the workload is another one, of the packed image and filters (operators/windows/conv_packed.py):
coordinates, legality, terms and constants are those of contraction_mma there.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.windows.conv import OPERATORS as CONVOLUTIONS
from gensor_kernels.operators.windows.conv_packed import WIDE, filters_aligned, packed, widely_packed
from gensor_kernels.programs.contraction.mma import split_float as mma_split_float
from gensor_kernels.programs.contraction.mma.family import ContractionMma
from gensor_kernels.programs.contraction.mma.instructions import kind
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.core.cases import Case, contraction_cases
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.program import Program

from . import pack as rewrite_pack
from .base import OfRewritten
from .pack_cases import packed_branches, packed_cases

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


class ContractionPacked(OfRewritten, ContractionMma):
    """Tensor-core convolutions whose operands are packed first."""

    name = "contraction_packed"
    abi = 4
    source = "contraction_packed.cu"
    #: of the SASS of four Programs, 26 to 40: where flags lie is found again at every share
    stream_registers = 32.0
    #: what a group's channels with their padding allow
    own = MappingProxyType(dict.fromkeys(("vector_a", "vector_b"), (4, 8, WIDE)))

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Convolutions whose channels cannot be read in whole accesses where they are."""
        if workload.operator not in CONVOLUTIONS:
            return f"{workload.operator} is no convolution"
        align = workload.align
        if workload.layouts["x"] == "nhwc" and min(align["x"], align["w"]) == WIDE:
            return "its operands are read 16 bytes at a time where they are"
        if kind(packed(workload)) == mma_split_float.KIND or workload.is_complex:
            return "no tensor-core products of packed operands of float32, or complex ones"
        return super().serves(packed(workload), arch) or rewrite_pack.too_large(workload)

    def rewritten(self, workload: Workload) -> Workload:
        """The convolution of packed operands."""
        return packed(workload)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Packing the image, and filters that do not stay where they are."""
        return rewrite_pack.cost(workload, arch)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_packed.cu."""
        own = {
            "PACKED": extents(workload).order,
            "FILTERS_LAST": int(workload.layouts["w"] == "rsck"),
            "FILTERS_ALIGNED": int(filters_aligned(workload)),
        }
        return super().constants(program, packed(workload)) | own

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Packing, the product, and for a split the reduction."""
        image, filters = ("a", "b") if extents(packed(workload)).window == "a" else ("b", "a")
        blocks = rewrite_pack.grid(workload, program[f"vector_{image}"], program[f"vector_{filters}"])
        first = Launch("contraction_pack", blocks, rewrite_pack.PACK_THREADS, 0)
        main, *rest = super().launches(program, packed(workload))
        return (first, replace(main, dependent=True), *rest)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the packed operands; nothing needs to be zero."""
        partial, zero = super().workspace(program, packed(workload))
        return partial + rewrite_pack.workspace(workload), zero

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See packed_cases."""
        cases = contraction_cases(widely_packed(workload), self.tile(program), epilogue)
        return packed_cases(cases, workload, max(program["vector_a"], program["vector_b"]))

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of the packed product, and of the first launch."""
        return super().branches(program, widely_packed(workload)) | packed_branches(workload)
