"""Which of a Workload's candidates to time next, and when to stop.

A Gaussian process over the terms of Programs updates the predictions after each batch. Boosted trees learn nothing from
eight times, and tuning takes a few dozen at most; for so few a Gaussian process is an exact closed formula that NumPy
evaluates in microseconds, and its doubt says which Program is worth the next measurement.
"""

from __future__ import annotations

import numpy as np

BATCH = 16  # candidates timed together
QUIET, GAIN = 2, 0.01  # stop after QUIET consecutive rounds that gain less than the share GAIN
TIE_BAND = 1.01  # times within 1 % are equal


class Rounds:
    """The times of n candidates, corrected to the clock of the first round: the leader is timed again in each round."""

    def __init__(self, count: int):
        self.seconds = np.full(count, np.inf)  # measured; inf before a measurement
        self._quiet = 0

    def next(self, predicted: np.ndarray, features: np.ndarray, able: np.ndarray) -> list[int]:
        """Return the candidates of the next round, the leader first; empty when enough is known.

        `predicted` seconds (n,) and `features` (features, n) may change between rounds. Candidates in the mask `able`
        are chosen by prediction minus doubt.
        """
        able = able & np.isfinite(predicted)
        waiting = np.flatnonzero(able & ~np.isfinite(self.seconds))
        if not len(waiting) or self._quiet >= QUIET:
            return []
        judged = np.flatnonzero(able)
        known = np.flatnonzero(np.isfinite(self.seconds[judged]))
        ratios = np.log(self.seconds[judged[known]] / predicted[judged[known]])
        mean, doubt = Posterior(features[:, judged])(known, ratios)
        score = np.full(len(able), np.inf)
        score[judged] = np.log(predicted[judged]) + mean - doubt
        order = waiting[np.argsort(score[waiting], kind="stable")]
        leader = self.leader
        return [*([] if leader is None else [leader]), *order[:BATCH].tolist()]

    @property
    def leader(self) -> int | None:
        """The fastest candidate so far."""
        return int(np.argmin(self.seconds)) if np.isfinite(self.seconds).any() else None

    def add(self, columns: list[int], seconds: np.ndarray) -> float:
        """Record the times of a round, whose first column may be the leader; return the correction for clock drift."""
        leader, before = self.leader, self.seconds.min()
        drift = 1.0
        if leader is not None and columns[0] == leader:
            drift = float(self.seconds[leader] / seconds[0])
            columns, seconds = columns[1:], seconds[1:]
        self.seconds[columns] = seconds * drift
        gained = not np.isfinite(before) or self.seconds.min() < before * (1 - GAIN)
        self._quiet = 0 if gained else self._quiet + 1
        return drift


#: Standard deviation of ln(measured / predicted) before any measurement: 0.11 and 0.15 on the measured spaces.
DEVIATION = 0.15
#: Shares of the prior variance: common to all Programs of the Workload, common to similar Programs, and independent.
COMMON, ALIKE, OWN = 0.4, 0.3, 0.3
#: Length scale of similarity, in standard deviations of each feature.
LENGTH = 2.0
#: Weight of the prior variance, in measurements, when it is corrected by measurements.
PRIOR_WEIGHT = 8.0
#: Standard deviation of ln(time) between repeated measurements of one kernel.
NOISE = 0.01


class Posterior:
    """Posterior of ln(measured / predicted) for n Programs with features ``x`` (features, n)."""

    def __init__(self, x: np.ndarray):
        scaled = _scale(x)
        square = np.square(scaled).sum(axis=0)
        distance = np.maximum(square[:, None] + square - 2 * scaled.T @ scaled, 0) / max(len(scaled), 1)
        alike = COMMON + ALIKE * np.exp(-0.5 * distance / LENGTH**2) + OWN * np.eye(len(square))
        self.prior = alike * DEVIATION**2

    def __call__(self, known: np.ndarray, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (mean (n,), standard deviation (n,)), given ``ratios`` (k,) at the places ``known`` (k,)."""
        if not len(known):
            return np.zeros(len(self.prior)), np.sqrt(np.diag(self.prior))
        cross = self.prior[:, known]
        solved = np.linalg.solve(self.prior[np.ix_(known, known)] + NOISE**2 * np.eye(len(known)), np.eye(len(known)))
        # The potential's error differs between Workloads.
        spread = (ratios @ solved @ ratios + PRIOR_WEIGHT) / (len(known) + PRIOR_WEIGHT)
        variance = np.diag(self.prior) - np.einsum("ij,jk,ik->i", cross, solved, cross)
        return cross @ (solved @ ratios), np.sqrt(np.maximum(spread * variance, 0))


def _scale(x: np.ndarray) -> np.ndarray:
    """Return logarithms of the features that vary, scaled to mean 0 and deviation 1, outliers clipped."""
    logs = np.log(np.maximum(x.astype(np.float64), 1e-6))
    logs -= logs.mean(axis=1, keepdims=True)
    deviation = logs.std(axis=1, keepdims=True)
    differ = deviation[:, 0] > 1e-9
    return np.clip(logs[differ] / deviation[differ], -3, 3)
