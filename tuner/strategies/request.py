"""Walks as tasks: the request for a walk and its result, both sent as JSON."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import metadata
from typing import Any, ClassVar

from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.families.validation import workload_of
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.search.trace import Trail
from gensor_tuner.tasks.task import Task, from_plain

from . import Search, strategy

KEEP = 12  # Programs returned per walk, as candidates for the cover of a run
CHAINS, STEPS = 48, 200  # of the first walk
AGAIN_CHAINS = 32  # of the walk with compiler feedback


@dataclass(frozen=True)
class Facts:
    """The compiler's report on one Program: registers, spilled bytes, and instructions and stalls of its main loop."""

    program: Program
    registers: int
    spill_bytes: int
    hot_loop: tuple[tuple[str, int], ...] = ()
    stalls: int = 0
    products: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, program: Program, facts: Mapping[str, Any]) -> Facts:
        """Return what a stored binary's facts (JSON, see store/kernel_rows.py) say of its main kernel."""
        steady = facts.get("steady", {})
        return cls(
            program,
            facts["registers"],
            facts["spill_bytes"],
            tuple(sorted(facts.get("hot_loop", {}).items())),
            steady.get("stalls", 0),
            tuple(sorted(steady.get("products", {}).items())),
        )


@dataclass(frozen=True)
class Found:
    """The result of a walk: Programs with different main loops, best first, with trails; or why it was `lost`."""

    best: tuple[tuple[Program, float], ...]
    trails: tuple[Trail, ...]
    evaluations: int
    seconds: float = field(compare=False)
    lost: str = ""


@dataclass(frozen=True)
class Request(Task[Found]):
    """One walk to take; `start` and `feedback` are empty for the first walk."""

    kind: ClassVar[str] = "walk"
    answer: ClassVar[type] = Found
    in_python: ClassVar[bool] = True

    workload: Workload
    arch: Arch
    seed: int
    graph: str
    feedback: tuple[Facts, ...] = ()
    start: tuple[Program, ...] = ()
    strategy: str = "walk"
    evaluations: int | None = None

    @property
    def key(self) -> str:
        """A digest of everything that a walk follows from: the request and the version of this package."""
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        mine |= {"workload": self.workload.key(), "arch": _figures(self.arch)}
        return hashlib.sha256(repr((_version(), mine)).encode()).hexdigest()

    def run(self) -> Found:
        """Take the walk."""
        return search(self)

    def lost(self, reason: str) -> Found:
        """Return a walk that found nothing."""
        return Found((), (), 0, 0.0, reason)

    def arguments(self) -> dict[str, object]:
        """Return the fields; the arch goes with its figures, since not every GPU is listed."""
        more = {"workload": self.workload.key(), "arch": self.arch.values()}
        return {each.name: getattr(self, each.name) for each in fields(self)} | more

    @classmethod
    def from_arguments(cls, plain: dict[str, Any]) -> Request:
        """Return the request with these fields."""
        more = {"workload": workload_of(plain["workload"]), "arch": from_plain(Arch, plain["arch"])}
        more["feedback"] = from_plain(tuple[Facts, ...], plain["feedback"])
        more["start"] = from_plain(tuple[Program, ...], plain["start"])
        return cls(**plain | more)

    def check(self, result: Found) -> None:
        """Raise one of `MALFORMED` unless a walk has found Programs of this Workload's space, one trail for each."""
        if len(result.best) != len(result.trails):
            raise ValueError("a walk has one trail for each of its Programs")
        if not all(each < math.inf for each in (result.seconds, *(us for _, us in result.best))):
            raise ValueError("a walk's figures are finite")
        space = Space(self.workload, self.arch)
        for program, _ in result.best:
            if program_from_json(program.to_json()) != program:
                raise ValueError(f"{program.family} has its coordinates in another order")
            space.family(program.family).point(program)
        for workload in {leg.workload for trail in result.trails for leg in trail.legs}:
            if workload is not None:
                workload_of(workload.key())


@cache
def _figures(arch: Arch) -> str:
    """Return all figures of an arch as text that is the same in every process: sets come in another order in each."""
    figures = {each.name: getattr(arch, each.name) for each in fields(arch)}
    return repr({name: sorted(each) if isinstance(each, frozenset) else each for name, each in figures.items()})


@cache
def _version() -> str:
    """Return the version of this package, read once: its metadata takes milliseconds, and keys are computed often."""
    return metadata.version("gensor-kernels")


def walk_seed(seed: int, workload: Workload) -> int:
    """Return a seed for a workload that does not depend on a run's other workloads or their order."""
    digest = hashlib.sha256(f"{seed}:{workload.key()}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def learn(space: Space, facts: Facts) -> None:
    """Add the compiler's report on a Program to the potential of a space."""
    # A binary with a compile-time epilogue is not on the lattice of a workload without it.
    with suppress(KeyError, ValueError):
        _add(space.family(facts.program.family), facts)


def _add(space: FamilySpace, facts: Facts) -> None:
    space.add_feedback(
        *(facts.program, facts.registers, facts.spill_bytes),
        *(dict(facts.hot_loop), facts.stalls, dict(facts.products)),
    )


def space_for(workload: Workload, arch: Arch, feedback: Sequence[Facts] = ()) -> Space:
    """Return the space of a workload, with compiler feedback in its potential."""
    space = Space(workload, arch)
    for facts in feedback:
        learn(space, facts)
    return space


def compiled_space(workload: Workload, arch: Arch, program: Program, facts: Mapping[str, Any]) -> FamilySpace:
    """Return the space of one Program alone, with a stored binary's `facts` about it ({} without one)."""
    # The whole lattice would take ten times as long; "level" must keep all its values to mark partial points.
    alone = {name: (value,) for name, value in program.values if name != "level"}
    space = FamilySpace(FAMILIES[program.family], workload, arch, restrict=alone)
    if facts:
        _add(space, Facts.of(program, facts))
    return space


def search(request: Request) -> Found:
    """Run the request's strategy, by default a walk, in this process."""
    began = time.perf_counter()
    space = space_for(request.workload, request.arch, request.feedback)
    asked = Search(
        space,
        seed=walk_seed(request.seed, request.workload),
        chains=AGAIN_CHAINS if request.start else CHAINS,
        steps=STEPS,
        start=request.start or None,
        evaluations=request.evaluations,
        keep=KEEP,
        traced=KEEP,
        alike=lambda program: FAMILIES[program.family].main_loop(program),
    )
    taken = strategy("paper" if request.graph == "paper" else request.strategy)(asked)
    trails = tuple(trail.within(request.workload) for trail in taken.trails)
    return Found(tuple(taken.best), trails, taken.evaluations, time.perf_counter() - began)
