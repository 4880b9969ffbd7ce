"""Space: the legal Programs of a Workload on an Arch, a disjoint union of family lattices.

A *point* is a vector of value indices, one per coordinate, "level" first.  ``legal`` and ``potential`` of a partial
point are the verdict and seconds of its default completion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from .core.family import Facts, Family
from .core.lattice import COMPLETE, Lattice
from .core.program import Program
from .registry import FAMILIES


class Read(NamedTuple):
    """The compiler's report on a binary, and estimates for its Program.

    ``registers`` and ``spill_bytes`` per thread, ``issue`` and ``stalls`` of an iteration (see Facts): NaN where the
    machine code was not read.  ``wanted`` are the estimated registers, ``pipe`` the estimated clocks in which a warp
    keeps its pipe busy in an iteration.
    """

    registers: float
    spill_bytes: float
    issue: float
    stalls: float
    wanted: float
    pipe: float


class Feedback:
    """Facts by binary code (see FamilySpace), and the corrections of estimates fitted over them."""

    def __init__(self) -> None:
        self._rows: dict[int, Read] = {}
        self._tables: tuple[np.ndarray, np.ndarray] | None = None
        #: the error of the register estimate, and stalls over busy clocks: medians over the facts
        self.register_offset, self.stall_ratio = 0.0, 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, code: int, read: Read) -> None:
        """Add one binary by its code."""
        self._rows[code] = read
        self._tables = None
        # A spilling binary's register count is the limit, not its demand: it says nothing about the estimate. Its
        # stalls are also those of spills.
        whole = [each for each in self._rows.values() if not each.spill_bytes]
        self.register_offset = float(np.median([each.registers - each.wanted for each in whole])) if whole else 0.0
        ratios = [each.stalls / each.pipe for each in whole if not np.isnan(each.stalls)]
        self.stall_ratio = float(np.median(ratios)) if ratios else 0.0

    def facts(self, codes: np.ndarray) -> Facts:
        """Facts for binary codes (n,): NaN where a binary was never compiled."""
        known, rows = self._sorted()
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        found = known[at] == codes
        picked = np.where(found, rows[:, at], np.float32(np.nan))
        registers, spill_bytes, issue, stalls = picked
        corrections = np.float32(self.register_offset), np.float32(self.stall_ratio)
        return Facts(registers, spill_bytes, issue, stalls, *corrections)

    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        if self._tables is None:
            codes = np.array(sorted(self._rows), dtype=np.int64)
            rows = np.array([self._rows[int(code)][:4] for code in codes], dtype=np.float32).T
            self._tables = codes, np.ascontiguousarray(rows)
        return self._tables


class Space:
    """Every family lattice that serves ``workload`` on ``arch``.

    ``feedback`` carries compiler facts from another Space of the same class and epilogue (see
    FamilySpace.add_feedback).
    Raises UnsupportedError, with the reason of the nearest family, when none serves it.
    """

    def __init__(self, workload: Workload, arch: Arch, feedback: Mapping[str, Feedback] | None = None):
        self.workload, self.arch = workload, arch
        reasons = {name: family.serves(workload, arch) for name, family in FAMILIES.items()}
        self.families = tuple(
            FamilySpace(FAMILIES[name], workload, arch, (feedback or {}).get(name))
            for name, reason in reasons.items()
            if reason is None
        )
        if not self.families:
            nearest = max(FAMILIES.values(), key=lambda family: family.nearness(workload, arch))
            raise UnsupportedError(str(reasons[nearest.name]))

    @property
    def feedback(self) -> dict[str, Feedback]:
        """Compiler facts gathered so far by family name, to hand to another Space."""
        return {space.family.name: space.feedback for space in self.families}

    @property
    def names(self) -> tuple[str, ...]:
        """The families that serve this Workload."""
        return tuple(space.family.name for space in self.families)

    def family(self, name: str) -> FamilySpace:
        """Return the lattice of one family; KeyError when it does not serve this Workload."""
        for space in self.families:
            if space.family.name == name:
                return space
        raise KeyError(name)


class FamilySpace(Lattice):
    """One family's lattice for a Workload on an Arch: which points are legal, and how fast they are predicted to be.

    ``feedback`` holds compiler facts; ``restrict`` keeps only some values of some coordinates.
    """

    def __init__(
        self,
        family: Family,
        workload: Workload,
        arch: Arch,
        feedback: Feedback | None = None,
        restrict: Mapping[str, Collection[int]] | None = None,
    ):
        super().__init__(family, workload, arch, restrict)
        self.feedback = Feedback() if feedback is None else feedback
        self._static = np.array([0 if c.runtime or c.name == "level" else 1 for c in self.coordinates])

    # ---- legality and the potential

    def legal(self, points: np.ndarray) -> np.ndarray:
        """Return which points (n, d) can be built and launched: on the lattice, canonical, and legal when completed."""
        points = np.asarray(points)
        inside = ((points >= 0) & (points < self.extents)).all(axis=1)
        if not inside.all():
            verdict = np.zeros(len(points), dtype=bool)
            if inside.any():
                verdict[inside] = self.legal(points[inside])
            return verdict
        whole = self.complete(points)
        verdict = self.family.legal(self.columns(whole), self.workload, self.arch)
        if whole is not points:
            verdict = verdict & ~((points != 0) & (self.levels[None] > points[:, :1])).any(axis=1)
        return verdict

    def potential(self, points: np.ndarray) -> np.ndarray:
        """Predicted seconds of legal points (n, d), float64; a partial point counts as its completion."""
        return roofline.seconds(self.terms(points), self.arch)

    def terms(self, points: np.ndarray) -> roofline.Terms:
        """Return the terms of :meth:`potential`."""
        whole = self.complete(np.asarray(points))
        facts = self._facts(whole)
        return self.family.terms(self.columns(whole), self.workload, self.arch, facts)

    def explain(self, point: Sequence[int] | np.ndarray) -> dict[str, float]:
        """Return the terms of one point by name, and ``seconds``."""
        points = np.asarray(point, dtype=np.int64)[None]
        terms = self.terms(points)
        row = {f.name: float(np.broadcast_to(getattr(terms, f.name), (1,))[0]) for f in fields(terms)}
        return {**row, "seconds": float(roofline.seconds(terms, self.arch)[0])}

    # ---- enumeration

    def enumerate(self, chunk: int = 65536) -> Iterator[np.ndarray]:
        """Every legal complete point, in the order of codes, in arrays of at most ``chunk`` lattice points."""
        first = COMPLETE * int(self.radix[0])
        for start in range(first, self.size, chunk):
            points = self.decode(np.arange(start, min(start + chunk, self.size)))
            legal = points[self.legal(points)]
            if len(legal):
                yield legal

    def start(self) -> np.ndarray:
        """Return the smallest legal point (d,) at level 0: the least product of tile extents, first in code order."""
        return self._start.copy()

    @cached_property
    def _start(self) -> np.ndarray:
        tiles = [i for i, c in enumerate(self.coordinates) if c.level == 0 and c.kind == "tile"]
        shape = tuple(len(self.coordinates[i].values) for i in tiles)
        points = np.zeros((int(np.prod(shape)), len(self.coordinates)), dtype=np.int64)
        points[:, tiles] = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
        points = points[self.legal(points)]
        if not len(points):
            raise UnsupportedError(f"{self.family.name}: no legal block tile for {self.workload.key()}")
        extents = np.prod([np.array(self.coordinates[i].values)[points[:, i]] for i in tiles], axis=0)
        return points[int(np.argmin(extents))]

    # ---- compiler facts

    def add_feedback(
        self,
        program: Program,
        registers: int,
        spill_bytes: int,
        hot_loop: Mapping[str, float] | None = None,
        stalls: int = 0,
        products: Mapping[str, int] | None = None,
    ) -> None:
        """Fold compiler facts of one Program into the potential.

        Programs that share its compile-time coordinates get these facts, the others corrections of the estimates
        fitted over all facts.  ``hot_loop`` are the main loop's instructions by opcode (resources.Sass.hot_loop),
        ``stalls`` and ``products`` its stall counts and products on the path of whole steps (resources.Sass.steady), of
        as many iterations as the compiler unrolled; empty, 0 or None where the binary was not disassembled.
        """
        point = self.point(program)[None]
        columns = self.columns(point)
        registers_wanted = float(self.family.registers(columns, self.workload, self.arch)[0])
        terms = self.family.terms(columns, self.workload, self.arch)
        pipe = float(np.maximum(terms.math, terms.multiplies + terms.issue)[0])
        opcodes, wanted = self.family.multiplies(program, self.workload)
        # The share of an iteration: compilers unroll short loops.
        multiplies = sum((hot_loop or {}).get(opcode, 0) for opcode in opcodes)
        issue = sum(hot_loop.values()) * wanted / multiplies if hot_loop and multiplies else np.nan
        whole = sum(count for name, count in (products or {}).items() if name.partition(".")[0] in opcodes)
        clocks = stalls * wanted / whole if stalls and whole else np.nan
        read = Read(float(registers), float(spill_bytes), issue, clocks, registers_wanted, pipe)
        self.feedback.add(int(self._binary_codes(point)[0]), read)

    def _binary_codes(self, points: np.ndarray) -> np.ndarray:
        return self.encode(self._shared(points))

    def _shared(self, points: np.ndarray) -> np.ndarray:
        """Points with runtime coordinates zeroed; a split keeps whether it is taken, which the source depends on."""
        static = points * self._static
        for i, coordinate in enumerate(self.coordinates):
            if coordinate.kind == "split" and coordinate.runtime:
                static[:, i] = points[:, i] > 0
        return static

    def _facts(self, whole: np.ndarray) -> Facts | None:
        return self.feedback.facts(self._binary_codes(whole)) if self.feedback else None
