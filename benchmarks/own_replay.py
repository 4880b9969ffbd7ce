"""How well counts of a user's kernel find the fast configurations of a measured space.

python -m benchmarks.own_replay KERNEL MEASURED.csv.gz --part PART [--size NAME=NUMBER ...] [--sample N] [--json FILE]

KERNEL is a T1 file or FILE.py:NAME, as for `gensor-tune own`; MEASURED has a column per knob, and `time_ms`. Printed
are the rank correlation of predicted and measured times, the regret of the 1 and 16 best predictions next to as many
random picks, and how many configurations are measured, in the order of predictions and at random, until one is within
5 % of the best. No GPU is needed; a configuration takes about a second of CPU time.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from pathlib import Path

import numpy as np

from gensor_kernels.machine.arch import lookup
from gensor_tuner.own.command import read_kernel, sizes_of
from gensor_tuner.own.space import OwnSpace

CLOSE, PICKS, SEEDS = 1.05, 16, 20


def read(path: Path) -> list[tuple[dict[str, int], float]]:
    """Return (knobs, milliseconds) of every row."""
    with gzip.open(path, "rt") as file:
        return [
            ({name: int(value) for name, value in row.items() if name != "time_ms"}, float(row["time_ms"]))
            for row in csv.DictReader(file)
        ]


def until_close(times: np.ndarray, order: np.ndarray) -> int:
    """Return how many are measured, in this order, until one is within 5 % of the best."""
    return int(np.argmax(times[order] <= CLOSE * times.min())) + 1


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks, the mean one where values are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def figures(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """Return all figures of a space."""
    order, rng = np.argsort(predicted, kind="stable"), np.random.default_rng(0)
    drawn = [rng.permutation(len(measured)) for _ in range(SEEDS)]
    best = measured.min()
    return {
        "configurations": len(measured),
        "spearman": float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1]),
        "measured over predicted": float(np.exp(np.mean(np.log(measured / predicted)))),
        "regret of 1": float(measured[order[0]] / best - 1),
        f"regret of {PICKS}": float(measured[order[:PICKS]].min() / best - 1),
        f"regret of {PICKS} at random": float(np.median([measured[each[:PICKS]].min() for each in drawn]) / best - 1),
        "measured until within 5 %": until_close(measured, order),
        "measured until within 5 %, at random": float(np.median([until_close(measured, each) for each in drawn])),
    }


def main() -> None:
    """Print the figures of a space."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("kernel")
    parser.add_argument("measured", type=Path)
    parser.add_argument("--part", required=True)
    parser.add_argument("--size", action="append", default=[])
    parser.add_argument("--sample", type=int, default=0, help="configurations, drawn; 0: all")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    kernel, rows = read_kernel(given.kernel), read(given.measured)
    if given.sample:
        picked = np.random.default_rng(1).permutation(len(rows))[: given.sample]
        rows = [rows[place] for place in picked]
    space = OwnSpace(
        kernel.description, kernel.source, sizes_of(given.size, kernel.sizes), lookup(given.part), jobs=given.jobs
    )
    began = time.process_time()
    known = {name for name, _ in kernel.description.knobs}
    points, times = [], []
    for knobs, milliseconds in rows:
        values = [2, *(axis.values.index(knobs[axis.name]) for axis in space.coordinates[1:] if axis.name in known)]
        points.append(values)
        times.append(milliseconds)
    predicted = space.potential(np.array(points)) * 1e3
    runs = np.isfinite(predicted)
    found = figures(predicted[runs], np.array(times)[runs])
    found["CPU seconds per configuration"] = (time.process_time() - began) / len(rows)
    for reason in sorted(set(space.refused.values()))[:3]:
        print(f"not built: {reason}")
    for name, value in found.items():
        print(f"{name:<40}{value:10.3g}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
