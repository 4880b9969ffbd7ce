"""contraction_packed: a convolution on tensor cores behind a launch that packs its channels.

The kernels are cuda/contraction_packed.cu and packed_operands.cuh.

To the main launch the workload is another one, of the packed image and filters (operators/conv_packed.py): coordinates,
legality, terms and constants are those of contraction_mma there.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import Terms
from ..operators.conv import OPERATORS as CONVOLUTIONS
from ..operators.conv_packed import WIDE, filters_aligned, packed, widely_packed
from . import mma_floats, packing
from .cases import Case, contraction_cases
from .contraction_mma import ContractionMma
from .extents import extents
from .family import Columns, Coordinate, Facts, Launch, Part
from .mma_instructions import kind
from .packed_cases import packed_branches, packed_cases
from .program import Program

if TYPE_CHECKING:
    from ..operators.workload import Workload


class ContractionPacked(ContractionMma):
    """Tensor-core convolutions whose operands are packed first."""

    name = "contraction_packed"
    abi = 2
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
        if kind(packed(workload)) == mma_floats.KIND or workload.is_complex:
            return "no tensor-core products of packed operands of float32, or complex ones"
        return super().serves(packed(workload), arch) or packing.too_large(workload)

    # ---- those of contraction_mma, of the packed operands

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Those of contraction_mma; accesses are as wide as a group's padded channels allow."""
        return super().coordinates(packed(workload), arch)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """See mma_parts."""
        return super().parts(packed(workload), arch)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """The rules of contraction_mma."""
        return super().legal(columns, packed(workload), arch)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """See contraction_mma."""
        return super().defaults(columns, packed(workload), arch)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """See contraction_mma."""
        return super().registers(columns, packed(workload), arch)

    def widest(self, program: Program, workload: Workload) -> Program:
        """The same Program with the widest accesses."""
        return super().widest(program, packed(workload))

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Matrix instructions of an iteration."""
        return super().multiplies(program, packed(workload))

    # ---- and what the first launch adds

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """The main launch's, what it finds in the L2, and the microseconds of the first launch."""
        terms = super().terms(columns, packed(workload), arch, facts)
        first, kept = packing.cost(workload, arch)
        terms.after = terms.after + np.float32(first)
        terms.dram_bytes = np.maximum(terms.dram_bytes - np.float32(kept), 0)
        return terms

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
        blocks = packing.grid(workload, program[f"vector_{image}"], program[f"vector_{filters}"])
        first = Launch("contraction_pack", blocks, packing.PACK_THREADS, 0)
        main, *rest = super().launches(program, packed(workload))
        return (first, replace(main, dependent=True), *rest)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of the packed operands; nothing needs to be zero."""
        partial, zero = super().workspace(program, packed(workload))
        return partial + packing.workspace(workload), zero

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See packed_cases."""
        cases = contraction_cases(widely_packed(workload), self.tile(program), epilogue)
        return packed_cases(cases, workload, max(program["vector_a"], program["vector_b"]))

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of the packed product, and of the first launch."""
        return super().branches(program, widely_packed(workload)) | packed_branches(workload)
