"""Comparison of two sets of repeated runs: the relative change, and whether it exceeds the runs' own noise.

Times are compared as logarithms, so differences are ratios. The change is the Hodges-Lehmann estimate (the median of
all differences between an old and a new run), its noise the Shamos estimate (the median of all differences between
runs of one side). Both are medians of pairs: almost three runs in ten may be arbitrarily wrong, such as runs on a busy
machine. On normal noise they lose 4 % and 14 % of the precision of mean and standard deviation, where plain median and
MAD would lose 36 % and 63 %. (J. L. Hodges, E. L. Lehmann, 1963; M. I. Shamos, 1976; P. J. Rousseeuw, C. Croux, 1993.)
The critical value comes from a simulation of the same statistic on normal noise for the given numbers of runs:
asymptotic tables would be wrong for five runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from . import TOLERANCE

FEWEST_BEFORE, FEWEST_AFTER = 5, 3  # runs: with fewer, one outlier decides
LEVEL = 0.003  # share of unchanged benchmarks whose noise alone exceeds the critical value
FLOOR = 0.001  # lower limit of noise: clocks have a resolution
#: Old and new runs: logarithms of times.
Sides = tuple[Sequence[float], Sequence[float]]
DRAWS, CHUNK = 20_000, 4_000
SHAMOS = 1.0483  # 1 / (sqrt(2) * the normal distribution's upper quartile)


def change(sides: Sides) -> float:
    """Return the shift from old to new logarithms of times: 0.05 is about 5 % slower."""
    before, after = sides
    return float(np.median(np.subtract.outer(np.asarray(after), np.asarray(before))))


def noise(sides: Sides) -> float:
    """Return the standard deviation of a run, from differences within each side; at least FLOOR."""
    pairs = np.concatenate([_within(np.asarray(side)[None])[0] for side in sides])
    return max(SHAMOS * float(np.median(pairs)), FLOOR)


def score(sides: Sides) -> float:
    """Return the change in units of its standard deviation under noise alone."""
    return change(sides) / (noise(sides) * _spread(*map(len, sides)))


def is_slower(sides: Sides, tolerance: float = TOLERANCE) -> bool:
    """Whether the new runs are slower by more than the tolerance and by more than noise explains."""
    return change(sides) > math.log1p(tolerance) and score(sides) > critical(*map(len, sides))


def is_faster(sides: Sides, tolerance: float = TOLERANCE) -> bool:
    """Whether the new runs are faster by more than the tolerance and by more than noise explains."""
    return is_slower((sides[1], sides[0]), tolerance)


def _spread(before: int, after: int) -> float:
    """Return the standard deviation of the difference of two means, in units of a run's standard deviation."""
    return math.sqrt(1 / before + 1 / after)


def _within(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all absolute differences within a row: (rows, n) -> (rows, n (n - 1) / 2)."""
    first, second = np.triu_indices(rows.shape[1], 1)
    return np.abs(rows[:, first] - rows[:, second])


@cache
def critical(before: int, after: int, level: float = LEVEL) -> float:
    """Return the value that `score` exceeds with probability `level` if nothing changed and noise is normal."""
    rng = np.random.default_rng(before * 1000 + after)
    scores = []
    for _ in range(DRAWS // CHUNK):
        old, new = rng.standard_normal((CHUNK, before)), rng.standard_normal((CHUNK, after))
        moved = np.median((new[:, :, None] - old[:, None, :]).reshape(CHUNK, -1), axis=1)
        spread = SHAMOS * np.median(np.concatenate([_within(old), _within(new)], axis=1), axis=1)
        scores.append(moved / spread)
    return float(np.quantile(np.concatenate(scores), 1 - level)) / _spread(before, after)
