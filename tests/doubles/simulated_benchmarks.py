"""Simulated traces of benchmarks: runs of a kernel and of a vendor's call on a machine whose clock drifts.

Noise is Student's t with five degrees of freedom, `noise` wide, for each side of its own; three times in a hundred a
side's run is disturbed and 5 % to 40 % slower. The clock wanders from run to run (autoregressive, 3 % wide) and is the
same for both sides of a run.
"""

import math
from pathlib import Path

import numpy as np

from gensor_tuner.regression.runs import Run, Sample
from gensor_tuner.regression.verdicts import CLOCK

DISTURBED, WANDERING = 0.03, 0.03


def factors(rng: np.random.Generator, runs: int, noise: float) -> np.ndarray:
    """What each run of one side takes longer or shorter, as a logarithm."""
    normal = rng.standard_t(5, runs) / math.sqrt(5 / 3) * noise
    return normal + np.where(rng.random(runs) < DISTURBED, np.log(rng.uniform(1.05, 1.4, runs)), 0.0)


def clock(rng: np.random.Generator, runs: int) -> np.ndarray:
    """The machine's own factor in each run, as a logarithm."""
    found, last = [], 0.0
    for step in rng.normal(0.0, WANDERING, runs):
        last = 0.7 * last + math.sqrt(1 - 0.49) * step
        found.append(last)
    return np.array(found)


def trace(
    rng: np.random.Generator,
    before: int = 20,
    after: int = 5,
    *,
    ours: float = 0.0,
    vendor: float = 0.0,
    machine: float = 0.0,
    noise: float = 0.01,
    driver: str = "550.54",
    clocked: bool = False,
) -> tuple[list[Run], list[Run]]:
    """Old and new runs of one benchmark; `ours`, `vendor` and `machine` are how much slower each is in the new ones,
    `driver` is theirs, `clocked` runs say their clock."""
    count = before + after
    new = np.arange(count) >= before
    common = clock(rng, count) + new * math.log1p(machine)
    times = 100.0 * np.exp(common + new * math.log1p(ours) + factors(rng, count, noise))
    theirs = 80.0 * np.exp(common + new * math.log1p(vendor) + factors(rng, count, noise))
    runs = []
    for i in range(count):
        said = {"driver": driver if new[i] else "550.54"}
        said |= {CLOCK: f"{1500 * math.exp(-common[i]):.0f}"} if clocked else {}
        runs.append(Run(Path(f"run-{i}"), i, "gpu", said, {"kernel": Sample(times[i], {"cupy": theirs[i]})}))
    return runs[:before], runs[before:]
