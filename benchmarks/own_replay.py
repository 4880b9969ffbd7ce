"""How many configurations of a measured space `gensor-tune own` measures until it has a fast one.

python -m benchmarks.own_replay KERNEL MEASURED.csv.gz --part PART [--size NAME=NUMBER ...]
                                [--count-at NAME=NUMBER ...] [--budget N] [--seeds N] [--sample N]
                                [--strategies [NAME ...]] [--kept FILE] [--json FILE]

KERNEL is a T1 file or FILE.py:NAME, as for `gensor-tune own`; MEASURED has a column per knob, and `time_ms`. The whole
procedure runs with recorded times in place of a GPU: a walk, or all of a space of at most --budget configurations, and
rounds. Printed are the configurations counted and measured, those measured until one is within 5 % of the best of the
space, medians of --seeds; those at random and with --strategies by Kernel Tuner in its simulation mode (the extra
`compare`; medians of 20 seeds); and the rank correlation of predicted and measured times, and the regret of the best
and of the 16 best predictions, of --sample drawn configurations. No GPU is needed; a configuration takes 0.2 seconds of
CPU time, once: --kept has the counts of earlier runs.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import hashlib
import io
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from gensor_kernels.build.nvrtc import toolchain
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.own import Kernel
from gensor_kernels.own.configuration import bind
from gensor_tuner.own import counts, decode, potential, space
from gensor_tuner.own.command import read_kernel, sizes_of
from gensor_tuner.own.measure import Search
from gensor_tuner.own.potential import Counted
from gensor_tuner.own.tune import ranked_by_prediction

from .spaces.correlation import random_regret, regret, spearman

CLOSE, PICKS, SEEDS = 1.05, 16, 20
#: Of Kernel Tuner, those without further parameters that a user would have to choose.
STRATEGIES = (
    *(
        "random_sample",
        "simulated_annealing",
        "genetic_algorithm",
        "greedy_ils",
        "greedy_mls",
        "mls",
        "diff_evo",
        "pso",
    ),
    *("firefly_algorithm", "basinhopping", "dual_annealing", "bayes_opt"),
)


def read(path: Path) -> list[tuple[dict[str, int], float]]:
    """Return (knobs, milliseconds) of every row."""
    with gzip.open(path, "rt") as file:
        return [
            ({name: int(value) for name, value in row.items() if name != "time_ms"}, float(row["time_ms"]))
            for row in csv.DictReader(file)
        ]


def until_close(times: np.ndarray, order: Sequence[int]) -> int:
    """Return how many are measured, in this order, until one is within 5 % of the best; all where none is."""
    close = np.flatnonzero(times[list(order)] <= CLOSE * times.min())
    return int(close[0]) + 1 if len(close) else len(times)


class Replayed(space.OwnSpace):
    """The configurations of a measured space, with their seconds; counts are read from a file where it has them."""

    def __init__(
        self,
        kernel: Kernel,
        rows: Sequence[tuple[Mapping[str, int], float]],
        arch: Arch,
        sizes: Mapping[str, int],
        count_at: Mapping[str, int],
        jobs: int | None = None,
        kept: Path | None = None,
    ):
        values = {name: tuple(sorted({knobs[name] for knobs, _ in rows})) for name, _ in kernel.description.knobs}
        described = replace(kernel.description, knobs=tuple(values.items()))  # the measured ones, all of them
        super().__init__(described, kernel.source, sizes, arch, count_at, jobs)
        points = [[2, *(values[name].index(knobs[name]) for name in values)] for knobs, _ in rows]
        self.seconds = {
            self.program(np.array(point)): milliseconds * 1e-3
            for point, (_, milliseconds) in zip(points, rows, strict=True)
        }
        files = [Path(str(each.__file__)) for each in (counts, decode, potential, space)] + [counts.MACHINE]
        code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        self._key = repr((code, toolchain(), arch.part, self.sizes, self.count_at))
        self._kept = sqlite3.connect(kept or ":memory:")
        self._kept.execute("create table if not exists counted (digest text primary key, body text)")

    def build(self, programs: Sequence[Program]) -> None:
        """Count configurations, unless the file has them."""
        digests = {each: self._digest(each) for each in programs}
        marks = ",".join("?" * len(digests))
        found = dict(self._kept.execute(f"select * from counted where digest in ({marks})", [*digests.values()]))
        super().build([each for each in programs if digests[each] not in found])
        for each in programs:
            if body := json.loads(found.get(digests[each], "null")):
                if isinstance(body, str):
                    self.refused[each] = body
                else:
                    self.counted[each] = Counted(**body)
                continue
            known = json.dumps(asdict(self.counted[each]) if each in self.counted else self.refused[each])
            self._kept.execute("insert into counted values (?, ?)", (digests[each], known))
        self._kept.commit()

    def _digest(self, program: Program) -> str:
        text = bind(self.description, self.source, dict(self.own.knobs(program)))
        return hashlib.sha256(f"{self._key}{text}".encode()).hexdigest()


def procedure(measured: Replayed, budget: int, seed: int) -> list[float]:
    """Return the seconds of configurations in the order in which `gensor-tune own` measures them."""
    search, order = Search(measured, ranked_by_prediction(measured, budget, seed)), []
    while programs := search.next():
        for each in programs:
            if each not in measured.seconds:  # a legal one that its publishers could not run
                search.fail(each)
        times = {each: measured.seconds[each] for each in programs if each in measured.seconds}
        order += [seconds for each, seconds in times.items() if each != search.leader]
        if times:
            search.add(times)
    return order


def replayed(measured: Replayed, budget: int, seeds: int) -> dict[str, float]:
    """Return medians over seeds of what the whole procedure counts and measures."""
    times = np.array([*measured.seconds.values()])
    rng = np.random.default_rng(0)
    found: list[tuple[float, ...]] = []
    for seed in range(seeds):
        measured.counted.clear(), measured.refused.clear()
        order = np.array(procedure(measured, budget, seed))
        close = np.flatnonzero(order <= CLOSE * times.min())
        until = int(close[0]) + 1 if len(close) else np.inf
        counted = len(measured.counted) + len(measured.refused)
        found.append((counted, until, len(order), order.min() / times.min() - 1))
        print(f"seed {seed}: counted, until within 5 %, measured, regret: {found[-1]}", flush=True)
    names = ("counted", "measured until within 5 %", "measured in all rounds", "regret of all rounds")
    at_random = [until_close(times, rng.permutation(len(times))) for _ in range(SEEDS)]
    return {
        "configurations": len(times),
        **dict(zip(names, np.median(found, axis=0).tolist(), strict=True)),
        "measured until within 5 %, at random": float(np.median(at_random)),
    }


def figures(measured: Replayed, sample: int) -> dict[str, float]:
    """Return how good predictions of drawn configurations are."""
    drawn = np.random.default_rng(1).permutation(len(measured.seconds))[: sample or None]
    programs = [[*measured.seconds][each] for each in drawn]
    began = time.process_time()
    predicted = measured.predicted(programs)
    spent = (time.process_time() - began) / len(programs)
    runs = np.isfinite(predicted)
    predicted, times = predicted[runs], np.array([measured.seconds[each] for each in programs])[runs]
    ratio = times / predicted
    return {
        "sample": len(times),
        "spearman": spearman(predicted, times),
        "measured over predicted": float(np.exp(np.mean(np.log(ratio)))),
        "measured over predicted, 10 % of them below": float(np.quantile(ratio, 0.1)),
        "measured over predicted, 10 % of them above": float(np.quantile(ratio, 0.9)),
        "regret of 1": regret(predicted, times, 1),
        f"regret of {PICKS}": regret(predicted, times, PICKS),
        f"regret of {PICKS} at random": random_regret(times, PICKS),
        "CPU seconds per configuration, where none is kept": spent,
    }


def by_strategies(
    rows: Sequence[tuple[Mapping[str, int], float]], strategies: Sequence[str] = STRATEGIES
) -> dict[str, float]:
    """Return how many configurations each of Kernel Tuner's strategies measures until one is within 5 % of the best."""
    import kernel_tuner

    names = list(rows[0][0])
    keys = [",".join(str(knobs[name]) for name in names) for knobs, _ in rows]
    values = {name: sorted({knobs[name] for knobs, _ in rows}) for name in names}
    spent = dict.fromkeys(
        ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time"), 0.0
    )
    timed = {
        key: {**knobs, "time": time, **spent, "timestamp": "2000-01-01 00:00:00+00:00"}
        for key, (knobs, time) in zip(keys, rows, strict=True)
    }
    known = {"device_name": "recorded", "kernel_name": "replayed", "problem_size": 1, "objective": "time"}
    cache = {**known, "tune_params_keys": names, "tune_params": values, "cache": timed}
    places, times = {key: place for place, key in enumerate(keys)}, np.array([time for _, time in rows])
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "cache.json"
        path.write_text(json.dumps(cache))
        for strategy in strategies:
            counts = []
            for seed in range(SEEDS):
                random.seed(seed)
                np.random.seed(seed)
                results, _ = kernel_tuner.tune_cache(
                    path, strategy=strategy, strategy_options={"max_fevals": len(rows)}, quiet=True
                )
                order = [places[",".join(str(each[name]) for name in names)] for each in results]
                counts.append(until_close(times, list(dict.fromkeys(order))))
            found[f"measured until within 5 %, {strategy}"] = float(np.median(counts))
    return found


def main() -> None:
    """Print the figures of a space."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("kernel")
    parser.add_argument("measured", type=Path)
    parser.add_argument("--part", required=True)
    parser.add_argument("--size", action="append", default=[])
    parser.add_argument("--count-at", action="append", default=[], metavar="NAME=NUMBER", help="a size to count at")
    parser.add_argument("--budget", type=int, default=600, help="configurations counted before one is measured")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=0, help="configurations for the correlation, drawn; 0: all")
    parser.add_argument("--strategies", nargs="*", help="also those of Kernel Tuner: these, or all")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--kept", type=Path, default=None, help="a file of counts")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    kernel, rows = read_kernel(given.kernel), read(given.measured)
    sizes = sizes_of(given.size, kernel.sizes)
    count_at = sizes_of(given.count_at, sizes)
    measured = Replayed(kernel, rows, lookup(given.part), sizes, count_at, given.jobs, given.kept)
    found = replayed(measured, given.budget, given.seeds)
    for reason in sorted(set(measured.refused.values()))[:3]:
        print(f"not built: {reason}")
    found |= figures(measured, given.sample)
    if given.strategies is not None:
        found |= by_strategies(rows, given.strategies or STRATEGIES)
    for name, value in found.items():
        print(f"{name:<48}{value:10.4g}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
