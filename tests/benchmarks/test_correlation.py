"""benchmarks.gpu.correlation: rank correlations, against plain counts of pairs."""

import itertools

import numpy as np
import pytest

from benchmarks.gpu import correlation


def test_kendall_counts_pairs_and_spearman_orders():
    x, y = np.random.default_rng(0).integers(0, 12, (2, 40)).astype(float)
    pairs = list(itertools.combinations(range(40), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    apart = [sum(s[k] != 0 for s in signs) for k in (0, 1)]
    expected = sum(a * b for a, b in signs) / np.sqrt(apart[0] * apart[1])
    assert correlation.kendall(x, y) == pytest.approx(expected)
    assert correlation.kendall(x, x) == pytest.approx(1) and correlation.spearman(x, -x) == pytest.approx(-1)
    assert correlation.ranks(np.array([3.0, 1, 3, 2])).tolist() == [3.5, 1, 3.5, 2]  # ties at their mean
