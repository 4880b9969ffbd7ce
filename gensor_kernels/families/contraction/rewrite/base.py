"""Families of two parts: a first launch rewrites operands into a form that the main loop of another family reads.

The main loop computes another Workload, with the rewritten operands.  A ``Rewrite`` provides that Workload, the first
launch, and the changes to the main loop's space and launches; ``Rewritten`` is the family.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction.base import ContractionFamily, block_starters
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Columns, Coordinate, Facts, Family, Launch, Need, Part
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

Constants = dict[str, int | str]


class Rewrite:
    """A rewrite of operands before a main loop.

    Methods whose first argument has their own name, or is a Program or a number of bytes, get the main loop's answer
    and return that of the family: by default the same.
    """

    #: coordinates whose values follow from sizes, and all values that they may have (Family.own)
    own: Mapping[str, Collection[int]] = MappingProxyType({})
    #: (Family.needs)
    needs: tuple[Need, ...] = ()
    #: registers per thread that a starter may be estimated to need; None: any number
    starter_registers: float | None = None

    def rewritten(self, workload: Workload) -> Workload:
        """Return the Workload that the main loop computes."""
        raise NotImplementedError

    def refusal(self, workload: Workload, arch: Arch, main: ContractionFamily) -> str | None:
        """Return None where rewrite and main loop can compute the Workload on the Arch, else the reason why not."""
        raise NotImplementedError

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return (microseconds of the first launch, bytes that the main loop finds in the L2)."""
        raise NotImplementedError

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Return whether kernels can read operands with the strides of ``geometry``."""
        return True

    # ---- the space

    def coordinates(self, coordinates: tuple[Coordinate, ...], workload: Workload) -> tuple[Coordinate, ...]:
        """Return the lattice, given the main loop's."""
        return coordinates

    def parts(self, parts: tuple[Part, ...], workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return the tabulated parts, given the main loop's."""
        return parts

    def defaults(self, defaults: dict[str, np.ndarray], columns: Columns) -> dict[str, np.ndarray]:
        """Return the default completion, given the main loop's."""
        return defaults

    # ---- one Program

    def constants(self, constants: Constants, workload: Workload) -> Constants:
        """Return the macro bindings of the kernel source, given the main loop's."""
        raise NotImplementedError

    def launches(self, launches: Sequence[Launch], program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the launches of one call, given the main loop's."""
        raise NotImplementedError

    def workspace(self, nbytes: int, program: Program, workload: Workload) -> int:
        """Return the bytes of workspace, given the main loop's."""
        raise NotImplementedError

    def tiling(self, tiling: Tiling, tile: Mapping[str, int], geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k of a main loop with this ``tile``."""
        return tiling

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with the widest accesses, given the main loop's."""
        return program

    def shared(self, program: Program) -> Program:
        """Return the Program without its compiled epilogue and launch bounds, given the main loop's."""
        return program

    def cases(
        self, program: Program, workload: Workload, epilogue: tuple[str, ...], main: ContractionFamily
    ) -> list[Case]:
        """Return the problems that a Program is verified on."""
        return main.cases(program, workload, epilogue)

    def branches(self, program: Program, workload: Workload, main: ContractionFamily) -> frozenset[str]:
        """Return the coverage names that a verification must have counted."""
        raise NotImplementedError


class Rewritten(Family):
    """The family of a rewrite and a main loop, under the name of the main loop's kernel."""

    def __init__(self, rewrite: Rewrite, main: ContractionFamily, abi: int) -> None:
        self.rewrite, self.main = rewrite, main
        self.name, self.abi, self.source = main.name, abi, f"{main.name}.cu"
        self.names, self.own, self.needs = main.names, rewrite.own, rewrite.needs

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """See Rewrite.refusal."""
        return self.rewrite.refusal(workload, arch, self.main)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """See Rewrite.reads."""
        return self.rewrite.reads(workload, geometry)

    def sizeless(self, workload: Workload) -> bool:
        """Return whether the main loop's coordinates are the same for every size."""
        return self.main.sizeless(workload)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the main loop's coordinates, as the rewrite restricts them."""
        return self.rewrite.coordinates(self.main.coordinates(self._rewritten(workload), arch), workload)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return the main loop's parts, as the rewrite changes them."""
        return self.rewrite.parts(self.main.parts(self._rewritten(workload), arch), workload, arch)

    def rule_parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return the main loop's."""
        return self.main.rule_parts(self._rewritten(workload), arch)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Apply the main loop's rules."""
        return self.main.legal(columns, self._rewritten(workload), arch)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the main loop's default completion, as the rewrite changes it."""
        return self.rewrite.defaults(self.main.defaults(columns, self._rewritten(workload), arch), columns)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the main loop's estimate."""
        return self.main.registers(columns, self._rewritten(workload), arch)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the main loop's terms, with the time of the first launch and the bytes it leaves in the L2."""
        terms = self.main.terms(columns, self._rewritten(workload), arch, facts)
        first, kept = self.rewrite.cost(workload, arch)
        terms.after = terms.after + np.float32(first)
        terms.dram_bytes = np.maximum(terms.dram_bytes - np.float32(kept), 0)
        return terms

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of the main loop's block tiles."""
        variants = self.main.variants(self._rewritten(workload))
        return block_starters(self, self.main.starter_blocks, variants, self._starts, workload, arch)

    def _starts(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        good = self.main.starts(columns, self._rewritten(workload), arch)
        most = self.rewrite.starter_registers
        return good if most is None else good & (self.registers(columns, workload, arch) <= most)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> Constants:
        """See Rewrite.constants."""
        return self.rewrite.constants(self.main.constants(program, self._rewritten(workload)), workload)

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """See Rewrite.launches."""
        return self.rewrite.launches(self.main.launches(program, self._rewritten(workload)), program, workload)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """See Rewrite.workspace; nothing needs to be zero."""
        nbytes, zero = self.main.workspace(program, self._rewritten(workload))
        return self.rewrite.workspace(nbytes, program, workload), zero

    def tile(self, program: Program) -> dict[str, int]:
        """Return the main loop's tile."""
        return self.main.tile(program)

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k."""
        return self.rewrite.tiling(self.main.tiling(program, geometry), self.tile(program), geometry)

    def resplit(self, program: Program, workload: Workload, arch: Arch) -> list[Program]:
        """See Family.resplit; without divisions that leave parts of a phase's k empty, where ``program`` has none."""
        own = self.branches(program, workload)
        found = super().resplit(program, workload, arch)
        return [each for each in found if self.branches(each, workload) <= own]

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Return the main loop's opcodes, and how many of them an iteration has."""
        return self.main.multiplies(program, self._rewritten(workload))

    def widest(self, program: Program, workload: Workload) -> Program:
        """See Rewrite.widest."""
        return self.rewrite.widest(self.main.widest(program, self._rewritten(workload)), workload)

    def shared(self, program: Program) -> Program:
        """See Rewrite.shared."""
        return self.rewrite.shared(self.main.shared(program))

    def main_loop(self, program: Program) -> Hashable:
        """Return a key that Programs with the same main loop share."""
        return self.main.main_loop(program)

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See Rewrite.cases."""
        return self.rewrite.cases(program, workload, epilogue, self.main)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """See Rewrite.branches."""
        return self.rewrite.branches(program, workload, self.main)

    def summed(self, workload: Workload) -> Workload:
        """Return the Workload with the main loop's accumulator."""
        return replace(workload, accumulator=self.main.summed(self._rewritten(workload)).accumulator)

    def _rewritten(self, workload: Workload) -> Workload:
        return self.rewrite.rewritten(workload)
