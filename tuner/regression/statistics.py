"""Comparison of two sets of repeated runs: the relative change, and whether it exceeds the runs' own noise.

Times are compared as logarithms, so differences are ratios. The change is the Hodges-Lehmann estimate: the median of
all differences between an old and a new run. The noise of a run is the larger of two estimates:

- Shamos: the median of all differences between runs of one side, right where runs are independent of each other;
- overlapping batches: distances of the medians of consecutive old runs from the median of all, right where runs drift.

The estimates are medians of pairs: almost three runs in ten may be arbitrarily wrong, such as runs on a busy machine.
(J. L. Hodges, E. L. Lehmann, 1963; M. I. Shamos, 1976; P. J. Rousseeuw, C. Croux, 1993; M. S. Meketon, B. Schmeiser,
1984, for batches.) The critical value comes from a simulation of the same statistic on independent normal noise for the
given numbers of runs: asymptotic tables would be wrong for five runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from . import TOLERANCE

FEWEST_BEFORE, FEWEST_AFTER = 5, 3  # runs: with fewer, one outlier decides
MOST = 30  # newest runs of a side that are compared: more add next to nothing, and drift further
LEVEL = 0.003  # share of unchanged benchmarks whose noise alone exceeds the critical value
MISSED = 0.02  # share of slowdowns by the limit that `excludes` denies
FLOOR = 0.001  # lower limit of noise: clocks have a resolution
#: Old and new runs: logarithms of times.
Sides = tuple[Sequence[float], Sequence[float]]
DRAWS, CHUNK = 20_000, 4_000
SHAMOS = 1.0483  # 1 / (sqrt(2) * the normal distribution's upper quartile)
BATCHES = 1.23  # below the 1.4 to 1.7 of independent runs: their noise is Shamos', drift raises it
#: A control has to make our times steadier by a quarter, or leave noise below STEADY.
STEADIER, STEADY = 0.75, 0.03
#: Quantile of the distances of pairs that is used, and its value for normal noise of 1: above the median, because where
#: four of ten runs have another speed, every other pair spans both.
PAIRS, OF_PAIRS = 0.55, 1.0684


def change(sides: Sides) -> float:
    """Return the shift from old to new logarithms of times: 0.05 is about 5 % slower."""
    before, after = sides
    return float(np.median(np.subtract.outer(np.asarray(after), np.asarray(before))))


def noise(sides: Sides) -> float:
    """Return the standard deviation of a run; at least FLOOR."""
    before, after = (np.asarray(side, np.float64)[None] for side in sides)
    return max(float(_noise(before, after)[0]), FLOOR)


def score(sides: Sides) -> float:
    """Return the change in units of its standard deviation under noise alone."""
    return change(sides) / (noise(sides) * _spread(*map(len, sides)))


def is_slower(sides: Sides, tolerance: float = TOLERANCE, level: float = LEVEL) -> bool:
    """Whether the new runs are slower by more than the tolerance and by more than noise explains."""
    return change(sides) > math.log1p(tolerance) and score(sides) > critical(len(sides[0]), len(sides[1]), level)


def is_faster(sides: Sides, tolerance: float = TOLERANCE) -> bool:
    """Whether the new runs are faster by more than the tolerance and by more than noise explains."""
    return change(sides) < -math.log1p(tolerance) and score(sides) < -critical(len(sides[0]), len(sides[1]))


def excludes(sides: Sides, limit: float) -> bool:
    """Whether a slowdown above the limit is excluded by the upper bound of the change: a test of non-inferiority."""
    counts = len(sides[0]), len(sides[1])
    margin = critical(*counts, MISSED) * noise(sides) * _spread(*counts)
    return change(sides) + margin <= math.log1p(limit)


def is_control(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether dividing by a control makes old runs of ours steadier, or leaves little noise."""
    divided = np.asarray(ours) - np.asarray(theirs)
    return _variation(divided) <= max(STEADIER * _variation(np.asarray(ours)), STEADY)


def _variation(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of runs by a quantile of their distances."""
    return float(np.quantile(_within(values[None])[0], PAIRS)) / OF_PAIRS


def _spread(before: int, after: int) -> float:
    """Return the standard deviation of the difference of two means, in units of a run's standard deviation."""
    return math.sqrt(1 / before + 1 / after)


def _noise(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of a run for each row of old and new runs."""
    shamos = SHAMOS * np.median(np.concatenate([_within(before), _within(after)], axis=1), axis=1)
    size = max(1, min(after.shape[1], before.shape[1] // 2))
    batches = np.median(np.lib.stride_tricks.sliding_window_view(before, size, axis=1), axis=2)
    apart = np.median(np.abs(batches - np.median(before, axis=1, keepdims=True)), axis=1)
    return np.asarray(np.maximum(shamos, BATCHES * math.sqrt(size) * apart))


def _within(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all absolute differences within a row: (rows, n) -> (rows, n (n - 1) / 2)."""
    first, second = np.triu_indices(rows.shape[1], 1)
    return np.abs(rows[:, first] - rows[:, second])


def critical(before: int, after: int, level: float = LEVEL) -> float:
    """Return the value that `score` exceeds with probability `level` if nothing changed and noise is normal."""
    return float(np.quantile(_scores(before, after), 1 - level))


@cache
def _scores(before: int, after: int) -> NDArray[np.float64]:
    """Return the scores of simulated noise."""
    rng = np.random.default_rng(before * 1000 + after)
    scores = []
    for _ in range(DRAWS // CHUNK):
        old, new = rng.standard_normal((CHUNK, before)), rng.standard_normal((CHUNK, after))
        moved = np.median((new[:, :, None] - old[:, None, :]).reshape(CHUNK, -1), axis=1)
        scores.append(moved / _noise(old, new))
    return np.concatenate(scores) / _spread(before, after)
