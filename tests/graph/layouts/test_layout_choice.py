"""The choice of layouts: the minimum cut compared with every assignment of small graphs."""

import itertools
import math

import numpy as np
import pytest

from gensor_kernels.graph.layouts.choice import Tensor, choose, total


def draw(rng, count):
    """Times and tensors of a random graph with residual edges, shared tensors and readers that take either layout."""
    times = []
    for _ in range(count):
        first, last = (float(each) for each in rng.integers(0, 60, 2))
        kind = rng.integers(8)
        times.append((first, math.inf) if kind == 0 else (math.inf, last) if kind == 1 else (first, last))
    tensors = []
    for made in range(count - 1):
        some = rng.choice(np.arange(made + 1, count), size=rng.integers(1, min(4, count - made) + 1), replace=True)
        readers = tuple(sorted({int(each) for each in some}))
        direct = {
            (reader, last): float(rng.integers(0, 30))
            for reader in readers
            for last in (False, True)
            if rng.random() < 0.4
        }
        tensors.append(Tensor(made, readers, float(rng.integers(0, 40)), direct))
    return times, tensors


def test_no_assignment_is_faster():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        times, tensors = draw(rng, int(rng.integers(2, 8)))
        best = min(total(times, tensors, last) for last in itertools.product((False, True), repeat=len(times)))
        assert total(times, tensors, choose(times, tensors)) == pytest.approx(best, abs=1e-9), seed


def test_one_conversion_serves_all_readers():
    """Three readers gain 4 each: one conversion of 10 pays, three would not."""
    times = [(0.0, math.inf), *[(4.0, 0.0)] * 3]
    assert choose(times, [Tensor(0, (1, 2, 3), 10.0)]) == [False, True, True, True]
    assert choose(times, [Tensor(0, (1,), 10.0), Tensor(0, (2,), 10.0), Tensor(0, (3,), 10.0)]) == [False] * 4


def test_a_reader_that_takes_either_layout_needs_no_conversion():
    times, tensor = [(0.0, math.inf), (9.0, 3.0)], Tensor(0, (1,), 10.0, {(1, True): 2.0})
    assert choose(times, [tensor]) == [False, True]
    assert tensor.crossing([False, True]) == (2.0, False)


def test_long_chains_are_cut_at_once():
    count = 2000
    times = [(0.0, math.inf), *[(2.0, 1.0)] * count, (0.0, math.inf)]
    tensors = [Tensor(each, (each + 1,), 500.0) for each in range(count + 1)]
    assert sum(choose(times, tensors)) == count
