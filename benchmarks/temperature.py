"""Ablation of the Markov chain's temperature and restarts, on measured spaces and on the potential.

    python -m benchmarks.temperature [DATA.csv.gz:PART ...] [--shapes SHAPES.csv ...] [--workloads 50] [--seeds 20]
                                     [--potential-seeds 20 20] [--jobs 2] [--json FILE] [--plot FILE.png]

Schedules: `greedy` (tau near zero from the first step), `annealed` (tau falls geometrically over each cycle) and
constant tau. Restarts at the end of a cycle: `elite`, from unused starts and then from the best quarter of the chains'
best points; `starts`, from unused starts and then from any start; `elite first`, from the best quarter alone. The rest
is the walk's: its starts, its division of chains among families, its number of chains and steps for a budget, and the
hotter cycles of chains that share a start. Variants share starts and random numbers by seed.

On a measured space an evaluation is a measurement: the walk knows published times alone (`walk, blind` of
benchmarks.strategies) and may take few. On the potential, for Workloads of SHAPES drawn from all combinations of
families, on several parts, the walk runs under budgets, and as `gensor-tune` runs it, without a budget: there the
number of evaluations is a result, too. Constant tau, which never rests, is left out there.

The figures are by how much the best point found is slower than the best of the space (on the potential: than the best
of any run). Walks of one space share a cache of edges and evaluations; each counts its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.install import command
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.search.graph import Graph, Numbers, SearchSpace
from gensor_tuner.search.markov import COLD, Chains, Schedule, schedule
from gensor_tuner.search.region import NOWHERE, Ids, Region
from gensor_tuner.search.walk import SCATTER, SCATTER_SHARE, shares, started
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.strategies.request import CHAINS, STEPS

from .spaces.measured_space import load
from .spaces.replayed import Timed

SHAPES = Path(__file__).resolve().parents[1] / "examples" / "common_shapes.csv"
ARCHS = ("sm_80", "sm_87", "sm_90", "sm_120")
CONSTANT = (0.01, 0.1)
#: The annealed chain's first tau in cycles of at most SHORT steps, which small budgets have, and in longer cycles.
ANNEALED, SHORT = (0.02, 0.03), 40
RESTARTS = ("elite", "starts", "elite first")
#: Budgets of evaluations on measured spaces and on the potential; None: as many as the steps take.
MEASURED: tuple[int | None, ...] = (64, 256, 1024)
PREDICTED: tuple[int | None, ...] = (1000, None)


@dataclass(frozen=True)
class Variant:
    """A schedule: `hot` and `cold` of a geometric fall (None: ANNEALED), and where chains restart."""

    name: str
    hot: float | None
    cold: float
    restart: str

    @property
    def rests(self) -> bool:
        """Whether chains come to rest within a cycle."""
        return self.cold == COLD

    def inverse_taus(self, plan: Schedule) -> NDArray[np.float32]:
        """Return 1 / tau for each step of a cycle (cycle,)."""
        if self.hot is None:
            return replace(plan, hot=ANNEALED[plan.cycle > SHORT]).inverse_taus()
        return (1 / np.geomspace(self.hot, self.cold, plan.cycle)).astype(np.float32)


def variants() -> list[Variant]:
    """Return all variants; the first is what the others are compared with."""
    taus = [("annealed", None, COLD), ("greedy", COLD, COLD), *((f"tau {tau:g}", tau, tau) for tau in CONSTANT)]
    return [Variant(f"{name}, {restart}", *tau, restart) for restart in RESTARTS for name, *tau in taus]


class Known:
    """The graph of a family with all that any walk has seen of it.

    `whole[id]` is the id of the complete Program whose evaluation gives an id its potential.
    """

    def __init__(self, family: FamilySpace):
        self.region = Region(Graph(family))
        self.whole = np.zeros(1, np.int32)

    def expand(self, ids: Ids) -> None:
        """Find the neighbours of points whose edges are unknown."""
        self.region.expand(ids)
        self.complete()

    def complete(self) -> None:
        """Note the completions of new points."""
        region, old = self.region, len(self.whole)
        new = np.arange(old, len(region), dtype=np.int32)
        points = region.points(new)
        partial = np.flatnonzero(points[:, 0] != region.graph.top)
        whole = new.copy()
        if partial.size:
            whole[partial] = region.add(region.graph.space.complete(points[partial]))
        self.whole = np.concatenate([self.whole, whole])
        if len(region) > len(self.whole):
            raise RuntimeError("a completion was not evaluated with its partial point")


class Progress:
    """What one walk has evaluated of all families: the number of Programs, and the best seconds."""

    def __init__(self) -> None:
        self.count, self.best = 0, np.inf
        self.seen: dict[int, NDArray[np.bool_]] = {}

    def see(self, number: int, known: Known, ids: Ids, most: int | None) -> bool:
        """Evaluate points of a family, up to `most` evaluations in all; return whether any room is left."""
        seen = self.seen.get(number, np.zeros(0, bool))
        if len(seen) < len(known.whole):
            fresh = np.zeros(len(known.region.table.codes), bool)
            fresh[: len(seen)] = seen
            seen = self.seen[number] = fresh
        whole = known.whole[ids]
        whole = whole[(whole != NOWHERE) & ~seen[whole]]
        _, first = np.unique(whole, return_index=True)
        new = whole[np.sort(first)]
        if most is not None:
            new = new[: max(most - self.count, 0)]
        if new.size:
            seen[new] = True
            self.count += new.size
            self.best = min(self.best, float(known.region.phi[new].min()))
        return most is None or self.count < most


class Varied(Chains):
    """Chains of a variant, over a region that other walks have explored."""

    def __init__(self, known: Known, starts: Ids, plan: Schedule, rng: np.random.Generator, variant: Variant):
        super().__init__(known.region, starts, plan, rng)
        self._inverse_tau[0] = variant.inverse_taus(plan)
        self._known, self._variant = known, variant

    def walk(self, number: int, progress: Progress, most: int | None) -> None:
        """Take all steps, or stop where the evaluations end."""
        region = self.region
        while (moving := np.flatnonzero(self.taken < self.plan.steps)).size:
            unknown = np.unique(self.at[moving][region.row[self.at[moving]] < 0])
            if unknown.size:
                self._known.expand(unknown)
            if not progress.see(number, self._known, region.edges[region.row[self.at[moving]]].ravel(), most):
                break
            self._step(moving)

    def _restart(self, due: Numbers) -> None:
        if self._variant.restart == "elite first":
            self.used = self.starts.size
        if self._variant.restart != "starts":
            super()._restart(due)
            return
        fresh = self.starts[self.used : self.used + due.size]
        self.used += fresh.size
        self.at[due] = np.concatenate([fresh, self.rng.choice(self.starts, due.size - fresh.size)])


@dataclass(frozen=True)
class Begun:
    """The starts of the walks of one seed and budget: (number of the family, family, ids best first)."""

    seed: int
    budget: int | None
    starts: tuple[tuple[int, Known, Ids], ...]

    @classmethod
    def of(cls, families: Sequence[Known], seed: int, budget: int | None) -> Begun:
        """Draw and evaluate starts as `gensor_tuner.search.walk.walk` does."""
        rng = np.random.Generator(np.random.PCG64(seed))
        scattered = SCATTER if budget is None else min(int(budget * SCATTER_SHARE) + 1, 4096)
        found = []
        for number, known in enumerate(families):
            ids = started(known.region, None, scattered // len(families) + 1, CHAINS, rng)
            known.complete()
            if ids.size:
                found.append((number, known, ids))
        return cls(seed, budget, tuple(found))

    def walked(self, variant: Variant) -> tuple[float, int]:
        """Return (best seconds, evaluations) of one walk."""
        rng = np.random.Generator(np.random.PCG64([self.seed, 1]))
        progress, budget = Progress(), self.budget
        for number, known, ids in self.starts:
            progress.see(number, known, ids, budget)
        actions = max(len(known.region.graph.moves) for _, known, _ in self.starts)
        plan = schedule(budget, actions, CHAINS, STEPS)
        given = shares([each.region for _, each, _ in self.starts], [ids for _, _, ids in self.starts], plan.chains)
        for i, (number, known, ids) in enumerate(self.starts):
            most = None
            if budget is not None:
                most = progress.count + (budget - progress.count) * given[i] // max(sum(given[i:]), 1)
            if given[i]:
                Varied(known, ids, replace(plan, chains=given[i]), rng, variant).walk(number, progress, most)
        return progress.best, progress.count


# ---- spaces


@dataclass(frozen=True)
class Case:
    """A space to search: DATA.csv.gz and PART, or a shapes file, its row and an arch.

    `kind`: "measured" or "potential". `seeds`: number of walks by budget of evaluations.
    """

    name: str
    kind: str
    path: str
    arch: str
    row: int
    seeds: Mapping[int | None, int]

    def space(self) -> tuple[SearchSpace, float | None]:
        """Return the space, and the seconds of its best point if they are known."""
        if self.kind == "measured":
            data = load(self.path, self.arch)
            data = data.rows(~np.isnan(data.time_ms))
            return Timed(data), float(data.time_ms.min()) / 1e3
        workload = read_shapes(self.path)[self.row].workload
        assert workload is not None
        return Space(workload, lookup(self.arch)), None


def measured_case(text: str, seeds: int) -> Case:
    """Return the case of DATA.csv.gz:PART."""
    path, _, part = text.rpartition(":")
    return Case(
        f"{Path(path).name.partition('_')[0]}, {part}", "measured", path, part, -1, dict.fromkeys(MEASURED, seeds)
    )


def potential_cases(paths: Sequence[str], count: int, seeds: Mapping[int | None, int]) -> list[Case]:
    """Return `count` Workloads of shapes files, the combinations of families that serve them taking turns."""
    rows = [(path, number, row) for path in paths for number, row in enumerate(read_shapes(path))]
    groups: dict[tuple[str, ...], list[Case]] = {}
    for place in np.random.default_rng(0).permutation(len(rows)).tolist():
        path, number, row = rows[place]
        arch = ARCHS[place % len(ARCHS)]
        names = _served(row.workload, arch) if row.workload else ()
        if names:
            case = Case(f"{row.name}, {arch}", "potential", path, arch, number, seeds)
            groups.setdefault(names, []).append(case)
    turns = max((len(group) for group in groups.values()), default=0)
    return [group[turn] for turn in range(turns) for _, group in sorted(groups.items()) if turn < len(group)][:count]


def _served(workload: Workload, arch: str) -> tuple[str, ...]:
    """Return the names of the families that serve a Workload on an arch."""
    try:
        return tuple(each.family.name for each in Space(workload, lookup(arch)).families)
    except UnsupportedError:
        return ()


# ---- figures


def setting(budget: int | None) -> str:
    """Return the name of a budget."""
    return "steps" if budget is None else str(budget)


#: (seeds, 2) arrays by setting and variant: best / optimum - 1, and evaluations.
Regrets = Mapping[str, Mapping[str, NDArray[np.float64]]]


def regrets(case: Case) -> Regrets:
    """Run every variant on one space."""
    space, optimum = case.space()
    families = [Known(family) for family in space.families]
    runs: dict[str, dict[str, NDArray[np.float64]]] = {}
    for budget, seeds in case.seeds.items():
        begun = [Begun.of(families, seed, budget) for seed in range(seeds)]
        runs[setting(budget)] = {
            variant.name: np.array([each.walked(variant) for each in begun])
            for variant in variants()
            if budget is not None or variant.rests
        }
    least = min(found[:, 0].min() for each in runs.values() for found in each.values()) if optimum is None else optimum
    return {
        name: {variant: found / (least, 1) - (1, 0) for variant, found in each.items()} for name, each in runs.items()
    }


def figures(found: Sequence[NDArray[np.float64]], base: Sequence[NDArray[np.float64]]) -> dict[str, float]:
    """Return the figures of a variant over some spaces, each with (seeds, 2) regrets and evaluations, beside `base`.

    `mean`, `worst`: regrets; `within_2`: share of walks within 2 % of the best; `evaluations`: over those of `base`,
    the geometric mean; `better`, `worse`: spaces whose mean regret differs from that of `base` by more than 0.1 %.
    """
    regret = np.concatenate([each[:, 0] for each in found])
    gain = np.array([b[:, 0].mean() - f[:, 0].mean() for f, b in zip(found, base, strict=True)])
    effort = [np.log(f[:, 1].mean() / b[:, 1].mean()) for f, b in zip(found, base, strict=True)]
    return {
        "mean": round(float(regret.mean()), 5),
        "median": round(float(np.median(regret)), 5),
        "worst": round(float(regret.max()), 5),
        "within_2": round(float((regret <= 0.02).mean()), 4),
        "evaluations": round(float(np.exp(np.mean(effort))), 4),
        "better": int((gain > 0.001).sum()),
        "worse": int((gain < -0.001).sum()),
    }


Results = dict[str, dict[str, dict[str, dict[str, float]]]]


def summary(cases: Sequence[tuple[Case, Regrets]]) -> Results:
    """Return figures by group of spaces, setting and variant: each measured space, and all Workloads together."""
    groups: dict[str, list[Regrets]] = {}
    for case, found in cases:
        groups.setdefault(case.name if case.kind == "measured" else "potential", []).append(found)
    return {
        group: {
            name: {
                variant: figures(
                    [each[name][variant] for each in members], [next(iter(each[name].values())) for each in members]
                )
                for variant in members[0][name]
            }
            for name in members[0]
        }
        for group, members in groups.items()
    }


def table(results: Results) -> str:
    """Return the figures as text."""
    lines = []
    for group, settings in results.items():
        for name, by_variant in settings.items():
            lines.append(f"{group}, {name}")
            lines += [
                f"  {variant:18} mean {f['mean']:7.2%}  median {f['median']:7.2%}  worst {f['worst']:7.1%}"
                f"  within 2 % {f['within_2']:6.1%}  evaluations x{f['evaluations']:.2f}"
                f"  better {f['better']}, worse {f['worse']}"
                for variant, f in by_variant.items()
            ]
    return "\n".join(lines)


def plot(path: Path, results: Results) -> str | None:
    """Draw the mean regret of every variant, a panel per group and setting; return why not without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return f"no plot: {command('plot')}"
    most = max(len(settings) for settings in results.values())
    figure, axes = pyplot.subplots(
        len(results), most, figsize=(4 * most, 2.2 * len(results)), layout="constrained", squeeze=False, sharex="row"
    )
    for row, (group, settings) in zip(axes, results.items(), strict=True):
        for axis, (name, by_variant) in zip(row, settings.items(), strict=False):
            names = list(by_variant)[::-1]
            colours = [f"C{RESTARTS.index(each.partition(', ')[2])}" for each in names]
            axis.barh(names, [100 * by_variant[each]["mean"] for each in names], color=colours)
            axis.set_title(f"{group}: {name if name == 'steps' else name + ' evaluations'}", fontsize=8)
            axis.tick_params(labelsize=6)
        for axis in row[len(settings) :]:
            axis.set_visible(False)
    figure.supxlabel("best found slower than the best, %, mean over seeds (and Workloads)", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return None


def written(found: Sequence[tuple[Case, Regrets]], results: Results) -> str:
    """Return the JSON text of the figures."""
    seeds = {case.kind: {setting(budget): count for budget, count in case.seeds.items()} for case, _ in found}
    names = [case.name for case, _ in found if case.kind == "potential"]
    body = {"seeds": seeds, "workloads": names, "results": results}
    return json.dumps(body, indent=1) + "\n"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.temperature", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("measured", nargs="*", metavar="DATA.csv.gz:PART")
    parser.add_argument("--shapes", nargs="+", default=[str(SHAPES)], metavar="SHAPES.csv")
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20, help="walks of a variant on a measured space")
    parser.add_argument(
        "--potential-seeds", type=int, nargs=2, default=(20, 20), metavar=("BUDGET", "STEPS"), help="on a Workload"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ablation, print and write its figures."""
    args = _arguments(argv)
    seeds = dict(zip(PREDICTED, args.potential_seeds, strict=True))
    cases = [measured_case(each, args.seeds) for each in args.measured]
    cases += potential_cases(args.shapes, args.workloads, seeds)
    results: Results = {}
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        found: list[tuple[Case, Regrets]] = []
        for case, result in zip(cases, pool.map(regrets, cases), strict=True):
            found.append((case, result))
            print(f"{len(found)}/{len(cases)} {case.name}", file=sys.stderr, flush=True)
            results = summary(found)
            if args.json:
                args.json.write_text(written(found, results), encoding="utf-8")
    print(table(results))
    if args.plot:
        refused = plot(args.plot, results)
        print(refused or f"plot: {args.plot}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
