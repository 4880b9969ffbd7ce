"""contraction_prologue_wgmma: warpgroup products whose left operand passes through a prologue in registers.

The ring, its requests and the stores are those of contraction_wgmma (prologue_products.cuh, wgmma_*.cuh).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.contraction import prologue as contraction_prologue
from gensor_kernels.programs.contraction import stream_k
from gensor_kernels.programs.contraction.problem import Extents, extents
from gensor_kernels.programs.core.family import Coordinate
from gensor_kernels.programs.core.program import Program

from . import cluster, cost, store
from .family import ContractionWgmma

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

NAME = "contraction_prologue_wgmma"
#: The coordinates that have fewer values here: a block has one tile, by itself, and does not store by tensor copies.
NARROWED = {
    "cluster": (cluster.ALONE,),
    "persistent": (cost.ONE_TILE,),
    "epilogue_staged": (store.DIRECT, store.STAGED),
}


class ContractionPrologueWgmma(ContractionWgmma):
    """Products behind a prologue."""

    abi = 1
    source = f"{NAME}.cu"
    names = tuple(name for name in ContractionWgmma.names if name != stream_k.NAME)

    def __init__(self) -> None:
        super().__init__(NAME, only_products=True, images="")

    def computes(self, e: Extents) -> bool:
        """Whether the kernel computes what is beside the product: a prologue on a matrix of 16-bit elements."""
        return bool(e.prologue) and not e.window and e.bytes_a == 2

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return those of contraction_wgmma, some with fewer values."""
        found = super().coordinates(workload, arch)
        return tuple(each._replace(values=NARROWED.get(each.name, each.values)) for each in found)

    def variants(self, workload: Workload) -> list[dict[str, int]]:
        """Return no further coordinates: starters differ in their tiles."""
        return [{}]

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_prologue_wgmma.cu."""
        return super().constants(program, workload) | contraction_prologue.constants(program, extents(workload))
