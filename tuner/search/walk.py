"""Gensor's walk: seeded Markov chains over the construction graphs of all families that serve a workload."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.space import FamilySpace

from .graph import Graph, Numbers, Points, SearchSpace
from .markov import Chains, Schedule, schedule
from .paper import PaperChains, PaperRegion, paper_schedule
from .region import NOWHERE, Ids, Region
from .trace import Leg, Trail, compact

Start = Sequence[Program] | Literal["random", "minimal"] | None
#: Random legal Programs as possible starts: share of a budget, and number without a budget.
SCATTER_SHARE, SCATTER = 0.1, 64
#: Programs examined for each Program kept, where similar Programs count once.
SIFTED = 16
#: Share of a budget for deeper rings of the best Programs, and evaluations that one of them takes at the most.
DEEPER_SHARE, DEEPER = 1 / 16, 6
#: The best Programs whose neighbours the rest of a budget is for.
NEAREST = 64


@dataclass(frozen=True)
class Walk:
    """The result of a walk.

    `best`: distinct complete Programs with predicted seconds, best first; ties go to the plainer Program.
    `trails`: for the first Programs of `best`, the actions from a start to the Program, without loops.
    `evaluations`: distinct complete Programs whose potential was computed. `steps`: total steps of all chains.
    """

    best: list[tuple[Program, float]]
    trails: list[Trail]
    evaluations: int
    steps: int


def walk(
    space: SearchSpace,
    *,
    seed: int = 0,
    chains: int = 64,
    steps: int = 250,
    graph: str = "full",
    start: Start = None,
    budget: int | None = None,
    keep: int = 256,
    traced: int = 1,
    alike: Callable[[Program], Hashable] | None = None,
) -> Walk:
    """Walk the construction graph of a space and return the Programs of lowest predicted time.

    At most `budget` distinct complete Programs are evaluated; a small budget means fewer, longer chains. Chains start
    from the Programs `start`; by default from each family's minimal Program at memory level 0, its starters, and random
    legal Programs. Of Programs with equal keys `alike` only the best is returned, and of rings that are predicted to be
    equally fast only the deepest. `traced` of the `keep` Programs get trails. Raises ValueError without a legal start.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    regions, starts = _begin(space, graph, start, budget, rng, chains)
    actions = max(len(region.graph.moves) for region in regions)
    plan = schedule(budget, actions, chains, steps) if graph == "full" else paper_schedule(chains, steps)
    taken = 0
    given = shares(regions, starts, plan.chains)
    deepening = graph == "full" and alike is not None
    deeper = int(budget * DEEPER_SHARE) if budget is not None and deepening else 0
    for i, (region, ids) in enumerate(zip(regions, starts, strict=True)):
        if budget is not None:
            left = max(budget - deeper - sum(other.evaluations for other in regions), 0)
            region.budget = region.evaluations + left * given[i] // max(sum(given[i:]), 1)
        if given[i]:
            taken += _run(region, ids, Schedule(given[i], plan.steps, plan.hot, plan.cycle), rng)
    if deepening:
        _deepen(regions, budget, SIFTED * keep)
    ranked = _rank(regions, keep, alike)
    trails = [_trail(regions[i], ident, seed) for _, _, i, ident in ranked[:traced]]
    best = [(program, seconds) for program, seconds, _, _ in ranked]
    return Walk(best, trails, sum(region.evaluations for region in regions), taken)


def _run(region: Region, starts: Ids, plan: Schedule, rng: np.random.Generator) -> int:
    if not isinstance(region, PaperRegion):
        return Chains(region, starts, plan, rng).run()
    taken = PaperChains(region, starts, plan, rng).run()
    region.settle()
    return taken


def _deepen(regions: list[Region], budget: int | None, count: int) -> None:
    """Lengthen the rings of the best Programs; the rest of too small a budget goes to neighbours of the best."""
    short = any(region.exhausted for region in regions)
    done: list[Numbers] = [np.empty(0, np.int64) for _ in regions]
    spent = False
    while not spent:
        best = [region.best(count) for region in regions]
        phi = np.concatenate([region.phi[ids] for region, ids in zip(regions, best, strict=True)])
        worst = np.sort(phi)[: max(count, 1)].max(initial=0.0)
        spent = True
        for i, region in enumerate(regions):
            ids = best[i][(region.phi[best[i]] <= worst) & ~np.isin(best[i], done[i])]
            if budget is not None:
                region.budget = region.evaluations + budget - sum(other.evaluations for other in regions)
                ids = ids[: (region.budget - region.evaluations) // DEEPER]
            if ids.size:
                done[i] = np.concatenate([done[i], ids])
                region.deepen(ids)
                spent = False  # where rings give way to deeper ones, others move up
    if budget is not None and short:
        first = min(regions, key=lambda region: region.phi[region.best(1)].min(initial=np.inf))
        first.budget = first.evaluations + budget - sum(other.evaluations for other in regions)
        first.look_around(NEAREST)


def _begin(
    space: SearchSpace, graph: str, start: Start, budget: int | None, rng: np.random.Generator, chains: int
) -> tuple[list[Region], list[Ids]]:
    """Return a region and its evaluated start ids, best first, for each family that has a legal start."""
    regions: list[Region] = []
    starts: list[Ids] = []
    scattered = SCATTER if budget is None else min(int(budget * SCATTER_SHARE) + 1, 4096)
    for family in space.families:
        kind = Region if graph == "full" else PaperRegion
        left = None if budget is None else budget - sum(region.evaluations for region in regions)
        region = kind(Graph(family, graph), left)
        ids = started(region, start, scattered // len(space.families) + 1, chains, rng)
        if ids.size:
            regions.append(region)
            starts.append(ids)
    if not regions:
        raise ValueError("no legal Program to start from: no family serves this workload, or the budget is zero")
    return regions, starts


def started(region: Region, start: Start, scattered: int, chains: int, rng: np.random.Generator) -> Ids:
    """Evaluate a family's starts, at most `scattered` random ones among them, and return their ids, best first."""
    family = region.graph.space
    points = _start_points(region.graph, start, scattered, rng)
    ids = np.unique(region.add(points[family.legal(points)]))
    ids = ids[np.isfinite(region.log_phi[ids])]
    region.parent[ids] = NOWHERE
    ids = ids[np.argsort(region.log_phi[ids], kind="stable")]
    if ids.size and start is None and (minimal := _minimal(family)):
        # Every fourth chain constructs its Program from the minimal Program.
        ids = np.insert(ids, np.arange(0, min(ids.size, chains), 3), region.add(np.array(minimal)))
    return np.repeat(ids, chains) if start == "minimal" else ids


def _minimal(family: FamilySpace) -> list[Numbers]:
    """Return the family's minimal point at memory level 0, if it has one."""
    try:
        return [family.start()]
    except UnsupportedError:
        return []


def _start_points(graph: Graph, start: Start, scattered: int, rng: np.random.Generator) -> Points:
    """Return the possible starts of this family's chains, (n, d)."""
    family = graph.space
    if graph.name == "paper" or start == "minimal":
        rows = _minimal(family)
    elif start is None:
        starters = family.family.starters(family.workload, family.arch)
        rows = [*_minimal(family), *(family.point(program) for program in starters), *graph.scatter(scattered, rng)]
    elif isinstance(start, str):
        rows = list(graph.scatter(scattered, rng))
    else:
        points = [_point(family, program) for program in start if program.family == family.family.name]
        rows = [point for point in points if point is not None]
    return np.array(rows, np.int64).reshape(len(rows), len(family.coordinates))


def _point(family: FamilySpace, program: Program) -> Numbers | None:
    """Return a Program's point, or None if the Workload's lattice lacks a value, such as another window's taps."""
    try:
        return np.asarray(family.point(program))
    except ValueError:
        return None


def shares(regions: list[Region], starts: list[Ids], chains: int) -> list[int]:
    """Return the number of chains per family: more for a better best start, none where it is ten times slower."""
    best = np.array([region.phi[ids].min() for region, ids in zip(regions, starts, strict=True)])
    weight = (best.min() / best) ** 2
    shares = np.maximum(np.round(chains * weight / weight.sum()).astype(int), weight > 0.01)
    first = int(np.argmax(weight))
    shares[first] = max(shares[first] + chains - shares.sum(), 1)
    return [int(share) for share in shares]


def _rank(
    regions: list[Region], keep: int, alike: Callable[[Program], Hashable] | None
) -> list[tuple[Program, float, int, int]]:
    """Merge the families' best Programs: (Program, seconds, number of the region, id there), best first."""
    merged: list[tuple[float, int, int, Numbers]] = []
    for i, region in enumerate(regions):
        ids = region.best(keep if alike is None else SIFTED * keep)
        merged.extend(zip(region.phi[ids].tolist(), [i] * ids.size, ids.tolist(), region.points(ids), strict=True))
    merged.sort(key=lambda entry: entry[0])
    ranked: dict[Hashable, tuple[Program, float, int, int]] = {}
    for seconds, i, ident, point in merged:
        program = regions[i].graph.space.program(point)
        ranked.setdefault(program if alike is None else alike(program), (program, seconds, i, ident))
        if len(ranked) == keep:
            break
    return list(ranked.values())


def _trail(region: Region, ident: int, seed: int) -> Trail:
    family = region.graph.space
    way = region.way(ident)
    start, tokens = region.points(np.array(way[:1]))[0], [region.token(a, b) for a, b in pairwise(way)]
    values = tuple(int(axis.values[k]) for axis, k in zip(family.coordinates, start, strict=True))
    return Trail(family.family.name, region.graph.name, values, (Leg(seed, compact(tokens)),))
