"""How well predicted times order measured ones."""

from __future__ import annotations

import math

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1, ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])


def kendall(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return Kendall's tau-b over all pairs, corrected for ties; NaN where either side is constant."""
    dx, dy = (np.sign(values[:, None] - values) for values in (predicted, measured))
    apart = np.count_nonzero(dx) * np.count_nonzero(dy)
    return float(np.sum(dx * dy)) / math.sqrt(apart) if apart else math.nan
