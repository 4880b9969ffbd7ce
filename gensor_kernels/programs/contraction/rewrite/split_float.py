"""What contraction_floats_wgmma makes of float32 operands: three bfloat16 parts of each
(wgmma_floats.cuh).

Matrices are divided along k.  Of a convolution, the channels of the pixels that outputs read are, and what
filters have of one tap.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gensor_kernels.operators.types.storage import PARTS
from gensor_kernels.operators.windows.conv_packed import thin_sizes
from gensor_kernels.programs.contraction.problem import Extents, extents
from gensor_kernels.programs.contraction.wgmma.cost import KINDS
from gensor_kernels.programs.core.tensor_maps import ROW_BYTES

from .copy_launch import CHUNK, Copy

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Instructions of a thread per chunk of all parts beside its loads: of the SASS.
ITEM_ISSUE = 125.0
#: And where a line is a pixel, or what filters have of a tap.
WINDOW_ISSUE = 55.0
#: How the parts of operands lie: those of a product, and of a convolution.
LAYOUTS = {"a": "k", "b": "k", "x": "nhwc", "w": "krsc"}


@lru_cache(maxsize=4096)
def copies(workload: Workload) -> tuple[Copy, ...]:
    """Both operands, along k."""
    e, kind = extents(workload), KINDS[PARTS]
    read, shapes, issue = e.bytes_a, _shapes(workload, e), ITEM_ISSUE + WINDOW_ISSUE * bool(e.window)

    def copy(operand: str) -> Copy:
        turned = e.unit[operand] != "k" or e.window == "b"  # channels that come first are no neighbours
        piece = read if turned else e.align[operand]
        return Copy(operand, "k", piece, turned, kind.element, issue, read, kind.parts, ROW_BYTES, shapes.get(operand))

    return copy("a"), copy("b")


def _shapes(workload: Workload, e: Extents) -> dict[str, tuple[int, int]]:
    """(elements of a line, lines) of a convolution's image and filters."""
    if not e.window:
        return {}
    z = divided(workload).size
    channels, pixels, filters = max(1, z["c"]), max(1, z["n"]) * z["h"] * z["w"], max(1, z["k_out"])
    lines = {"image": (channels, pixels), "filters": (channels, z["r"] * z["s"] * filters)}
    return {operand: lines["image" if operand == e.window else "filters"] for operand in "ab"}


@lru_cache(maxsize=4096)
def divided(workload: Workload) -> Workload:
    """The product of the parts; of a convolution, that of the pixels which outputs read."""
    return replace(
        workload.with_sizes(**thin_sizes(workload)) if extents(workload).window else workload,
        dtypes=tuple((name, PARTS if name in LAYOUTS else dtype) for name, dtype in workload.dtypes),
        layout=tuple((name, LAYOUTS.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, CHUNK if name in LAYOUTS else given) for name, given in workload.alignment),
    )
