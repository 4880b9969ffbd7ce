"""contraction_aligned: Hopper's warpgroup products behind a launch that copies what tensor copies cannot read.

The kernels are contraction_aligned.cu. To the main launch the workload is another one, of the
copies (align.py): coordinates, legality, terms and constants are those of contraction_wgmma there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.programs.contraction.problem import extents, is_product
from gensor_kernels.programs.contraction.wgmma import store as stores
from gensor_kernels.programs.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.programs.contraction.wgmma.launches import ROW_AXIS
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.core.tensor_maps import operand_extents, readable

from . import align as rewrite_align
from . import copy_launch
from .align import aligned
from .base import OfRewritten

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


class ContractionAligned(OfRewritten, ContractionWgmma):
    """Warpgroup products of operands that are copied first."""

    name = "contraction_aligned"
    abi = 4
    source = "contraction_aligned.cu"
    streams = False
    gates = False
    ragged = False
    norms = False

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Products of which tensor copies cannot read an operand."""
        if not is_product(workload) or extents(workload).window:
            return f"{workload.operator} is no product of matrices"
        if not rewrite_align.copies(workload):
            return "tensor copies read its operands where they are"
        return super().serves(aligned(workload), arch) or copy_launch.too_large(
            rewrite_align.copies(workload), workload
        )

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Copies can be made of any operand; what is not copied is read as in contraction_wgmma."""
        e, sizes = extents(aligned(workload)), operand_extents(geometry)
        copied = {copy.operand for copy in rewrite_align.copies(workload)}
        return stores.writes(workload, geometry) and all(
            operand in copied or readable(where, sizes[operand], e.unit[operand] == ROW_AXIS[operand], e.bytes_a)
            for operand, where in (("a", geometry.a), ("b", geometry.b))
        )

    def rewritten(self, workload: Workload) -> Workload:
        """The product of the copies."""
        return aligned(workload)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Copying."""
        return copy_launch.cost(rewrite_align.copies(workload), workload, arch)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_aligned.cu."""
        own = copy_launch.constants(rewrite_align.copies(workload)) | rewrite_align.sources(workload)
        return super().constants(program, aligned(workload)) | own

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Copies, the product, and for a split the reduction."""
        product, copies = super().launches(program, aligned(workload)), rewrite_align.copies(workload)
        return copy_launch.in_front("contraction_align", copies, program, workload, product)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the copies; nothing needs to be zero."""
        return copy_launch.offsets(rewrite_align.copies(workload), program, workload)[1], False

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of contraction_wgmma, and of the first launch."""
        return super().branches(program, workload) | copy_launch.branches(rewrite_align.copies(workload))
