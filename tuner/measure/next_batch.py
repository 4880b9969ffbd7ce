"""Which of a Workload's candidates to time next, and when to stop, as their times come in."""

from __future__ import annotations

import numpy as np

from .gaussian_process import Posterior

BATCH = 16  # candidates timed beside each other
QUIET, GAIN = 2, 0.01  # rounds that gain less than this, one after the other, are the last
TIE_BAND = 1.01  # times within 1 % are equal


class Rounds:
    """The times of n candidates, all as if taken when the first were: clocks drift between rounds, and so the leader
    is timed again in each of them."""

    def __init__(self, count: int):
        self.seconds = np.full(count, np.inf)  # measured, inf where nothing was
        self._quiet = 0

    def next(self, predicted: np.ndarray, features: np.ndarray, deviation: np.ndarray, able: np.ndarray) -> list[int]:
        """The candidates of the next round, the leader first; empty when enough is known.

        `predicted` seconds, `features` (features, n) and `deviation` of ln(measured / predicted) may change from
        round to round; only candidates in the mask `able` are chosen, by prediction less doubt.
        """
        able = able & np.isfinite(predicted)
        waiting = np.flatnonzero(able & ~np.isfinite(self.seconds))
        if not len(waiting) or self._quiet >= QUIET:
            return []
        judged = np.flatnonzero(able)
        known = np.flatnonzero(np.isfinite(self.seconds[judged]))
        ratios = np.log(self.seconds[judged[known]] / predicted[judged[known]])
        mean, doubt = Posterior(features[:, judged], deviation[judged])(known, ratios)
        score = np.full(len(able), np.inf)
        score[judged] = np.log(predicted[judged]) + mean - doubt
        order = waiting[np.argsort(score[waiting], kind="stable")]
        leader = self.leader
        return [*([] if leader is None else [leader]), *order[:BATCH].tolist()]

    @property
    def leader(self) -> int | None:
        """The fastest so far."""
        return int(np.argmin(self.seconds)) if np.isfinite(self.seconds).any() else None

    def add(self, columns: list[int], seconds: np.ndarray) -> float:
        """Take in the times of a round, whose first may be the leader; by how much the clock's drift was undone."""
        leader, before = self.leader, self.seconds.min()
        drift = 1.0
        if leader is not None and columns[0] == leader:
            drift = float(self.seconds[leader] / seconds[0])
            columns, seconds = columns[1:], seconds[1:]
        self.seconds[columns] = seconds * drift
        gained = not np.isfinite(before) or self.seconds.min() < before * (1 - GAIN)
        self._quiet = 0 if gained else self._quiet + 1
        return drift
