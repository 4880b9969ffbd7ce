"""Selection of few kernels for many shapes: the shared cover of a run, and the portfolio of a class.

Both work on one matrix of predicted seconds, a row per workload and a column per candidate Program. Both are
independent of the order of rows and candidates: ties fall to the candidate with the smaller name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# A row accepts a candidate within 2 % of the row's best prediction, and within 5 % a candidate whose blocks wait for no
# other block: the cost of waiting is an estimate, and should not be accepted for a smaller gain.
WITHIN, PLAIN = 1.02, 1.05
# Between candidates whose predictions differ by less than half a percent, the clocks in which their warps issue decide:
# the potential is not that exact, and instructions take power, and time that it does not see.
LEAN = 0.005
# Within 25 % a row accepts a candidate that does not spill, and within 10 % a candidate with full-width accesses and no
# bank conflicts: the potential does not model all costs of local memory and half-filled sectors.
SPILL_FREE, CLEAN = 1.25, 1.1
# A portfolio is complete where sizes are predicted to take on average 1.03 times the best kernel's time, and none more
# than 1.25 times: what a further kernel promises is less than its machine code is worth in a shipped database.
COVERED = (1.03, 1.25)
# The regret of a row that no chosen candidate serves: larger than any other.
UNSERVED = 1000.0


def regrets(seconds: np.ndarray) -> np.ndarray:
    """Return seconds (rows, candidates) divided by each row's best: 1.0 is optimal, inf cannot serve the row."""
    best = np.min(seconds, axis=1, keepdims=True, initial=np.inf)
    return np.where(np.isfinite(seconds), seconds / np.where(np.isfinite(best), best, 1.0), np.inf)


def cover(
    seconds: np.ndarray, names: Sequence[str], within: float = WITHIN, issued: np.ndarray | None = None
) -> list[int]:
    """Choose columns greedily such that every row has one within the factor `within` of its best.

    Each round takes the candidate that serves the most open rows; ties go to the smaller mean regret over these rows in
    steps of LEAN, then to fewer clocks of issue, then to the smaller mean regret, then to the smaller name. Rows that
    no candidate can serve (all inf) are left out.

    `seconds` (rows, candidates) are predicted, and inf where a candidate cannot serve; `issued`, of the same shape, are
    the clocks in which all warps together issue (roofline.issued). Returns columns in the order of choice.
    """
    ratio = regrets(seconds)
    open_rows = np.isfinite(ratio).any(axis=1)
    serves = ratio <= within
    order = np.argsort(np.asarray(names))
    work = np.ones_like(ratio) if issued is None else regrets(np.where(serves, issued, np.inf))
    chosen: list[int] = []
    while open_rows.any():
        served = serves[open_rows]
        counts = served.sum(axis=0)
        sums = (np.sum(each[open_rows], axis=0, where=served) for each in (ratio, work))
        mean, more = (each / np.maximum(counts, 1) for each in sums)
        keys = (np.round(mean, 9), np.round(more, 9), np.floor(np.round((mean - 1) / LEAN, 6)), -counts)
        rank = np.lexsort([key[order] for key in keys])[0]
        pick = int(order[rank])
        chosen.append(pick)
        open_rows &= ~serves[:, pick]
    return chosen


def preferring(seconds: np.ndarray, *preferences: tuple[np.ndarray, float]) -> np.ndarray:
    """Return a copy of `seconds` in which rows keep only preferred candidates where one is good enough.

    Each preference is a mask (candidates,) and a factor: in every row that a candidate of the mask serves within the
    factor of the row's best, candidates outside the mask become inf. Preferences apply in order.
    """
    ratio, left = regrets(seconds), seconds
    for mask, within in preferences:
        served = np.any((ratio <= within) & mask & np.isfinite(left), axis=1, keepdims=True)
        left = np.where(served & ~mask, np.inf, left)
    return left


def assign(seconds: np.ndarray, chosen: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """Return each row's best column among `chosen`, or -1 where none can serve the row; ties by name."""
    if not len(chosen):
        return np.full(len(seconds), -1)
    ranked = sorted(chosen, key=lambda column: names[column])
    part = seconds[:, ranked]
    picks = np.asarray(ranked)[np.argmin(part, axis=1)]
    return np.where(np.isfinite(part).any(axis=1), picks, -1)


def limit_cover(seconds: np.ndarray, names: Sequence[str], limit: int, issued: np.ndarray | None = None) -> list[int]:
    """Return the cover if it has at most `limit` columns; else `limit` columns chosen for the least mean regret.

    A truncated cover may leave a row far from its best. Where no `limit` columns serve every row, further ones do.
    """
    found = cover(seconds, names, issued=issued)
    if len(found) <= limit:
        return found
    chosen = _greedy(seconds, names, limit, ("mean", "worst"))
    left = seconds[~np.isfinite(seconds[:, chosen]).any(axis=1)]
    return [*chosen, *cover(left, names, np.inf)]


def portfolio(seconds: np.ndarray, names: Sequence[str], limit: int = 8) -> list[int]:
    """Choose at most `limit` columns greedily for the least mean regret over all rows.

    Each round adds the candidate that lowers the mean regret most, then the worst; it stops once no candidate lowers
    either by more than 0.1 %, or both are as low as COVERED.
    """
    return _greedy(seconds, names, limit, ("mean", "worst"), COVERED)


def _greedy(
    seconds: np.ndarray,
    names: Sequence[str],
    limit: int,
    aims: tuple[str, str],
    enough: tuple[float, float] = (0.0, 0.0),
) -> list[int]:
    best = np.min(seconds, axis=1, initial=np.inf)
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
        if score[0] <= enough[0] and score[1] <= enough[1]:
            break
    return chosen
