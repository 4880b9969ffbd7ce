"""Gensor's walk: seeded Markov chains over the construction graph of every family that serves a workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, Points, compact, expanded
from .markov import Chains, schedule
from .region import NOWHERE, Region


@dataclass(frozen=True)
class Walk:
    """What a walk found.

    `best`: distinct complete Programs with predicted seconds, best first, ties in the order of their codes.
    `path`: the actions from `start` (coordinate values of `family`) to `best[0]`, without loops.
    `evaluations`: distinct complete Programs whose potential was computed. `steps`: chain-steps taken.
    """

    best: list[tuple[Any, float]]
    evaluations: int
    steps: int
    family: str
    start: tuple[int, ...]
    path: str
    seed: int
    graph: str

    def to_json(self) -> str:
        """Everything a replay needs, as canonical JSON."""
        kept = {name: getattr(self, name) for name in ("family", "graph", "path", "seed")}
        return json.dumps({**kept, "start": list(self.start)}, sort_keys=True, separators=(",", ":"))


def replay(space: Any, walk: Walk | str) -> Any:
    """The Program that the walk's path leads to: `walk` is a Walk or its JSON.

    Raises ValueError if the family, its start or an action of the path does not exist in this space.
    """
    record = json.loads(walk.to_json() if isinstance(walk, Walk) else walk)
    for family in space.families:
        if family.family.name == record["family"]:
            break
    else:
        raise ValueError(f"no family {record['family']!r} in this space")
    graph = Graph(family, record["graph"])
    point = np.array(
        [axis.values.index(value) for axis, value in zip(family.coordinates, record["start"], strict=True)],
        np.int64,
    )
    for token in expanded(record["path"]):
        point = graph.follow(point, token)
    return family.program(point)


def walk(
    space: Any,
    *,
    seed: int = 0,
    chains: int = 64,
    steps: int = 250,
    graph: str = "full",
    start: Sequence[Any] | None = None,
    budget: int | None = None,
    keep: int = 256,
) -> Walk:
    """Walk the construction graph of `space` (a Space) and return the Programs of lowest predicted time.

    `chains` x `steps` steps in all, fewer chains where `budget` (distinct complete Programs evaluated, over all
    families) is small. `start`: Programs to start from; without it chains start in each family, from the minimal
    Program at memory level 0 and from the family's starters. `keep`: how many Programs to return. The same
    arguments give the same Walk. Raises ValueError if there is no family to walk in or for an unknown graph.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    regions, starts = _begin(space, graph, start, budget)
    actions = max(len(region.graph.moves) for region in regions)
    plan = schedule(budget, actions, chains, steps)
    shares = _shares(regions, starts, plan.chains)
    taken = 0
    for i, (region, ids) in enumerate(zip(regions, starts, strict=True)):
        if budget is not None:
            left = budget - sum(other.evaluations for other in regions)
            region.budget = region.evaluations + left * shares[i] // sum(shares[i:])
        taken += Chains(region, np.resize(ids, shares[i]), plan, rng).run()
    return _result(regions, taken, seed, graph, keep)


def _begin(
    space: Any, graph: str, start: Sequence[Any] | None, budget: int | None
) -> tuple[list[Region], list[NDArray[np.int32]]]:
    """A region with its evaluated start ids for each family that has somewhere to start."""
    regions, starts = [], []
    left = budget
    for family in space.families:
        points = _start_points(family, start)
        if len(points):
            region = Region(Graph(family, graph), left)
            ids = np.unique(region.add(points))
            ids = ids[np.isfinite(region.log_phi[ids])]
            left = None if left is None else left - region.evaluations
            if ids.size:
                regions.append(region)
                starts.append(ids)
    if not regions:
        raise ValueError("no legal Program to start from: no family serves this workload, or the budget is zero")
    return regions, starts


def _start_points(family: Any, start: Sequence[Any] | None) -> Points:
    """Where chains of this family start, (n, d)."""
    if start is None:
        starters = family.family.starters(family.workload, family.arch)
        rows = [family.start(), *(family.point(program) for program in starters)]
    else:
        rows = [family.point(program) for program in start if program.family == family.family.name]
    return np.array(rows, np.int64).reshape(len(rows), len(family.coordinates))


def _shares(regions: list[Region], starts: list[NDArray[np.int32]], chains: int) -> list[int]:
    """How many of the chains walk in each family: more where the best start is better, at least one each."""
    best = np.array([region.phi[ids].min() for region, ids in zip(regions, starts, strict=True)])
    weight = (best.min() / best) ** 2
    return [max(1, int(share)) for share in np.round(chains * weight / weight.sum())]


def _result(regions: list[Region], taken: int, seed: int, graph: str, keep: int) -> Walk:
    """Merge the families' best Programs and trace the way to the very best."""
    ranked = []
    for i, region in enumerate(regions):
        ids = np.flatnonzero(region.complete[: len(region)])
        ids = ids[np.lexsort((region.table.codes[ids], region.phi[ids]))[:keep]]
        ranked.extend((float(region.phi[j]), i, int(j)) for j in ids)
    ranked.sort(key=lambda entry: entry[:2])
    del ranked[keep:]
    points = [region.points(np.array([j for _, k, j in ranked if k == i], int)) for i, region in enumerate(regions)]
    rows = [iter(found) for found in points]
    best = [(regions[i].graph.space.program(next(rows[i])), seconds) for seconds, i, _ in ranked]
    _, i, winner = ranked[0]
    start, tokens = _trace(regions[i], winner)
    family = regions[i].graph.space
    values = tuple(int(axis.values[k]) for axis, k in zip(family.coordinates, start, strict=True))
    return Walk(
        best=best,
        evaluations=sum(region.evaluations for region in regions),
        steps=taken,
        family=family.family.name,
        start=values,
        path=compact(tokens),
        seed=seed,
        graph=graph,
    )


def _trace(region: Region, winner: int) -> tuple[NDArray[np.int64], list[str]]:
    """The start point and the actions from it to `winner`: the path of first visits, which has no loops."""
    way = [winner]
    while (before := region.before(way[-1])) != NOWHERE:
        way.append(before)
    way.reverse()
    return region.points(np.array(way[:1]))[0], [region.token(a, b) for a, b in zip(way[:-1], way[1:], strict=True)]
