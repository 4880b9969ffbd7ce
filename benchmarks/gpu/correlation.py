"""How well predicted times order measured ones."""

from __future__ import annotations

import math

import numpy as np

#: Rows per batch of comparisons with all other rows: 500 x 18,000 signs are 9 MB.
CHUNK = 500


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1, ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])


def kendall(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return Kendall's tau-b over all pairs, corrected for ties; NaN where either side is constant."""
    x, y = ranks(predicted).astype(np.float32), ranks(measured).astype(np.float32)
    agree = ties_x = ties_y = 0
    for start in range(0, len(x), CHUNK):
        dx = np.sign(x[start : start + CHUNK, None] - x).astype(np.int8)
        dy = np.sign(y[start : start + CHUNK, None] - y).astype(np.int8)
        agree += int(np.sum(dx * dy, dtype=np.int64))
        ties_x += int(np.count_nonzero(dx == 0))
        ties_y += int(np.count_nonzero(dy == 0))
    pairs = len(x) ** 2
    apart = float(pairs - ties_x) * float(pairs - ties_y)
    return agree / math.sqrt(apart) if apart else math.nan


def regret(predicted: np.ndarray, measured: np.ndarray, picks: int) -> float:
    """Return by how much the best of the `picks` best predicted is slower than the best of all, as a share of the
    latter."""
    chosen = np.argsort(predicted, kind="stable")[:picks]
    return float(measured[chosen].min() / measured.min() - 1)
