"""Allocation of search time over the tasks of a model: the tuner's scheduler against round-robin and fixed shares.

    python -m benchmarks.scheduling SHAPES.csv ... [--arch sm_87] [--slices 4] [--json FILE] [--plot FILE.png]

A model is a shapes file: the first sets of its rows (column `set`) up to TASKS workloads. Its tasks are searched in the
slices that `gensor-tune --budget` takes, but time is counted in evaluations. Round-robin gives every task `--slices`
slices, one each in turn; `fixed` gives all slices to one task after the other; neither tries a task's Programs on other
tasks. `gradient` is the scheduler; `gradient alone` is the scheduler without trying Programs on similar tasks, and
`round-robin, shared` is round-robin with it. The report gives the evaluations that each policy needs to come within
0.01 % of round-robin's final result, and to reach it exactly, as shares of round-robin's budget. Evaluations for other
tasks count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.install import command
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.space import Space
from gensor_tuner.budget.task_scheduler import SLICE, Slice, TaskScheduler
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.strategies.request import Found, Request, search

#: Once a model has this many workloads, no further set of its file is taken.
TASKS = 10
#: A model's time counts as reached when it is at most this share higher.
NEAR = 1e-4
Curve = list[tuple[int, float]]  # (evaluations, seconds of the model)


class Gradient(TaskScheduler):
    """The tuner's scheduler."""

    def choose(self) -> Slice | None:
        """Return the slice to take next."""
        return next(iter(self.next(1)), None)


class Alone(Gradient):
    """The scheduler without sharing Programs among tasks."""

    def _share(self, source: int, programs: Sequence[object]) -> None:
        pass


class SharedRoundRobin(Gradient):
    """One slice of each task in turn."""

    def choose(self) -> Slice | None:
        """Return a slice of the task with the fewest."""
        return self._slice(min(range(len(self.tasks)), key=lambda i: self.tasks[i].slices))


class RoundRobin(SharedRoundRobin, Alone):
    """Round-robin without sharing."""


class Fixed(Alone):
    """All slices of one task, then all of the next."""

    each = 0

    def choose(self) -> Slice | None:
        """Return a slice of the first task that has not had its share."""
        return next((self._slice(i) for i, task in enumerate(self.tasks) if task.slices < self.each), None)


POLICIES: dict[str, type[Gradient]] = {
    "round-robin": RoundRobin,
    "fixed": Fixed,
    "gradient": Gradient,
    "gradient alone": Alone,
    "round-robin, shared": SharedRoundRobin,
}


class Memory:
    """A cache of walks: policies ask for many equal ones."""

    def __init__(self) -> None:
        self._taken: dict[Request, Found] = {}

    def __call__(self, request: Request) -> Found:
        """Return the result of the walk."""
        if request not in self._taken:
            self._taken[request] = search(request)
        return self._taken[request]


def model(path: Path, arch: Arch) -> dict[str, tuple[Workload, float]]:
    """Return workloads and calls by key, without rows that `arch` cannot serve."""
    calls: dict[str, tuple[Workload, float]] = {}
    sets: list[str] = []
    for row in read_shapes(path):
        group = row.notes.get("set", "")
        if group not in sets:
            if len(calls) >= TASKS:
                break
            sets.append(group)
        if row.workload is not None and _served(row.workload, arch):
            before = calls.get(row.workload.key(), (row.workload, 0.0))[1]
            calls[row.workload.key()] = row.workload, before + row.count
    return calls


def _served(workload: Workload, arch: Arch) -> bool:
    try:
        return bool(Space(workload, arch).families)
    except UnsupportedError:
        return False


def run(campaign: Gradient, memory: Memory, evaluations: int) -> Iterator[tuple[int, float]]:
    """Yield (evaluations, seconds of the model) before the first slice and after each, within `evaluations`."""
    yield 0, campaign.seconds
    while campaign.evaluations < evaluations and (each := campaign.choose()) is not None:
        campaign.take(each, memory(campaign.request(each)))
        yield campaign.evaluations, campaign.seconds


def curves(calls: dict[str, tuple[Workload, float]], arch: Arch, slices: int, seed: int) -> dict[str, Curve]:
    """Return each policy's curve; none spends more than round-robin's slices are worth."""
    base, memory = Request(next(iter(calls.values()))[0], arch, seed, "full"), Memory()
    found = {}
    for name, policy in POLICIES.items():
        campaign = policy(base, calls)
        if isinstance(campaign, Fixed):
            campaign.each = slices
        found[name] = list(run(campaign, memory, slices * len(calls) * SLICE))
    return found


def reached(curve: Curve, goal: float, near: float) -> int | None:
    """Return the evaluations after which a curve is at most the share `near` above the goal; None if it never is."""
    return next((evaluations for evaluations, seconds in curve if seconds <= goal * (1 + near)), None)


def figures(found: dict[str, Curve]) -> dict[str, Any]:
    """Return the figures of a model."""
    whole, goal = found["round-robin"][-1]

    def shares(near: float) -> dict[str, float | None]:
        reach = {name: reached(curve, goal, near) for name, curve in found.items()}
        return {name: None if at is None else round(at / whole, 4) for name, at in reach.items()}

    return {
        "evaluations": whole,
        "before_ms": found["round-robin"][0][1] * 1e3,
        "round_robin_ms": goal * 1e3,
        "end_ms": {name: curve[-1][1] * 1e3 for name, curve in found.items()},
        "share_of_budget": shares(NEAR),
        "share_of_budget_exact": shares(1e-12),
        "curves": {name: [[at, seconds * 1e3] for at, seconds in curve] for name, curve in found.items()},
    }


def plot(path: Path, models: dict[str, dict[str, Any]]) -> str | None:
    """Draw every model's curves; return a message where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return f"no plot: {command('plot')}"
    columns = min(len(models), 3)
    rows = -(-len(models) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.5 * columns, 3.2 * rows), layout="constrained", squeeze=False
    )
    for axis, (name, found) in zip(axes.flat, models.items(), strict=False):
        for policy, curve in found["curves"].items():
            axis.plot(*zip(*curve, strict=True), label=policy, linewidth=1)
        axis.set(title=name, xlabel="evaluations", ylabel="model, ms (predicted)")
    axes.flat[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 where half of round-robin's budget is enough on four models (on all, if fewer), else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shapes", nargs="+", type=Path, help="shapes files, one per model")
    parser.add_argument("--arch", default="sm_87")
    parser.add_argument("--slices", type=int, default=4, help="slices per task in round-robin")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    given = parser.parse_args(argv)
    models: dict[str, dict[str, Any]] = {}
    for path in given.shapes:
        calls = model(path, lookup(given.arch))
        found = figures(curves(calls, lookup(given.arch), given.slices, given.seed))
        models[path.stem] = {"tasks": len(calls), **found}
        print(
            f"{path.stem}: {len(calls)} tasks, {found['before_ms']:.4f} -> {found['round_robin_ms']:.4f} ms;", end=" "
        )
        print(f"share of round-robin's budget: {found['share_of_budget']}", flush=True)
    halved, exactly = (
        sum(share is not None and share <= 0.5 for share in (each[key]["gradient"] for each in models.values()))
        for key in ("share_of_budget", "share_of_budget_exact")
    )
    print(f"gradient reaches round-robin's result within half its budget on {halved} of {len(models)} models,", end=" ")
    print(f"exactly on {exactly}")
    if given.json:
        body = {"arch": given.arch, "slices": given.slices, "seed": given.seed, "halved": halved, "exactly": exactly}
        given.json.write_text(json.dumps(body | {"models": models}) + "\n", encoding="utf-8")
    if given.plot and (refused := plot(given.plot, models)):
        print(refused, file=sys.stderr)
    return 0 if halved >= min(4, len(models)) else 1


if __name__ == "__main__":
    sys.exit(main())
