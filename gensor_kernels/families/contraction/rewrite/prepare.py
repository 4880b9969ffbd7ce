"""Apply a prologue before a product: contraction_prepared_wgmma, warpgroup products of its result.

The first launch (prepared.cuh) applies the operations to A, and writes aligned lines along A's own contiguous axis.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gensor_kernels.families.contraction import prologue
from gensor_kernels.families.contraction.base import workspace_bytes
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.tcgen05.family import ContractionTcgen05
from gensor_kernels.families.contraction.wgmma import store, tma
from gensor_kernels.families.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.families.core.family import PRODUCTS, Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import first_launch_cost
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from .base import Constants, Rewritten

ENTRY = "contraction_prepare"
#: Bytes of which lines of the prepared operand are multiples.
CHUNK = prologue.PITCH_BYTES
#: Instructions of a thread without those of its elements, from the SASS.
ITEM_ISSUE = 60.0
#: The operands of a product.
OPERANDS = ("a", "b", "c")


@lru_cache(maxsize=4096)
def product_of_prepared(workload: Workload) -> Workload:
    """Return the product of the prepared operand."""
    unit = "k" if extents(workload).unit["a"] == "s" else extents(workload).unit["a"]
    return replace(
        workload,
        operator=matmul.NAME,
        dtypes=tuple(each for each in workload.dtypes if each[0] in OPERANDS),
        layout=tuple((name, unit if name == "a" else own) for name, own in workload.layout if name in OPERANDS),
        alignment=tuple((name, CHUNK if name == "a" else own) for name, own in workload.alignment if name in OPERANDS),
        prologue=(),
    )


class ContractionPrepared(Rewritten):
    """A prologue before a main loop that reads operands by tensor copies."""

    abi = 2
    needs = (PRODUCTS,)
    rewritten = staticmethod(product_of_prepared)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve matrix products after a prologue."""
        e = extents(workload)
        if not e.prologue or e.window:
            return f"no operations are applied to a matrix of {workload.operator}"
        return self.main.serves(product_of_prepared(workload), arch)

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return the cost of the first launch, which reads A, applies the operations to its elements, and writes it."""
        e = extents(workload)
        assert e.prologue
        elements = float(e.batch) * e.m * e.k
        issue = elements / 32 * (prologue.element_issue(e.prologue, e.element) + ITEM_ISSUE / _width(e))
        return first_launch_cost(e.whole_a * e.batch, elements * e.element, issue, arch)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Read A in any layout, unless entries of an outer batch axis are repeated along an inner one."""
        axes = [stride for stride, extent in zip(geometry.a.batch, geometry.batch, strict=True) if extent > 1]
        distinct = [stride != 0 for stride in axes]
        return (
            distinct == sorted(distinct)
            and store.writes(workload, geometry)
            and tma.reads(product_of_prepared(workload), geometry, {"a"})
        )

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Add the macros of the first launch."""
        e = extents(workload)
        own: Constants = {"A_UNIT": int(e.unit["a"] != "s"), "A_VECTOR": _width(e) * e.element}
        return super().constants(program, workload) | own | prologue.macros(e.prologue, materialised=True)

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put the first launch before the product; its result follows the sums of a split in the workspace."""
        e, (main, *rest) = extents(workload), super().launches(program, workload)
        lines, run = prologue.lines_of(e)
        items = e.batch * lines * -(-run // _width(e))
        place = workspace_bytes(program, product_of_prepared(workload))
        maps = tuple(replace(each, copied_at=place) if each.operand == "a" else each for each in main.maps)
        first = Launch(ENTRY, -(-items // prologue.PREPARE_THREADS), prologue.PREPARE_THREADS, 0)
        return (first, replace(main, maps=maps, dependent=True), *rest)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Add the prepared operand."""
        (nbytes, zero), e = super().workspace(program, workload), extents(workload)
        lines, run = prologue.lines_of(e)
        return nbytes + e.batch * lines * -(-run * e.element // CHUNK) * CHUNK, zero

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of product and prologue."""
        return self.main.branches(program, product_of_prepared(workload)) | {"prologue", "materialise"}


def _width(e: Extents) -> int:
    """Return the elements of an access of the first launch."""
    return e.align["a"] // e.element if e.unit["a"] != "s" else 1


PREPARED = ContractionPrepared(ContractionWgmma("contraction_prepared_wgmma", only_products=True))
PREPARED_TCGEN05 = ContractionPrepared(ContractionTcgen05("contraction_prepared_tcgen05", only_products=True))
