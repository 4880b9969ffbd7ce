"""What a few times of one Workload say of the Programs not timed yet: a Gaussian process over their terms.

Boosted trees learn nothing from eight times, and a tuning has a few dozen at most. A Gaussian process over as many is
a closed formula: an exact update after each batch in microseconds, with NumPy alone, and its doubt is what says which
Program is worth the next measurement.
"""

from __future__ import annotations

import numpy as np

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
