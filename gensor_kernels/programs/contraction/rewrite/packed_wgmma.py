"""contraction_packed_wgmma: a convolution with channels first on Hopper's warpgroup products, behind one that packs.

The kernels are contraction_packed_wgmma.cu and packed_operands.cuh: a convolution with its
channels first is rewritten with them last, as contraction_packed does it, so that tensor copies can walk its pixels,
which are columns of the product here.  To the main launch the workload is another one, of the packed image and filters
(operators/windows/conv_packed.py): coordinates, legality, terms and constants are those of contraction_wgmma there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.windows.conv import OPERATORS as CONVOLUTIONS
from gensor_kernels.operators.windows.conv_packed import WIDE, packed, widely_packed
from gensor_kernels.programs.contraction.build import workspace_bytes
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.contraction.wgmma import implicit_gemm as windows
from gensor_kernels.programs.contraction.wgmma import store as stores
from gensor_kernels.programs.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.program import Program

from . import pack as rewrite_pack
from .base import OfRewritten
from .pack_cases import packed_branches, packed_cases

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


class ContractionPackedWgmma(OfRewritten, ContractionWgmma):
    """Warpgroup products of filters and packed pixels."""

    name = "contraction_packed_wgmma"
    abi = 2
    source = "contraction_packed_wgmma.cu"
    streams = False
    gates = False
    ragged = False
    norms = False
    image = "b"

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Convolutions of images with channels first, of the types in wgmma_parts.KINDS."""
        if workload.operator not in CONVOLUTIONS or "output_padding_h" in workload.size:
            return f"{workload.operator} is no convolution, or a transposed one"
        if workload.layouts["x"] != "nchw" or extents(workload).window != "b":
            return "channels of the image, or of the output, are innermost"
        return super().serves(packed(workload), arch) or rewrite_pack.too_large(workload)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Whatever lies where: operands are packed first; what tensor copies cannot store or step over is not."""
        return stores.writes(workload, geometry) and windows.unreadable(packed(workload), self.image) is None

    def rewritten(self, workload: Workload) -> Workload:
        """The convolution of packed operands."""
        return packed(workload)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Packing both operands."""
        return rewrite_pack.cost(workload, arch, always=True)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_packed_wgmma.cu."""
        return super().constants(program, packed(workload)) | {"PACKED": extents(workload).order}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Packing, the product, and for a split the reduction."""
        first = Launch("contraction_pack", rewrite_pack.grid(workload, WIDE, WIDE), rewrite_pack.PACK_THREADS, 0)
        main, *rest = super().launches(program, packed(workload))
        image = workspace_bytes(program, workload)
        places = {"a": image + rewrite_pack.image_bytes(workload), "b": image}
        maps = tuple(replace(each, copied_at=places.get(each.operand)) for each in main.maps)
        return (first, replace(main, maps=maps, dependent=True), *rest)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the packed operands; nothing needs to be zero."""
        return workspace_bytes(program, workload) + rewrite_pack.workspace(workload), False

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See packed_cases."""
        return packed_cases(super().cases(program, widely_packed(workload), epilogue), workload, WIDE)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of the packed product, and of the first launch."""
        return super().branches(program, widely_packed(workload)) | packed_branches(workload, stays=False)
