"""What contraction_aligned copies so that tensor copies can read it (cuda/contraction_aligned.cu)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from .extents import extents
from .operand_copies import CHUNK, Copy
from .wgmma_parts import kind

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: Instructions of a thread per store beside its loads: of the SASS.
ITEM_ISSUE = 75.0


@lru_cache(maxsize=4096)
def copies(workload: Workload) -> tuple[Copy, ...]:
    """The operands of a product that tensor copies cannot read as they lie; () where its type has no such products."""
    own, e = kind(workload), extents(workload)
    if own is None:
        return ()
    found = []
    for operand, width in (("a", e.bytes_a), ("b", int(e.bytes_b))):
        unit, align = e.unit[operand], e.align[operand]
        wanted = "k" if own.k_contiguous or unit == "s" else unit
        if unit != wanted or align < CHUNK:
            turned = unit != wanted
            found.append(Copy(operand, wanted, width if turned else align, turned, width, ITEM_ISSUE))
    return tuple(found)


def aligned(workload: Workload) -> Workload:
    """The same product of the copies."""
    units = {copy.operand: copy.unit for copy in copies(workload)}
    return replace(
        workload,
        layout=tuple((name, units.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, CHUNK if name in units else given) for name, given in workload.alignment),
    )
