"""Choosing few kernels for many shapes: the shared cover of a run, and the portfolio of a class.

Both work on one matrix of predicted seconds, a row per workload and a column per candidate Program, and both
are independent of the order in which rows and candidates arrive: ties fall to the candidate with the smaller
name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# A row accepts a candidate predicted within 2 % of the row's best, and one whose blocks wait for no other within 5 %:
# what waiting takes is an estimate, and no block should wait for less.
WITHIN, PLAIN = 1.02, 1.05
# Within 25 % it accepts one that does not spill, and within 10 % one with full-width accesses and no bank conflicts:
# local memory traffic and half-filled sectors have costs that the potential does not model.
SPILL_FREE, CLEAN = 1.25, 1.1
# The regret of a row that nothing chosen serves yet: beyond any other.
UNSERVED = 1000.0


def regrets(seconds: np.ndarray) -> np.ndarray:
    """Seconds (rows, candidates) over each row's best: 1.0 is optimal, inf cannot serve the row."""
    best = np.min(seconds, axis=1, keepdims=True)
    return np.where(np.isfinite(seconds), seconds / np.where(np.isfinite(best), best, 1.0), np.inf)


def cover(seconds: np.ndarray, names: Sequence[str], within: float = WITHIN) -> list[int]:
    """Greedy set cover: candidate columns such that every row has one within `within` of its best.

    Each round takes the candidate that serves the most rows not served yet; ties go to the smaller mean
    regret over those rows, then to the smaller name. Rows that nothing can serve (all inf) are left out.
    """
    ratio = regrets(seconds)
    open_rows = np.isfinite(ratio).any(axis=1)
    serves = ratio <= within
    order = np.argsort(np.asarray(names))
    chosen: list[int] = []
    while open_rows.any():
        counts = serves[open_rows].sum(axis=0)
        mean = np.where(serves[open_rows], ratio[open_rows], 0).sum(axis=0) / np.maximum(counts, 1)
        rank = np.lexsort((np.round(mean[order], 9), -counts[order]))[0]
        pick = int(order[rank])
        chosen.append(pick)
        open_rows &= ~serves[:, pick]
    return chosen


def preferring(seconds: np.ndarray, *preferences: tuple[np.ndarray, float]) -> np.ndarray:
    """`seconds` where, preference after preference, candidates outside a mask (candidates,) are inf in every row that
    one of its candidates serves within a factor of the row's best."""
    ratio, left = regrets(seconds), seconds
    for mask, within in preferences:
        served = np.any((ratio <= within) & mask & np.isfinite(left), axis=1, keepdims=True)
        left = np.where(served & ~mask, np.inf, left)
    return left


def assign(seconds: np.ndarray, chosen: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """For each row the best of the `chosen` columns, or -1 where none can serve it; ties by name."""
    if not len(chosen):
        return np.full(len(seconds), -1)
    ranked = sorted(chosen, key=lambda column: names[column])
    part = seconds[:, ranked]
    picks = np.asarray(ranked)[np.argmin(part, axis=1)]
    return np.where(np.isfinite(part).any(axis=1), picks, -1)


def limited(seconds: np.ndarray, names: Sequence[str], limit: int) -> list[int]:
    """The cover where it has at most `limit` columns; else as many that lower the mean regret most, one by one: a row
    that is left out of a cover may be far from its best."""
    found = cover(seconds, names)
    return found if len(found) <= limit else _greedy(seconds, names, limit, ("mean", "worst"))


def portfolio(seconds: np.ndarray, names: Sequence[str], limit: int = 8) -> list[int]:
    """At most `limit` columns, chosen greedily so that the worst predicted regret over all rows is least.

    Each round adds the candidate that lowers the worst regret most, then the mean; it stops early once no
    candidate lowers either by more than a tenth of a per cent.
    """
    return _greedy(seconds, names, limit, ("worst", "mean"))


def _greedy(seconds: np.ndarray, names: Sequence[str], limit: int, aims: tuple[str, str]) -> list[int]:
    best = np.min(seconds, axis=1)
    usable = np.isfinite(best)
    ratio = np.minimum(seconds[usable] / best[usable, None], UNSERVED)
    if not len(ratio):
        return []
    order = np.argsort(np.asarray(names))
    chosen: list[int] = []
    current = np.full(len(ratio), UNSERVED)
    score = (np.inf, np.inf)
    while len(chosen) < limit:
        after = np.minimum(current[:, None], ratio[:, order])
        reached = {"worst": after.max(axis=0), "mean": after.mean(axis=0)}
        first, second = (reached[aim] for aim in aims)
        rank = np.lexsort((np.round(second, 9), np.round(first, 9)))[0]
        new = (float(first[rank]), float(second[rank]))
        if chosen and new[0] > score[0] * 0.999 and new[1] > score[1] * 0.999:
            break
        pick = int(order[rank])
        chosen.append(pick)
        current, score = np.minimum(current, ratio[:, pick]), new
    return chosen


def single_kernel_regret(seconds: np.ndarray, picks: np.ndarray) -> tuple[int, np.ndarray]:
    """The most used column of `picks` and the predicted regret of serving every row by it alone."""
    used = picks[picks >= 0]
    columns, counts = np.unique(used, return_counts=True)
    favourite = int(columns[np.argmax(counts)])
    return favourite, regrets(seconds)[:, favourite]
