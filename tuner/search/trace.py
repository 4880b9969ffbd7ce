"""Trails: the actions that led a walk to a Program, stored with the record as text that can be replayed.

A trail starts at one point of a family's graph and has one leg per walk: a kernel may come from the walk of another
Workload of its class, or from a second walk that started where the first one ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gensor_kernels.families.core.program import OPTIONAL, Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.operators.types.workload import Workload

from .graph import Graph, Numbers, SearchSpace


@dataclass(frozen=True)
class Leg:
    """Actions in the graph of one Workload's space, as a compact string; `workload` None is the reader's."""

    seed: int
    path: str
    workload: Workload | None = None


@dataclass(frozen=True)
class Trail:
    """A start and legs from it. `start`: values of all coordinates of `family`, in order; `graph`: full or paper."""

    family: str
    graph: str
    start: tuple[int, ...]
    legs: tuple[Leg, ...]

    def then(self, *legs: Leg) -> Trail:
        """Return this trail extended by further legs; legs without actions are dropped."""
        return replace(self, legs=(*self.legs, *(leg for leg in legs if leg.path)))

    def within(self, workload: Workload) -> Trail:
        """Return the same trail with `workload` in place of open legs' None."""
        return replace(self, legs=tuple(replace(leg, workload=leg.workload or workload) for leg in self.legs))

    def to_json(self, workload: Workload | None = None) -> str:
        """Return canonical JSON for a record of `workload`; legs in other spaces name sizes and epilogue."""
        legs = []
        for leg in self.legs:
            kept: dict[str, object] = {"path": leg.path, "seed": leg.seed}
            if leg.workload is not None and leg.workload != workload:
                kept |= {"sizes": dict(leg.workload.sizes), "epilogue": list(leg.workload.epilogue)}
            legs.append(kept)
        kept = {"family": self.family, "graph": self.graph, "start": list(self.start), "legs": legs}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, workload: Workload | None = None) -> Trail:
        """Return the Trail of `to_json`'s text."""
        record = json.loads(text)
        legs = []
        for leg in record["legs"]:
            if "sizes" in leg:
                assert workload is not None
                where = workload.with_sizes(**leg["sizes"]).with_epilogue(leg["epilogue"])
                legs.append(Leg(leg["seed"], leg["path"], where))
            else:
                legs.append(Leg(leg["seed"], leg["path"]))
        return cls(record["family"], record["graph"], tuple(record["start"]), tuple(legs))


def replay(space: Space, trail: Trail | str) -> Program:
    """Return the Program that a trail leads to in the space of a record's Workload; ValueError where it cannot."""
    *_, (family, _, point) = visited(space, trail)
    return family.program(point)


def visited(space: Space, trail: Trail | str) -> Iterator[tuple[FamilySpace, str, Numbers]]:
    """Yield every point of a trail: its leg's family space, the action ("" at the start), the point; see `replay`."""
    if isinstance(trail, str):
        trail = Trail.from_json(trail, getattr(space, "workload", None))
    spaces = [space if leg.workload is None else Space(leg.workload, space.arch) for leg in trail.legs] or [space]
    family = _family(spaces[0], trail.family)
    # A trail from before its class had the last coordinates starts at 0 there, as Programs do (Program.along).
    lacking = [0 for axis in family.coordinates[len(trail.start) :] if axis.name in OPTIONAL]
    axes = zip(family.coordinates, (*trail.start, *lacking), strict=True)
    point = np.array([axis.values.index(value) for axis, value in axes], np.int64)
    if not family.legal(point[None])[0]:
        raise ValueError(f"the start {list(trail.start)} is not legal in this space")
    yield family, "", point
    for leg, where in zip(trail.legs, spaces, strict=False):
        family = _family(where, trail.family)
        graph = Graph(family, trail.graph)
        for token in expand(leg.path):
            point = graph.follow(point, token)
            yield family, token, point


def _family(space: SearchSpace, name: str) -> FamilySpace:
    found = next((family for family in space.families if family.family.name == name), None)
    if found is None:
        raise ValueError(f"no family {name!r} in this space")
    return found


class Trails:
    """The trails of a class's Programs: the first trail found for each, with legs joined where walks continue."""

    def __init__(self) -> None:
        self._known: dict[Program, Trail] = {}

    def __contains__(self, program: Program) -> bool:
        return program in self._known

    def add(self, program: Program, trail: Trail) -> None:
        """Add a walk's trail; if the walk started from a known Program, that Program's trail is put in front."""
        names = FAMILIES[trail.family].names
        # zip is not strict: not every workload has the last coordinate.
        before = self._known.get(Program(trail.family, tuple(zip(names, trail.start, strict=False))))
        self._known.setdefault(program, (before or replace(trail, legs=())).then(*trail.legs))

    def of(self, program: Program) -> Trail:
        """Return the trail of a known Program."""
        return self._known[program]

    def end(self, program: Program) -> Workload | None:
        """Return the Workload in whose space a known Program's trail ends, or None if the trail has no legs."""
        legs = self._known[program].legs
        return legs[-1].workload if legs else None

    def to(self, program: Program, origin: Program, space: Space, seed: int) -> Trail:
        """Return the trail of a Program or of a sibling of `origin`: the latter is origin's trail plus a route."""
        if program not in self._known:
            trail = self._known[origin]
            try:
                path = route(Graph(space.family(program.family), trail.graph), origin, program)
                self._known[program] = trail.then(Leg(seed, path, space.workload))
            except ValueError:  # not reachable one coordinate at a time
                self._known[program] = start_of(program, trail.graph)
        return self._known[program]


def start_of(program: Program, graph: str) -> Trail:
    """Return the trail of a Program that no action led to."""
    return Trail(program.family, graph, tuple(value for _, value in program.values), ())


def route(graph: Graph, source: Program, target: Program) -> str:
    """Return the actions from `source` to `target`, coordinate by coordinate; ValueError where none lead there."""
    point, end = graph.space.point(source), graph.space.point(target)
    tokens: list[str] = []
    while (point != end).any():
        targets, found = graph.neighbours(point[None])
        step = next((i for i in np.flatnonzero(found[0]) if _nearer(point, targets[0, i], end)), None)
        if step is None:
            raise ValueError(f"no straight way from {source.to_json()} to {target.to_json()}")
        tokens.append(graph.moves[step].token)
        point = targets[0, step]
    return compact(tokens)


def _nearer(point: Numbers, to: Numbers, end: Numbers) -> bool:
    """Whether every coordinate that `to` changes is between its old value and the wanted value."""
    return bool((np.abs(end - to) + np.abs(to - point) == np.abs(end - point)).all())


def compact(tokens: list[str]) -> str:
    """Return a path as one short string with repeats counted: ["k+", "k+", "m-"] -> "k+*2 m-"."""
    return " ".join(token if count == 1 else f"{token}*{count}" for token, count in _runs(tokens))


def _runs(tokens: list[str]) -> Iterator[tuple[str, int]]:
    begin = 0
    for end in range(1, len(tokens) + 1):
        if end == len(tokens) or tokens[end] != tokens[begin]:
            yield tokens[begin], end - begin
            begin = end


def expand(text: str) -> list[str]:
    """Return the tokens of a compact path."""
    words = [word.partition("*") for word in text.split()]
    return [token for token, _, count in words for _ in range(int(count or 1))]
