"""Comparison of search strategies: on measured spaces, replayed, and on the potential.

    python -m benchmarks.strategies [DATA.csv.gz:PART ...] [--potential SHAPES.csv:ARCH:ROW ...] [--seeds 20]
                                    [--counted FILE.csv.gz] [--told] [--evaluations 64,256,1024] [--seconds 10,60,300]
                                    [--only NAME,NAME] [--json FILE] [--plot FILE.png]

The figures are medians and quartiles over seeds, at equal numbers of evaluations and at equal seconds, of how much
slower than the optimum the best point found is (on the potential: slower than the best point of any strategy). On a
measured space a point costs its published time, RUNS times over, as its measurement did; the data lack compile times.
The CPU seconds of the strategy itself are added. On the potential only these count, and with --counted, too: there the
points are our own Programs that ran on the emulator, and the memory accesses that it counted are to be minimised
(spaces/counted_space.py).

`walk` is the walk with the learned potential: it sees the roofline and learns from the points that it evaluated; `walk,
blind` follows measured times alone, like the other strategies. With --told, `evolution, told` and `annealing, told` get
the roofline's terms as features, which their publications did not have. `kernel tuner` stands for Kernel Tuner's own
strategies in its simulation mode, if it is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gensor_kernels.install import command
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.strategies import Search, strategy

from .spaces import kernel_tuner_space as kernel_tuner
from .spaces.counted_space import Counted, Foreseen
from .spaces.measured_space import given as measured_space
from .spaces.replayed import Replayed, Timed

RUNS = kernel_tuner.RUNS
#: Strategies whose plan depends on the number of evaluations: they run once for each number.
PLANNED = ("walk", "walk, blind", "paper")
#: Strategies that --told also runs with the terms as features.
TOLD = ("evolution", "annealing")


@dataclass(frozen=True)
class Trace:
    """The evaluated points in order: the `best` time so far (n,) in seconds, and the `clock` after each point, in
    seconds."""

    best: np.ndarray
    clock: np.ndarray

    @classmethod
    def of(cls, found: Sequence[np.ndarray], own: Sequence[float], runs: int) -> Trace:
        """Make a trace from batches of times, the CPU seconds before each batch, and the runs of each point."""
        times = np.concatenate(found)
        spent = np.repeat(own, [len(batch) for batch in found]) + runs * np.cumsum(times)
        return cls(np.minimum.accumulate(times), spent)

    def after(self, evaluations: int) -> float:
        """Return the best time after so many evaluations."""
        return float(self.best[min(evaluations, len(self.best)) - 1])

    def within(self, seconds: float) -> float:
        """Return the best time within so many seconds; infinite where no evaluation was finished."""
        count = int(np.searchsorted(self.clock, seconds, side="right"))
        return float(self.best[count - 1]) if count else float("inf")


class Landscape(Protocol):
    """A space to search: a Space, or a lattice that is its own only family."""

    @property
    def families(self) -> Sequence[FamilySpace]: ...


class Recorded:
    """A family that records its evaluations and their times."""

    def __init__(self, family: FamilySpace, trace: list[tuple[float, np.ndarray]]):
        self._family, self._trace = family, trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def potential(self, points: np.ndarray) -> np.ndarray:
        """Return the family's potential, and record it."""
        now = time.process_time()
        seconds: np.ndarray = self._family.potential(points)
        self._trace.append((now, seconds))
        return seconds


class RecordedSpace:
    """A Space whose families record their evaluations."""

    def __init__(self, space: Landscape):
        self.trace: list[tuple[float, np.ndarray]] = []
        self.families = tuple(Recorded(family, self.trace) for family in space.families)


def searched(name: str, space: Landscape, seed: int, evaluations: int, runs: int) -> Trace:
    """Run one search."""
    recorded = RecordedSpace(space)
    began = time.process_time()
    strategy(name)(Search(recorded, seed=seed, evaluations=evaluations))
    return Trace.of([s for _, s in recorded.trace], [t - began for t, _ in recorded.trace], runs)


Runner = Callable[[int, int], Trace]  # seed, evaluations


def measured_runners(blind: Landscape, foreseen: Landscape, runs: int, told: bool) -> dict[str, Runner]:
    """Return every strategy on a completely known space, by reported name: on the space without predictions and with
    them."""

    def runner(name: str, space: Landscape) -> Runner:
        return lambda seed, evaluations: searched(name, space, seed, evaluations, runs)

    runners = {"walk": runner("walk", foreseen), "walk, blind": runner("walk", blind)}
    runners |= {name: runner(name, blind) for name in ("paper", "evolution", "annealing", "random")}
    return runners | {f"{name}, told": runner(name, foreseen) for name in TOLD if told}


def kernel_tuner_runners(simulator: kernel_tuner.Simulator) -> dict[str, Runner]:
    """Return Kernel Tuner's strategies on the same space."""

    def runner(name: str) -> Runner:
        def run(seed: int, evaluations: int) -> Trace:
            found, own = simulator.search(name, evaluations, seed)
            return Trace.of([found / 1e3], [own], RUNS)

        return run

    return {f"kernel tuner: {name}": runner(name) for name in kernel_tuner.STRATEGIES}


def potential_runners(space: Space) -> dict[str, Runner]:
    """Return every strategy on the potential."""

    def runner(name: str) -> Runner:
        return lambda seed, evaluations: searched(name, space, seed, evaluations, 0)

    return {name: runner(name) for name in ("walk", "paper", "evolution", "annealing", "random")}


def compared(runners: dict[str, Runner], options: argparse.Namespace) -> dict[str, Limits]:
    """Return quartiles and the least of the times found, in ms, by strategy and limit: "64" evaluations, "60 s"."""
    found: dict[str, Limits] = {}
    for name, run in runners.items():
        if options.only and name not in options.only:
            continue
        began = time.perf_counter()
        limits: dict[str, list[float]] = {}
        for seed in range(options.seeds):
            whole = run(seed, max(options.evaluations))
            for number in options.evaluations:
                again = name in PLANNED and number != max(options.evaluations)
                limits.setdefault(str(number), []).append((run(seed, number) if again else whole).after(number))
            for seconds in options.seconds:
                limits.setdefault(f"{seconds:g} s", []).append(whole.within(seconds))
        found[name] = {limit: quartiles(np.array(each) * 1e3) for limit, each in limits.items()}
        print(f"  {name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def on_measured(given: str, options: argparse.Namespace) -> tuple[str, Compared]:
    """Return the (title, figures) of DATA:PART."""
    data = measured_space(given)
    data = data.rows(~np.isnan(data.time_ms))
    runners = measured_runners(Timed(data), Replayed(data), RUNS, options.told)
    optimum = float(data.time_ms.min())
    refused = kernel_tuner.missing()
    if refused is not None:
        print(refused, file=sys.stderr)
        return data.arch.part, Compared(optimum, compared(runners, options))
    with kernel_tuner.Simulator(data) as simulator:
        return data.arch.part, Compared(optimum, compared(runners | kernel_tuner_runners(simulator), options))


def on_counted(given: str, options: argparse.Namespace) -> tuple[str, Compared]:
    """Return the (title, figures) of a counted space; the file keeps the counts."""
    path, blind, foreseen = Path(given), Counted(), Foreseen()
    if path.exists():
        blind.recall(path)
    optimum = float(blind.potential(blind.every()).min()) * 1e3
    blind.keep(path)
    foreseen.clocks = blind.clocks
    return "counted on the emulator", Compared(
        optimum, compared(measured_runners(blind, foreseen, 0, options.told), options)
    )


def on_potential(given: str, options: argparse.Namespace) -> tuple[str, Compared]:
    """Return the (title, figures) of SHAPES:ARCH:ROW."""
    path, arch, row = given.rsplit(":", 2)
    asked = read_shapes(path)[int(row)]
    if asked.workload is None:
        raise ValueError(f"{given}: row {row} has no workload")
    space = Space(asked.workload, lookup(arch))
    return f"potential of {asked.name}, {arch}", Compared(None, compared(potential_runners(space), options))


#: By limit ("64" evaluations, "60 s"): lower quartile, median, upper quartile, least, over seeds.
Limits = Mapping[str, Sequence[float]]
RIVALS = ("random", "annealing", "evolution")


@dataclass(frozen=True)
class Compared:
    """One space: its least milliseconds, if known, and the times found, by strategy and limit."""

    optimum: float | None
    found: dict[str, Limits]

    def regrets(self) -> dict[str, Limits]:
        """Return the times as shares above the optimum, or above the least time that any strategy found."""
        least = (values[3] for limits in self.found.values() for values in limits.values())
        floor = self.optimum if self.optimum is not None else min(least)
        return {
            name: {limit: [each / floor - 1 for each in values] for limit, values in limits.items()}
            for name, limits in self.found.items()
        }


def quartiles(values: np.ndarray) -> list[float]:
    """Return the quartiles and the least value; without interpolation, so that infinite values do no harm."""
    return [float(each) for each in np.quantile(values, (0.25, 0.5, 0.75, 0), method="lower")]


def beaten(spaces: Mapping[str, Compared], limits: Sequence[str]) -> list[str]:
    """Return the cases in which a rival's median is below the walk's, as text."""
    return [
        f"on {title}, {limit} evaluations, by {rival}"
        for title, each in spaces.items()
        for limit in limits
        for rival in RIVALS
        if rival in each.found and each.found["walk"][limit][1] > each.found[rival][limit][1]
    ]


def written(spaces: Mapping[str, Compared], seeds: int, runs: int) -> str:
    """Return the JSON text of all spaces; an infinite time is null."""
    body = {"seeds": seeds, "runs": runs, "unit": "ms: quartiles and the least, by evaluations or seconds"}
    text = json.dumps(body | {"spaces": {title: asdict(each) for title, each in spaces.items()}}, indent=1)
    return text.replace("Infinity", "null") + "\n"


def read(path: Path, seeds: int) -> dict[str, Compared]:
    """Return the spaces of such a JSON text. Raises ValueError where it has another number of seeds."""
    body = json.loads(path.read_text(encoding="utf-8"))
    if body["seeds"] != seeds:
        raise ValueError(f"{path} has {body['seeds']} seeds, not {seeds}")
    return {
        title: Compared(
            each["optimum"],
            {
                name: {limit: [float("inf") if v is None else v for v in values] for limit, values in limits.items()}
                for name, limits in each["found"].items()
            },
        )
        for title, each in body["spaces"].items()
    }


def line(name: str, limits: Limits) -> str:
    """Return one printed line of regrets."""
    told = (f"{limit}: {_percent(m)} ({_percent(a)} to {_percent(b)})" for limit, (a, m, b, _) in limits.items())
    return f"{name:34} " + "  ".join(told)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}" if np.isfinite(share) else "-"


def plot(path: Path, spaces: Mapping[str, Compared], evaluations: Sequence[int]) -> str | None:
    """Draw medians with quartiles against evaluations, a panel per space; return why not without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return f"no plot: {command('plot')}"
    figure, axes = pyplot.subplots(
        1, len(spaces), figsize=(6 * len(spaces), 4.8), layout="constrained", squeeze=False, sharey=True
    )
    for axis, (title, each) in zip(axes.flat, spaces.items(), strict=True):
        found = each.regrets()
        for place, (name, limits) in enumerate(found.items()):
            low, middle, high, _ = 100 * np.array([limits[str(number)] for number in evaluations]).T
            shifted = np.array(evaluations) * 1.03 ** (place - len(found) / 2)
            axis.errorbar(shifted, middle, (middle - low, high - middle), fmt="o-", capsize=2, linewidth=1, label=name)
        axis.set(xscale="log", xlabel="evaluations", title=title)
        axis.set_yscale("symlog", linthresh=0.5)
        axis.set_ylim(bottom=0)
        axis.set_xticks(evaluations, map(str, evaluations))
        axis.legend(fontsize=7)
    axes.flat[0].set_ylabel("best found slower than the optimum, %: median, quartiles")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return None


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategies", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("measured", nargs="*", metavar="DATA.csv.gz:PART")
    parser.add_argument("--potential", action="append", default=[], metavar="SHAPES.csv:ARCH:ROW")
    parser.add_argument(
        "--counted", action="append", default=[], metavar="FILE.csv.gz", help="file that keeps the counts"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=_numbers(int), default=[64, 256, 1024], metavar="N,N,N")
    parser.add_argument("--seconds", type=_numbers(float), default=[10.0, 60.0, 300.0], metavar="S,S,S")
    parser.add_argument("--told", action="store_true", help="run evolution and annealing with the terms, too")
    parser.add_argument("--only", type=_numbers(str), metavar="NAME,NAME", help="strategies to run, by reported name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to add the results to")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 where the walk's median is nowhere above those of random, annealing and evolution, else 1."""
    options = _arguments(argv)
    spaces = read(options.json, options.seeds) if options.json and options.json.exists() else {}
    todo = [(on_measured, given) for given in options.measured] + [(on_potential, g) for g in options.potential]
    todo += [(on_counted, given) for given in options.counted]
    for compare, given in todo:
        title, found = compare(given, options)
        before = spaces[title].found if title in spaces else {}
        spaces[title] = Compared(found.optimum, before | found.found)
    for title, each in spaces.items():
        print(f"{title}: % slower than the optimum, median (quartiles) over {options.seeds} seeds")
        print("\n".join(f"  {line(name, limits)}" for name, limits in each.regrets().items()))
    lost = beaten(spaces, [str(number) for number in options.evaluations])
    print("walk is beaten: " + ("; ".join(lost) or "nowhere"))
    if options.json:
        options.json.write_text(written(spaces, options.seeds, RUNS), encoding="utf-8")
    if options.plot and (refused := plot(options.plot, spaces, options.evaluations)):
        print(refused, file=sys.stderr)
    return 1 if lost else 0


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(each) for each in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
