"""Simulated traces of benchmarks: runs of a kernel and of a vendor's call on a machine whose clock drifts.

Noise is Student's t with five degrees of freedom, `noise` wide, for each side separately; three times in a hundred a
side's run is disturbed and 5 % to 40 % slower. The clock wanders from run to run (autoregressive, 3 % wide) and is the
same for both sides of a run. CONTROLS has the additional effects of a control.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gensor_tuner.regression.runs import Run, Sample
from gensor_tuner.regression.verdicts import CLOCK

DISTURBED, WANDERING = 0.03, 0.03


def factors(rng: np.random.Generator, runs: int, noise: float) -> np.ndarray:
    """Return by how much each run of one side takes longer or shorter, as a logarithm."""
    normal = rng.standard_t(5, runs) / math.sqrt(5 / 3) * noise
    return normal + np.where(rng.random(runs) < DISTURBED, np.log(rng.uniform(1.05, 1.4, runs)), 0.0)


def clock(rng: np.random.Generator, runs: int) -> np.ndarray:
    """The machine's own factor in each run, as a logarithm."""
    found, last = [], 0.0
    for step in rng.normal(0.0, WANDERING, runs):
        last = 0.7 * last + math.sqrt(1 - 0.49) * step
        found.append(last)
    return np.array(found)


Control = Callable[[np.random.Generator, int], np.ndarray]


def _noisy(width: float) -> Control:
    return lambda rng, runs: rng.standard_t(5, runs) / math.sqrt(5 / 3) * width


def _walking(step: float) -> Control:
    return lambda rng, runs: np.cumsum(rng.normal(0.0, step, runs))


def _leaning(step: float) -> Control:
    return lambda rng, runs: np.arange(runs) * math.log1p(step)


def _bimodal(slower: float, share: float, stays: float = 0.0) -> Control:
    """In `share` of the runs slower; a run is like the last one with probability `stays`, else drawn again."""

    def factors(rng: np.random.Generator, runs: int) -> np.ndarray:
        modes = [bool(rng.random() < share)]
        while len(modes) < runs:
            modes.append(modes[-1] if rng.random() < stays else bool(rng.random() < share))
        return np.array(modes) * math.log1p(slower)

    return factors


#: The effect of a control by itself, as the logarithm of a factor in each run.
CONTROLS: dict[str, Control] = {
    "steady": lambda rng, runs: np.zeros(runs),
    "noisy, 10 %": _noisy(0.1),
    "noisy, 30 %": _noisy(0.3),
    "drifting, a random walk of 2 % a run": _walking(0.02),
    "drifting, 1 % slower with every run": _leaning(0.01),
    "drifting, 1 % faster with every run": _leaning(-0.01),
    "bimodal, 40 % slower in half of the runs": _bimodal(0.4, 0.5),
    "bimodal, 40 % slower in three of ten runs": _bimodal(0.4, 0.3),
    "bimodal, 40 % slower in seven of ten runs": _bimodal(0.4, 0.7),
    "bimodal, 20 % slower in half of the runs": _bimodal(0.2, 0.5),
    "bimodal in spells, 40 % slower in half of the runs": _bimodal(0.4, 0.5, stays=0.7),
}


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
    control: str = "steady",
) -> tuple[list[Run], list[Run]]:
    """Old and new runs of one benchmark; `ours`, `vendor` and `machine` are how much slower each is in the new ones,
    `driver` is theirs, `clocked` runs say their clock, `control` is one of CONTROLS."""
    count = before + after
    new = np.arange(count) >= before
    common = clock(rng, count) + new * math.log1p(machine)
    times = 100.0 * np.exp(common + new * math.log1p(ours) + factors(rng, count, noise))
    theirs = 80.0 * np.exp(common + new * math.log1p(vendor) + factors(rng, count, noise))
    theirs *= np.exp(CONTROLS[control](rng, count))
    runs = []
    for i in range(count):
        said = {"driver": driver if new[i] else "550.54"}
        said |= {CLOCK: f"{1500 * math.exp(-common[i]):.0f}"} if clocked else {}
        runs.append(Run(Path(f"run-{i}"), i, "gpu", said, {"kernel": Sample(times[i], {"cupy": theirs[i]})}))
    return runs[:before], runs[before:]
