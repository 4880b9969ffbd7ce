"""Walks as tasks: the request for a walk and its result, both sent as JSON."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import metadata
from typing import Any, ClassVar

from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.families.validation import workload_of
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.search.trace import Leg, Trail
from gensor_tuner.tasks.task import Task

from . import Search, strategy

KEEP = 12  # Programs returned per walk, as candidates for the cover of a run
CHAINS, STEPS = 48, 200  # of the first walk
AGAIN_CHAINS = 32  # of the walk with compiler feedback


@dataclass(frozen=True)
class Facts:
    """The compiler's report on one Program.

    Registers per thread, spilled bytes, and of the main loop its instructions by opcode, and the stall counts and
    products of the path of whole steps (empty and 0 without a disassembler).
    """

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

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Facts:
        """Return the facts whose fields, with the Program as its JSON, are `values`."""
        pairs = {
            name: tuple((str(word), int(count)) for word, count in values[name]) for name in ("hot_loop", "products")
        }
        return cls(**{**values, "program": program_from_json(values["program"]), **pairs})


@dataclass(frozen=True)
class Found:
    """The result of a walk: Programs with different main loops, best first, each with its trail.

    `lost` is the reason where no machine could finish the walk.
    """

    best: tuple[tuple[Program, float], ...]
    trails: tuple[Trail, ...]
    evaluations: int
    seconds: float = field(compare=False)
    lost: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        places: dict[str, int] = {}  # most legs are in the space of one Workload: its key is written once

        def place(workload: Workload | None) -> int | None:
            return None if workload is None else places.setdefault(workload.key(), len(places))

        trails = [
            [t.family, t.graph, t.start, [[leg.seed, leg.path, place(leg.workload)] for leg in t.legs]]
            for t in self.trails
        ]
        best = [[program.to_json(), seconds] for program, seconds in self.best]
        more = {"evaluations": self.evaluations, "seconds": self.seconds}
        return {"best": best, "trails": trails, "workloads": list(places), **more}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Found:
        """Return the result of `to_json`."""
        trails = []
        workloads = {place: workload_of(key) for place, key in enumerate(values["workloads"])}
        for family, graph, start, legs in values["trails"]:
            made = tuple(Leg(seed, path, workloads.get(place)) for seed, path, place in legs)
            trails.append(Trail(family, graph, tuple(start), made))
        best = tuple((program_from_json(program), float(seconds)) for program, seconds in values["best"])
        return cls(best, tuple(trails), int(values["evaluations"]), float(values["seconds"]))


@dataclass(frozen=True)
class Request(Task[Found]):
    """One walk to take; `start` and `feedback` are empty for the first walk."""

    kind: ClassVar[str] = "walk"
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

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON; the arch goes by the name of its part."""
        values: dict[str, Any] = {"workload": self.workload.key(), "part": self.arch.part}
        values |= {name: getattr(self, name) for name in ("seed", "graph", "strategy", "evaluations")}
        values["feedback"] = [{**asdict(each), "program": each.program.to_json()} for each in self.feedback]
        values["start"] = [program.to_json() for program in self.start]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Request:
        """Return the request of `to_json`."""
        values["workload"], values["arch"] = workload_of(values["workload"]), lookup(values.pop("part"))
        values["feedback"] = tuple(Facts.from_json(each) for each in values["feedback"])
        values["start"] = tuple(program_from_json(each) for each in values["start"])
        return cls(**values)

    def pack(self, result: Found) -> dict[str, Any]:
        """Return what the walk found as JSON."""
        return result.to_json()

    def unpack(self, packed: dict[str, Any]) -> Found:
        """Return what a walk elsewhere found: Programs of this Workload's space, one trail for each."""
        found = Found.from_json(packed)
        if len(found.best) != len(found.trails):
            raise ValueError("a walk has one trail for each of its Programs")
        if not all(0 <= each < math.inf for each in (found.evaluations, found.seconds, *(us for _, us in found.best))):
            raise ValueError("a walk's figures are finite and not negative")
        space = Space(self.workload, self.arch)
        for program, _ in found.best:
            space.family(program.family).point(program)
        return found


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
    """Return the space of one Program alone, whose potential knows the compiler's report on it.

    ``facts`` are what a stored binary says of its main kernel (store/kernel_rows.py), {} where there is no binary.
    """
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
