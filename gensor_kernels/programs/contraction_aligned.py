"""contraction_aligned: Hopper's warpgroup products behind a launch that copies what tensor copies cannot read.

The kernels are cuda/contraction_aligned.cu. To the main launch the workload is another one, of the copies
(aligning.py): coordinates, legality, terms and constants are those of contraction_wgmma there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import Terms
from ..operators.geometry import Geometry
from . import aligning
from . import wgmma_stores as stores
from .aligning import aligned
from .contraction_wgmma import ROW_AXIS, ContractionWgmma
from .extents import extents, is_product
from .family import Columns, Coordinate, Facts, Launch, Part
from .program import Program
from .tensor_maps import operand_extents, readable

if TYPE_CHECKING:
    from ..operators.workload import Workload


class ContractionAligned(ContractionWgmma):
    """Warpgroup products of operands that are copied first."""

    name = "contraction_aligned"
    abi = 3
    source = "contraction_aligned.cu"
    streams = False
    gates = False

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Products of which tensor copies cannot read an operand."""
        if not is_product(workload) or extents(workload).window:
            return f"{workload.operator} is no product of matrices"
        if not aligning.copies(workload):
            return "tensor copies read its operands where they are"
        return super().serves(aligned(workload), arch) or aligning.too_large(workload)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Copies can be made of any operand; what is not copied is read as in contraction_wgmma."""
        e, sizes = extents(workload), operand_extents(geometry)
        copied = {copy.operand for copy in aligning.copies(workload)}
        return stores.writes(workload, geometry) and all(
            operand in copied or readable(where, sizes[operand], e.unit[operand] == ROW_AXIS[operand], e.bytes_a)
            for operand, where in (("a", geometry.a), ("b", geometry.b))
        )

    # ---- those of contraction_wgmma, of the copies

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Those of contraction_wgmma."""
        return super().coordinates(aligned(workload), arch)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """See wgmma_parts."""
        return super().parts(aligned(workload), arch)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """The rules of contraction_wgmma."""
        return super().legal(columns, aligned(workload), arch)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """See contraction_wgmma."""
        return super().defaults(columns, aligned(workload), arch)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """See contraction_wgmma."""
        return super().multiplies(program, aligned(workload))

    # ---- and what the first launch adds

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """The main launch's, what it finds in the L2, and the microseconds of the first launch."""
        terms = super().terms(columns, aligned(workload), arch, facts)
        first, kept = aligning.cost(workload, arch)
        terms.after = terms.after + np.float32(first)
        terms.dram_bytes = np.maximum(terms.dram_bytes - np.float32(kept), 0)
        return terms

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_aligned.cu."""
        return super().constants(program, aligned(workload)) | aligning.constants(workload)

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Copies, the product, and for a split the reduction."""
        main, *rest = super().launches(program, aligned(workload))
        places, _ = aligning.offsets(program, workload)
        maps = tuple(replace(each, copied_at=places.get(each.operand)) for each in main.maps)
        return (aligning.launch(workload), replace(main, maps=maps, dependent=True), *rest)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the copies; nothing needs to be zero."""
        return aligning.offsets(program, workload)[1], False

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of contraction_wgmma, and of the first launch."""
        own = {f"aligned_{copy.operand}" for copy in aligning.copies(workload)}
        return super().branches(program, workload) | own | {"nothing_to_align"}
