"""Split float32 operands into three bfloat16 parts: contraction_floats_wgmma and contraction_floats_tcgen05.

The first launch (divide.cuh) writes the parts: of matrices along k, of convolutions along the channels of each
pixel that an output reads and along the channels of each filter tap.  mma/split_float.py and docs/float32.md say which
products are served, and how exact they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gensor_kernels.families.contraction.cases import THIN, one_tap
from gensor_kernels.families.contraction.mma import split_float as mma_split_float
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.tcgen05.family import ContractionTcgen05
from gensor_kernels.families.contraction.wgmma import implicit_gemm, store
from gensor_kernels.families.contraction.wgmma.cost import KINDS
from gensor_kernels.families.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import PRODUCTS
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.tensor_maps import ROW_BYTES
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.dtypes import PARTS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv_packed import thin_sizes

from . import copy_launch
from .base import Constants
from .copy_launch import CHUNK, Copy, CopyOperands

#: Terms of the shortest sums. At 512 the largest of 4,096 errors is above that of multiply-adds for one of twelve kinds
#: of inputs (8.6 against 8.1; typical, 1.28 against 1.67); from 1,000 on none is, on the coarsest tensor core known.
LEAST_SUM = 1000
#: Macros that have one value here.
FIXED = ("IN_TYPE", "OUT_TYPE", "A_LAYOUT", "B_LAYOUT")
#: Instructions of a thread per chunk of all parts without its loads, from the SASS.
ITEM_ISSUE = 125.0
#: Further instructions where a line is a pixel, or a filter tap.
WINDOW_ISSUE = 55.0
#: Layouts of the parts: of a product's operands, and of a convolution's.
LAYOUTS = {"a": "k", "b": "k", "x": "nhwc", "w": "krsc"}


@lru_cache(maxsize=4096)
def copies(workload: Workload) -> tuple[Copy, ...]:
    """Return the copies of both operands, along k."""
    e, kind = extents(workload), KINDS[PARTS]
    read, shapes, issue = e.bytes_a, _shapes(workload, e), ITEM_ISSUE + WINDOW_ISSUE * bool(e.window)

    def copy(operand: str) -> Copy:
        turned = e.unit[operand] != "k" or e.window == "b"  # channels that come first are no neighbours
        piece = read if turned else e.align[operand]
        return Copy(operand, "k", piece, turned, kind.element, issue, read, kind.parts, ROW_BYTES, shapes.get(operand))

    return copy("a"), copy("b")


def _shapes(workload: Workload, e: Extents) -> dict[str, tuple[int, int]]:
    """Return (elements of a line, lines) of a convolution's image and filters."""
    if not e.window:
        return {}
    z = product_of_parts(workload).size
    channels, pixels, filters = max(1, z["c"]), max(1, z["n"]) * z["h"] * z["w"], max(1, z["k_out"])
    lines = {"image": (channels, pixels), "filters": (channels, z["r"] * z["s"] * filters)}
    return {operand: lines["image" if operand == e.window else "filters"] for operand in "ab"}


@lru_cache(maxsize=4096)
def product_of_parts(workload: Workload) -> Workload:
    """Return the product of the parts; for convolutions, only of the pixels that outputs read."""
    return replace(
        workload.with_sizes(**thin_sizes(workload)) if extents(workload).window else workload,
        dtypes=tuple((name, PARTS if name in LAYOUTS else dtype) for name, dtype in workload.dtypes),
        layout=tuple((name, LAYOUTS.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, CHUNK if name in LAYOUTS else given) for name, given in workload.alignment),
    )


class ContractionFloats(CopyOperands):
    """Splitting before a main loop that reads operands by tensor copies."""

    abi = 5
    needs = (PRODUCTS,)
    entry = "contraction_divide"
    copies = staticmethod(copies)
    rewritten = staticmethod(product_of_parts)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve long float32 products and convolutions where the caller does not allow coarser arithmetic."""
        e = extents(workload)
        if {e.dtype["a"], e.dtype["b"]} != {"float32"} or workload.math != "ieee":
            return f"no product of float32 parts stands for {e.dtype['a']} and {e.dtype['b']} with {workload.math}"
        if e.window and workload.size["groups"] != 1:
            return "groups of channels are not divided"
        terms = implicit_gemm.least_terms(workload)
        if terms < LEAST_SUM:
            return f"no sums of {terms} float32 terms in parts: no less exact than multiply-adds from {LEAST_SUM} on"
        return (
            mma_split_float.refusal(e)
            or self.main.serves(product_of_parts(workload), arch)
            or copy_launch.too_large(copies(workload), workload)
        )

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Read operands in any layout; refuse results that tensor copies cannot store."""
        return store.writes(workload, geometry)

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Leave out the macros that have one value here, and add the macros of the copying launch."""
        return {name: each for name, each in super().constants(program, workload).items() if name not in FIXED}

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the main loop's cases, thin filters for convolutions, and sums that have to be formed again."""
        cases = super().cases(program, workload, epilogue)
        return mma_split_float.with_lost_sums([*cases, *(one_tap(cases) if extents(workload).window else ())])

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of product and copies, of thin filters, and of sums that are not finite."""
        thin = THIN if extents(workload).window else frozenset()
        return super().branches(program, workload) | {mma_split_float.AGAIN} | thin


FLOATS_WGMMA = ContractionFloats(ContractionWgmma("contraction_floats_wgmma", only_products=True, images="ab"))
FLOATS_TCGEN05 = ContractionFloats(ContractionTcgen05("contraction_floats_tcgen05", only_products=True, images="ab"))
