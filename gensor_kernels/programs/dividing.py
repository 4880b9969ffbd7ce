"""What contraction_floats_wgmma makes of float32 operands: three bfloat16 parts of each (cuda/wgmma_floats.cuh)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..operators.storage import PARTS
from .extents import extents
from .operand_copies import CHUNK, Copy
from .tensor_maps import ROW_BYTES
from .wgmma_parts import KINDS

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: Instructions of a thread per chunk of all parts beside its loads: of the SASS.
ITEM_ISSUE = 125.0


@lru_cache(maxsize=4096)
def copies(workload: Workload) -> tuple[Copy, ...]:
    """Both operands, along k."""
    e, kind = extents(workload), KINDS[PARTS]
    read = e.bytes_a
    return tuple(
        Copy(
            *(operand, "k", e.align[operand] if e.unit[operand] == "k" else read, e.unit[operand] != "k", kind.element),
            *(ITEM_ISSUE, read, kind.parts, ROW_BYTES),
        )
        for operand in "ab"
    )


@lru_cache(maxsize=4096)
def divided(workload: Workload) -> Workload:
    """The product of the parts."""
    return replace(
        workload,
        dtypes=tuple((name, PARTS if name in ("a", "b") else dtype) for name, dtype in workload.dtypes),
        layout=tuple((name, "k" if name in ("a", "b") else layout) for name, layout in workload.layout),
        alignment=tuple((name, CHUNK if name in ("a", "b") else given) for name, given in workload.alignment),
    )
