"""Families that another one's main loop makes, behind a launch that rewrites the operands: packed, copied, cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.programs.core.family import Columns, Coordinate, Facts, Family, Part
from gensor_kernels.programs.core.program import Program

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


class OfRewritten(Family):
    """To the main launch the workload is another one, of what the launch in front has written: the family behind this
    class in the bases answers for that one."""

    def rewritten(self, workload: Workload) -> Workload:
        """What the main launch computes."""
        raise NotImplementedError

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """(microseconds of the launch in front, bytes that the main launch finds in the L2)."""
        raise NotImplementedError

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Those of the main launch."""
        return super().coordinates(self.rewritten(workload), arch)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Those of the main launch."""
        return super().parts(self.rewritten(workload), arch)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """The rules of the main launch."""
        return super().legal(columns, self.rewritten(workload), arch)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Those of the main launch."""
        return super().defaults(columns, self.rewritten(workload), arch)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Those of the main launch."""
        return super().registers(columns, self.rewritten(workload), arch)

    def widest(self, program: Program, workload: Workload) -> Program:
        """The same Program with the widest accesses."""
        return super().widest(program, self.rewritten(workload))

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Matrix instructions of an iteration."""
        return super().multiplies(program, self.rewritten(workload))

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """The main launch's, what it finds in the L2, and the microseconds of the launch in front."""
        terms = super().terms(columns, self.rewritten(workload), arch, facts)
        first, kept = self.front(workload, arch)
        terms.after = terms.after + np.float32(first)
        terms.dram_bytes = np.maximum(terms.dram_bytes - np.float32(kept), 0)
        return terms
