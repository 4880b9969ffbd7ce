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

from . import cost
from .family import ContractionWgmma

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

NAME = "contraction_prologue_wgmma"


class ContractionPrologueWgmma(ContractionWgmma):
    """Products behind a prologue."""

    abi = 2
    source = f"{NAME}.cu"
    names = tuple(name for name in ContractionWgmma.names if name != stream_k.NAME)

    def __init__(self) -> None:
        super().__init__(NAME, only_products=True, images="")

    def computes(self, e: Extents) -> bool:
        """Whether the kernel computes what is beside the product: a prologue on a matrix of 16-bit elements."""
        return bool(e.prologue) and not e.window and e.bytes_a == 2

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return those of contraction_wgmma; warpgroups do not take tiles in turn."""
        ways = (cost.ONE_TILE, cost.WALKING)
        found = super().coordinates(workload, arch)
        return tuple(each._replace(values=ways) if each.name == "persistent" else each for each in found)

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_prologue_wgmma.cu."""
        return super().constants(program, workload) | contraction_prologue.constants(program, extents(workload))
