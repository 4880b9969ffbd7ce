"""A small lattice of our own kernels, searched by the emulator's counts of one execution of every Program.

The counts are independent of the potential: the memory accesses of one execution, with bank conflicts. The terms of the
same accesses, for comparison, rank the Programs with a Spearman correlation of 0.91.
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.devices.emulator.build import build
from gensor_kernels.devices.emulator.run import Counters
from gensor_kernels.machine import residual
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.contraction.simt.family import ContractionSimt
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.problem import Problem

ARCH = "sm_87"
WORKLOAD = workload(128, 128, 32, dtype="float32", trans_a=True)
#: Values of the coordinates; other coordinates keep their first value.
KEPT = {
    "block_m": (32, 64),
    "block_n": (32, 64),
    "block_k": (16,),
    "vector_a": (4, 16),
    "vector_b": (4, 16),
    "form": (1,),
    "thread_m": (2, 4, 8),
    "thread_n": (2, 4, 8),
    "vthread_m": (1, 2),
    "lanes_m": (4, 8),
    "vector_c": (16,),
}
#: Clocks of a barrier, as in clblast_terms.
BARRIER = 30.0


def clocks(counted: Counters) -> float:
    """Return the clocks in which one SM serves the counted accesses: one per pass of shared memory, one per 128 bytes
    of a warp's global access, and barriers."""
    shared = sum(counted[name] for name in ("shared_loads", "shared_stores", "shared_copies"))
    moved = sum(width * count for width, count in counted.global_widths().items())
    accesses = sum(counted.global_widths().values()) / 32
    return shared + counted.bank_conflicts + max(moved / 128, accesses) + BARRIER * counted["barriers"]


class Plain(ContractionSimt):
    """The family without its starters: most of them are not points of so small a lattice."""

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return none."""
        return []


class Counted(FamilySpace):
    """The lattice, whose `potential` is `clocks` in seconds at the part's clock."""

    def __init__(self) -> None:
        family, arch = Plain(), lookup(ARCH)
        restrict = {
            c.name: KEPT.get(c.name, c.values[:1]) for c in family.coordinates(WORKLOAD, arch) if c.name != "level"
        }
        super().__init__(family, WORKLOAD, arch, restrict=restrict)
        self.families = (self,)
        self.clocks: dict[int, float] = {}

    def every(self) -> np.ndarray:
        """Return every legal complete point (n, d)."""
        return np.concatenate(list(self.enumerate()))

    def potential(self, points: np.ndarray) -> NDArray[np.float64]:
        """Return seconds by the counts; build and run Programs that have not run yet."""
        whole = self.complete(np.asarray(points))
        codes = self.encode(whole).tolist()
        for code, point in zip(codes, whole, strict=True):
            if code not in self.clocks:
                self.clocks[code] = clocks(executed(self.program(point)))
        return np.array([self.clocks[code] for code in codes]) / (self.arch.clock_ghz * 1e9)

    def keep(self, path: Path) -> None:
        """Write the clocks of every Program, by its code."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("code", "clocks"), *sorted(self.clocks.items())])
        path.write_bytes(gzip.compress(text.getvalue().encode("ascii"), mtime=0))

    def recall(self, path: Path) -> None:
        """Read the clocks that `keep` wrote."""
        rows = csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode("ascii")))
        self.clocks |= {int(row["code"]): float(row["clocks"]) for row in rows}


class Foreseen(Counted):
    """The lattice with predictions, which cost no evaluations: `prior` and `features`, both from the terms."""

    def prior(self, points: np.ndarray) -> NDArray[np.float64]:
        """Return seconds of the same accesses and barriers by the terms alone, because launches dominate so small a
        problem."""
        t = self.terms(points)
        counted = t.blocks * (t.iterations * (t.wavefronts + 2 * BARRIER) + t.epilogue_busy)
        return np.asarray(counted, np.float64) / (self.arch.clock_ghz * 1e9)

    def features(self, points: np.ndarray) -> NDArray[np.float32]:
        """Return the features of the terms, (features, n)."""
        return residual.features(self.terms(points), self.arch)


def executed(program: Program) -> Counters:
    """Return the counts of one run of a Program on the emulator; its result is checked as in verification."""
    each = candidate(FAMILIES[program.family], program, WORKLOAD)
    problem = Problem(Case("counted", WORKLOAD), seed=0)
    found = problem.run(each, build(each.source()), copies="late", order="forward")
    problem.check()
    return found
