"""How well counts of a user's kernel find the fast configurations of a measured space.

python -m benchmarks.own_replay KERNEL MEASURED.csv.gz --part PART [--size NAME=NUMBER ...]
                                [--count-at NAME=NUMBER ...] [--sample N] [--strategies] [--json FILE]

KERNEL is a T1 file or FILE.py:NAME, as for `gensor-tune own`; MEASURED has a column per knob, and `time_ms`. Printed
are the rank correlation of predicted and measured times, the regret of the 1 and 16 best predictions next to as many
random picks, and how many configurations are measured until one is within 5 % of the best: in the rounds of
`gensor-tune own --measure`, at random, and with --strategies by those of Kernel Tuner in its simulation mode (the
extra `compare`; the median of 20 seeds). No GPU is needed; a configuration takes about a second of CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gensor_kernels.machine.arch import lookup
from gensor_tuner.build.pool import features
from gensor_tuner.measure.tournament import Rounds
from gensor_tuner.own.command import read_kernel, sizes_of
from gensor_tuner.own.potential import terms
from gensor_tuner.own.space import OwnSpace

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


def in_rounds(predicted: np.ndarray, described: np.ndarray, measured: np.ndarray) -> list[int]:
    """Return configurations in the order in which `gensor-tune own` measures them, until its rounds end."""
    rounds, order = Rounds(len(predicted)), []
    while columns := rounds.next(predicted, described, np.ones(len(predicted), bool)):
        order += [column for column in columns if column != rounds.leader]
        rounds.add(columns, measured[columns])
    return order


def figures(predicted: np.ndarray, described: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """Return all figures of a space; times in seconds."""
    rng = np.random.default_rng(0)
    drawn = [rng.permutation(len(measured)) for _ in range(SEEDS)]
    best, rounds = measured.min(), in_rounds(predicted, described, measured)
    ratio = measured / predicted
    return {
        "configurations": len(measured),
        "spearman": spearman(predicted, measured),
        "measured over predicted": float(np.exp(np.mean(np.log(ratio)))),
        "measured over predicted, 10 % of them below": float(np.quantile(ratio, 0.1)),
        "measured over predicted, 10 % of them above": float(np.quantile(ratio, 0.9)),
        "regret of 1": regret(predicted, measured, 1),
        f"regret of {PICKS}": regret(predicted, measured, PICKS),
        f"regret of {PICKS} at random": random_regret(measured, PICKS),
        "regret of all rounds": float(measured[rounds].min() / best - 1),
        "measured in all rounds": len(rounds),
        "measured until within 5 %": until_close(measured, rounds),
        "measured until within 5 %, at random": float(np.median([until_close(measured, each) for each in drawn])),
    }


def by_strategies(rows: Sequence[tuple[Mapping[str, int], float]]) -> dict[str, float]:
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
        for strategy in STRATEGIES:
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
    parser.add_argument("--sample", type=int, default=0, help="configurations, drawn; 0: all")
    parser.add_argument("--strategies", action="store_true", help="also those of Kernel Tuner")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    kernel, rows = read_kernel(given.kernel), read(given.measured)
    if given.sample:
        picked = np.random.default_rng(1).permutation(len(rows))[: given.sample]
        rows = [rows[place] for place in picked]
    values = {name: tuple(sorted({knobs[name] for knobs, _ in rows})) for name, _ in kernel.description.knobs}
    described = replace(kernel.description, knobs=tuple(values.items()))  # the measured ones, all of them
    sizes = sizes_of(given.size, kernel.sizes)
    count_at = sizes_of(given.count_at, sizes)
    space = OwnSpace(described, kernel.source, sizes, lookup(given.part), count_at, given.jobs)
    began = time.process_time()
    points = [[2, *(values[name].index(knobs[name]) for name in values)] for knobs, _ in rows]
    times = np.array([milliseconds for _, milliseconds in rows])
    predicted = space.potential(np.array(points))
    spent = (time.process_time() - began) / len(rows)
    runs = np.flatnonzero(np.isfinite(predicted))
    counted = terms([space.built[space.program(np.array(points[each]))].counted for each in runs], space.arch)
    found = figures(predicted[runs], features(counted, space.arch), times[runs] * 1e-3)
    found["CPU seconds per configuration"] = spent
    if given.strategies:
        found |= by_strategies([rows[each] for each in runs])
    for reason in sorted(set(space.refused.values()))[:3]:
        print(f"not built: {reason}")
    for name, value in found.items():
        print(f"{name:<48}{value:10.4g}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
