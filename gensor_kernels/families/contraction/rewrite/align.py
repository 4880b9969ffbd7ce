"""Copy operands that tensor copies cannot read: contraction_aligned, warpgroup products of the copies.

The first launch (operand_copies.cuh) copies operands into aligned lines, turns them where warpgroups need rows along
k, and widens elements that are stored narrower than they are multiplied.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gensor_kernels.families.contraction.base import constants_of_stored
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.contraction.tcgen05.family import ContractionTcgen05
from gensor_kernels.families.contraction.wgmma import store, tma
from gensor_kernels.families.contraction.wgmma.cost import KINDS, kind
from gensor_kernels.families.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.families.core.family import PRODUCTS
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import copy_launch
from .base import Constants
from .copy_launch import CHUNK, Copy, CopyOperands

#: Instructions of a thread per store without its loads, the same where words of adjacent lines are turned, and for
#: widening: from the SASS.
ITEM_ISSUE, TURNING_ISSUE, WIDENING_ISSUE = 75.0, 92.0, 25.0


@lru_cache(maxsize=4096)
def copies(workload: Workload) -> tuple[Copy, ...]:
    """Return the copies of operands that tensor copies cannot read in place, or that are stored in a narrower type than
    they are multiplied in; () if warpgroups do not multiply that type."""
    e = extents(workload)
    own = KINDS.get(e.multiplied) if widens(workload) else kind(workload)
    if own is None:
        return ()
    found = []
    for operand, width in (("a", e.bytes_a), ("b", int(e.bytes_b))):
        unit, align, narrow = e.unit[operand], e.align[operand], width < own.element
        wanted = "k" if own.k_contiguous or unit == "s" else unit
        if unit != wanted or align < CHUNK or narrow:
            turned = unit != wanted
            words = turned and unit != "s" and align > width  # of adjacent lines
            piece = align if words else width if turned else min(align, CHUNK // own.element * width)
            issue = (TURNING_ISSUE if words else ITEM_ISSUE) + narrow * WIDENING_ISSUE
            found.append(Copy(operand, wanted, piece, turned, own.element, issue, width))
    return tuple(found)


def widens(workload: Workload) -> bool:
    """Return whether an operand of whole bytes is multiplied, unscaled, in a wider type."""
    e = extents(workload)
    return not e.scaled and min(e.bytes_a, e.bytes_b) == 1 and e.is_widened and kind(workload) is None


def sources(workload: Workload) -> dict[str, int | str]:
    """Return the macros of operand types in memory where they differ from the copies' types."""
    return constants_of_stored(extents(workload), "SOURCE") if widens(workload) else {}


def product_of_copies(workload: Workload) -> Workload:
    """Return the product of the copies."""
    units, e = {copy.operand: copy.unit for copy in copies(workload)}, extents(workload)
    types = dict.fromkeys("ab", e.multiplied) if widens(workload) else {}
    return replace(
        workload,
        dtypes=tuple((name, types.get(name, dtype)) for name, dtype in workload.dtypes),
        layout=tuple((name, units.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, CHUNK if name in units else given) for name, given in workload.alignment),
    )


class ContractionAligned(CopyOperands):
    """Copies before a main loop that reads operands by tensor copies."""

    abi = 7
    needs = (PRODUCTS,)
    entry = "contraction_align"
    copies = staticmethod(copies)
    rewritten = staticmethod(product_of_copies)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve products with an operand that tensor copies cannot read."""
        if extents(workload).window:
            return f"{workload.operator} is no product of matrices"
        if not copies(workload):
            return "tensor copies read its operands where they are"
        return self.main.serves(product_of_copies(workload), arch) or copy_launch.too_large(copies(workload), workload)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Read operands that are copied in any layout, and others as contraction_wgmma reads them."""
        copied = {copy.operand for copy in copies(workload)}
        return store.writes(workload, geometry) and tma.reads(product_of_copies(workload), geometry, copied)

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Add the macros of the copying launch, and the types of operands that it widens."""
        return super().constants(program, workload) | sources(workload)


ALIGNED = ContractionAligned(ContractionWgmma("contraction_aligned", only_products=True))
ALIGNED_TCGEN05 = ContractionAligned(ContractionTcgen05("contraction_aligned_tcgen05", only_products=True))
