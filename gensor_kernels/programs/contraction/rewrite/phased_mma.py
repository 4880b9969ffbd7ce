"""contraction_phased_mma: transposed convolutions with a stride on tensor cores, phase by phase.

The kernels are contraction_phased_mma.cu and phases.cuh; what is said of them is
contraction_mma's, of the convolution that all phases are together (phases.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.windows.conv_phased import least_depth, phased
from gensor_kernels.programs.contraction.mma import split_float as mma_split_float
from gensor_kernels.programs.contraction.mma.family import ContractionMma
from gensor_kernels.programs.contraction.mma.instructions import kind
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.family import Coordinate
from gensor_kernels.programs.core.program import Program

from .phases import OfPhases

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: the place of this coordinate
COPY = ContractionMma.names.index("copy")


class ContractionPhasedMma(OfPhases, ContractionMma):
    """Tensor-core products of the taps that each phase has."""

    name = "contraction_phased_mma"
    abi = 3
    source = "contraction_phased_mma.cu"
    streams = False

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Types that have an instruction; float32 where the sums of every phase are long enough for its parts."""
        refusal = super().serves(workload, arch)
        if refusal is None and not self.coordinates(workload, arch)[COPY].values:
            refusal = f"{arch.name} has no cp.async, or not of these filters, whose taps are no neighbours"
        if refusal is None and kind(workload) == mma_split_float.KIND:
            refusal = mma_split_float.refusal(replace(extents(phased(workload)), k=least_depth(workload)))
        return refusal

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Filters that are innermost are copied by cp.async: through registers, lines behind a tap would be read."""
        found = super().coordinates(workload, arch)
        copy = found[COPY]
        if extents(phased(workload)).unit["b"] == "n":
            copy = copy._replace(values=tuple(value for value in copy.values if value))
        return (*found[:COPY], copy, *found[COPY + 1 :])

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See phased_cases."""
        cases = super().cases(program, workload, epilogue)
        return mma_split_float.with_lost_sums(cases) if kind(workload) == mma_split_float.KIND else cases
