"""Families of two parts: a first launch rewrites operands into a form that the main loop of another family reads.

The main loop computes another Workload, with the rewritten operands: it answers for that Workload, under the name of
its kernel, and a family changes the answers that the first launch makes different.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from gensor_kernels.families.contraction.base import ContractionFamily, block_starters
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Columns, Coordinate, Facts, Family, Launch, Part
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

Constants = dict[str, int | str]


class Rewritten(Family):
    """A first launch and a main loop: the family gives `rewritten`, `refusal`, `cost` and what else differs."""

    #: registers per thread that a starter may be estimated to need
    starter_registers = np.inf

    def __init__(self, main: ContractionFamily) -> None:
        """Make the family of the main loop ``main``."""
        self.main, self.name, self.names, self.source = main, main.name, main.names, f"{main.name}.cu"

    def rewritten(self, workload: Workload) -> Workload:
        """Return the Workload that the main loop computes."""
        raise NotImplementedError

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return (microseconds of the first launch, bytes that the main loop finds in the L2)."""
        raise NotImplementedError

    def sizeless(self, workload: Workload) -> bool:
        """Return whether the main loop's coordinates are the same for every size."""
        return self.main.sizeless(workload)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the main loop's coordinates."""
        return self.main.coordinates(self.rewritten(workload), arch)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return the main loop's parts."""
        return self.main.parts(self.rewritten(workload), arch)

    def rule_parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return the main loop's."""
        return self.main.rule_parts(self.rewritten(workload), arch)

    def settled(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray | None:
        """Return what the main loop's rules say."""
        return self.main.settled(columns, self.rewritten(workload), arch)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Apply the main loop's rules."""
        return self.main.legal(columns, self.rewritten(workload), arch)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the main loop's default completion."""
        return self.main.defaults(columns, self.rewritten(workload), arch)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the main loop's estimate."""
        return self.main.registers(columns, self.rewritten(workload), arch)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the main loop's terms, with the time of the first launch and the bytes it leaves in the L2."""
        terms = self.main.terms(columns, self.rewritten(workload), arch, facts)
        first, kept = self.cost(workload, arch)
        terms.after = terms.after + np.float32(first)
        terms.dram_bytes = np.maximum(terms.dram_bytes - np.float32(kept), 0)
        return terms

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of the main loop's block tiles."""
        variants = self.main.variants(self.rewritten(workload))
        return block_starters(self, self.main.starter_blocks, variants, self._starts, workload, arch)

    def _starts(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        good = self.main.starts(columns, self.rewritten(workload), arch)
        return good & (self.registers(columns, workload, arch) <= self.starter_registers)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Return the main loop's macro bindings."""
        return self.main.constants(program, self.rewritten(workload))

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the main loop's launches."""
        return self.main.launches(program, self.rewritten(workload))

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the main loop's workspace."""
        return self.main.workspace(program, self.rewritten(workload))

    def tile(self, program: Program) -> dict[str, int]:
        """Return the main loop's tile."""
        return self.main.tile(program)

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k."""
        return self.main.tiling(program, geometry)

    def resplit(self, program: Program, workload: Workload, arch: Arch) -> list[Program]:
        """See Family.resplit; without divisions that leave parts of a phase's k empty, where ``program`` has none."""
        own = self.branches(program, workload)
        found = super().resplit(program, workload, arch)
        return [each for each in found if self.branches(each, workload) <= own]

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Return the main loop's opcodes, and how many of them an iteration has."""
        return self.main.multiplies(program, self.rewritten(workload))

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the main loop's widest Program."""
        return self.main.widest(program, self.rewritten(workload))

    def shared(self, program: Program) -> Program:
        """Return the main loop's shared Program."""
        return self.main.shared(program)

    def main_loop(self, program: Program) -> Hashable:
        """Return a key that Programs with the same main loop share."""
        return self.main.main_loop(program)

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the main loop's problems for a Workload that is still to be rewritten."""
        return self.main.cases(program, workload, epilogue)

    def summed(self, workload: Workload) -> Workload:
        """Return the Workload with the main loop's accumulator."""
        return replace(workload, accumulator=self.main.summed(self.rewritten(workload)).accumulator)
