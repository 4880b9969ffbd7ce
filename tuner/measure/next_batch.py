"""Which of a Workload's candidates to time next, and when to stop, as their times come in."""

from __future__ import annotations

import numpy as np

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


#: Shares of the prior variance: common to all Programs of the Workload, common to those alike, each one's own.
COMMON, ALIKE, OWN = 0.4, 0.3, 0.3
#: How far apart Programs are alike, in standard deviations of each feature.
LENGTH = 2.0
#: Times that the prior variance counts as, once there are some to correct it by.
PRIOR_WEIGHT = 8.0
#: Standard deviation of ln(time): what repeated measurements of one kernel differ by.
NOISE = 0.01


class Posterior:
    """ln(measured / predicted) of n Programs with features ``x`` (features, n) and prior deviations (n,)."""

    def __init__(self, x: np.ndarray, deviation: np.ndarray):
        scaled = _scaled(x)
        square = np.square(scaled).sum(axis=0)
        distance = np.maximum(square[:, None] + square - 2 * scaled.T @ scaled, 0) / max(len(scaled), 1)
        alike = COMMON + ALIKE * np.exp(-0.5 * distance / LENGTH**2) + OWN * np.eye(len(square))
        self.prior = alike * np.outer(deviation, deviation)

    def __call__(self, known: np.ndarray, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean (n,), standard deviation (n,)), given ``ratios`` (k,) at the places ``known`` (k,)."""
        if not len(known):
            return np.zeros(len(self.prior)), np.sqrt(np.diag(self.prior))
        cross = self.prior[:, known]
        solved = np.linalg.solve(self.prior[np.ix_(known, known)] + NOISE**2 * np.eye(len(known)), np.eye(len(known)))
        # The potential is off by more on some Workloads than on others.
        spread = (ratios @ solved @ ratios + PRIOR_WEIGHT) / (len(known) + PRIOR_WEIGHT)
        variance = np.diag(self.prior) - np.einsum("ij,jk,ik->i", cross, solved, cross)
        return cross @ (solved @ ratios), np.sqrt(np.maximum(spread * variance, 0))


def _scaled(x: np.ndarray) -> np.ndarray:
    """Logarithms of the features that differ, each with mean 0 and deviation 1, far ones drawn in."""
    logs = np.log(np.maximum(x.astype(np.float64), 1e-6))
    logs -= logs.mean(axis=1, keepdims=True)
    deviation = logs.std(axis=1, keepdims=True)
    differ = deviation[:, 0] > 1e-9
    return np.clip(logs[differ] / deviation[differ], -3, 3)
