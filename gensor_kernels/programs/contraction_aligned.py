"""contraction_aligned: Hopper's warpgroup products behind a launch that copies what tensor copies cannot read.

The kernels are cuda/contraction_aligned.cu. To the main launch the workload is another one, of the copies
(aligning.py): coordinates, legality, terms and constants are those of contraction_wgmma there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine.arch import Arch
from ..operators.geometry import Geometry
from . import aligning, operand_copies
from . import wgmma_stores as stores
from .aligning import aligned
from .contraction_wgmma import ContractionWgmma
from .extents import extents, is_product
from .family import Launch
from .program import Program
from .rewritten import OfRewritten
from .tensor_maps import operand_extents, readable
from .wgmma_launches import ROW_AXIS

if TYPE_CHECKING:
    from ..operators.workload import Workload


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
        if not aligning.copies(workload):
            return "tensor copies read its operands where they are"
        return super().serves(aligned(workload), arch) or operand_copies.too_large(aligning.copies(workload), workload)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Copies can be made of any operand; what is not copied is read as in contraction_wgmma."""
        e, sizes = extents(aligned(workload)), operand_extents(geometry)
        copied = {copy.operand for copy in aligning.copies(workload)}
        return stores.writes(workload, geometry) and all(
            operand in copied or readable(where, sizes[operand], e.unit[operand] == ROW_AXIS[operand], e.bytes_a)
            for operand, where in (("a", geometry.a), ("b", geometry.b))
        )

    def rewritten(self, workload: Workload) -> Workload:
        """The product of the copies."""
        return aligned(workload)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Copying."""
        return operand_copies.cost(aligning.copies(workload), workload, arch)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_aligned.cu."""
        own = operand_copies.constants(aligning.copies(workload)) | aligning.sources(workload)
        return super().constants(program, aligned(workload)) | own

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Copies, the product, and for a split the reduction."""
        product, copies = super().launches(program, aligned(workload)), aligning.copies(workload)
        return operand_copies.in_front("contraction_align", copies, program, workload, product)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the copies; nothing needs to be zero."""
        return operand_copies.offsets(aligning.copies(workload), program, workload)[1], False

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of contraction_wgmma, and of the first launch."""
        return super().branches(program, workload) | operand_copies.branches(aligning.copies(workload))
