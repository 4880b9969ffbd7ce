"""Costs of tuning by a fleet: `python -m benchmarks.fleet [step ...]`; docs/fleet.md tells the results.

Steps, each of which writes its figures to benchmarks/results/fleet.json and leaves the others':

- tasks: times and bytes of the tasks of sampled classes of examples/common_shapes.csv, and the client's own seconds;
- overhead: 10,000 tasks that return at once, with the scheduler, 64 workers and the client in a process each;
- writer: workloads per second that a client's database takes;
- busy: the share of time in which 64 workers are at tasks of two seconds;
- thousands: the measured classes again, as thousands of tasks that sleep, measured efficiency beside predicted;
- tables: print the tables of docs/fleet.md from the figures that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gensor_kernels.build.parallel import usable_cores

from . import model, tables, writer
from . import tasks as real

RESULT = Path(__file__).resolve().parent.parent / "results" / "fleet.json"
Tell = Callable[[str], None]
#: Tasks that return at once, the workers that run them, and how often.
TASKS, WORKERS, REPEATS = 10_000, 64, 3
#: Seconds of a stub task that keeps workers busy, and such tasks for each worker.
TAKEN, EACH = 2.0, 60
#: Replays: workers, how often every sampled class is there, and the tasks' seconds over the measured ones. With fewer
#: classes for each worker, the last classes would decide; with more workers, this machine, which runs all of them.
REPLAYS = ((8, 2, 0.5), (16, 4, 0.5), (32, 6, 2.0))


def median(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def overhead(tell: Tell, tasks: int = TASKS, workers: int = WORKERS, repeats: int = REPEATS) -> dict[str, Any]:
    """Return milliseconds per task: of the clock, and of each process's processor."""
    from . import stubs

    runs = []
    with stubs.stand(workers) as made:
        for _ in range(repeats):
            spent = stubs.at_once(made, [stubs.Sleep(number) for number in range(tasks)])
            ms = {f"{name.removesuffix('_s')}_ms": 1e3 * seconds / tasks for name, seconds in spent.items()}
            runs.append({"wall_ms": ms.pop("seconds_ms"), **ms})
            tell(f"{tasks} tasks at once, ms each: {_line(runs[-1])}")
    return {"tasks": tasks, "workers": workers, "runs": runs, "median": median(runs)}


def busy(tell: Tell, workers: int = WORKERS, taken: float = TAKEN, each: int = EACH) -> dict[str, Any]:
    """Return the share of time in which workers are at tasks of equal length."""
    from . import stubs

    tasks = workers * each
    with stubs.stand(workers) as made:
        spent = stubs.at_once(made, [stubs.Sleep(number, taken) for number in range(tasks)])
    share = tasks * taken / (workers * spent["seconds"])
    tell(f"{workers} workers, {tasks} tasks of {taken:g} s: busy for {share:.1%} of {spent['seconds']:.1f} s")
    return {"workers": workers, "tasks": tasks, "taken_s": taken, "share": share, **spent}


def thousands(
    tell: Tell, results: Mapping[str, Any], replays: Sequence[tuple[int, int, float]] = REPLAYS
) -> dict[str, Any]:
    """Return measured and predicted efficiency of replays: the sampled classes with tasks that sleep."""
    from . import stubs

    runs = []
    for workers, copies, scale in replays:
        classes = list(results["tasks"]["sample"]) * copies
        costs = model.replay_costs(model.measured(results), classes, scale)
        tasks = round(costs.tasks * len(classes))
        with stubs.stand(workers) as made:
            spent = stubs.replayed(made, classes, scale)
        rates = model.rates(costs, workers) | {model.MACHINE: model.machine_rate(costs, usable_cores())}
        limit = min(rates, key=rates.__getitem__)
        bound = costs.work * len(classes) / workers
        told = {"workers": workers, "classes": len(classes), "tasks": tasks, "scale": scale, **spent, "limit": limit}
        runs.append(told | {"efficiency": bound / spent["seconds"], "predicted": bound * rates[limit] / len(classes)})
        tell(
            f"{workers} workers, {tasks} tasks: at work for {runs[-1]['efficiency']:.1%}, predicted "
            f"{runs[-1]['predicted']:.1%} ({limit})"
        )
    return {"runs": runs}


def written(tell: Tell, repeats: int = REPEATS) -> dict[str, Any]:
    """Return how fast a database takes rows."""
    runs = [writer.measure() for _ in range(repeats)]
    tell(f"database: {_line(median(runs))}")
    return {"runs": runs, "median": median(runs)}


def machine() -> dict[str, Any]:
    """Return where figures come from."""
    import distributed

    load = [round(each, 2) for each in os.getloadavg()]
    return {
        "cores": usable_cores(),
        "python": platform.python_version(),
        "distributed": distributed.__version__,
        "load_before": load,
    }


def _line(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


STEPS = ("tasks", "overhead", "writer", "busy", "thousands", "tables")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where workers were busy for less than nine tenths of the time."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__.splitlines()[0])
    made.add_argument("steps", nargs="*", metavar="step", help=f"any of {', '.join(STEPS)} (default: all)")
    made.add_argument("--seed", type=int, default=22, help="of the sample (default %(default)s)")
    made.add_argument("--json", type=Path, default=RESULT, help="file of the figures (default %(default)s)")
    options = made.parse_args(arguments)
    if unknown := set(options.steps) - set(STEPS):
        made.error(f"no step {', '.join(sorted(unknown))}: there are {', '.join(STEPS)}")
    tell: Tell = partial(print, file=sys.stderr, flush=True)
    results = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "tasks": lambda: real.measure(options.seed, tell),
        "overhead": lambda: overhead(tell),
        "writer": lambda: written(tell),
        "busy": lambda: busy(tell),
        "thousands": lambda: thousands(tell, results),
    }
    chosen = options.steps or STEPS
    for name, step in steps.items():
        if name in chosen:
            where = machine()
            results[name] = {"machine": where, **step()}
            options.json.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    if "tables" in chosen:
        print("\n\n".join(tables.every(results).values()))
    return 1 if results.get("busy", {"share": 1})["share"] < 0.9 else 0


if __name__ == "__main__":
    sys.exit(main())
