"""The choice of layouts: the minimum cut compared with every assignment of small graphs."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.graph.layouts.choice import Choice, Tensor, choose, total


def draw(rng, count):
    """Times and tensors of a random graph with residual edges, shared tensors and readers that take either layout."""
    times = rng.integers(0, 60, (count, 2)).astype(float)
    only = rng.integers(0, 8, count)  # some nodes have one layout
    times[only < 2, only[only < 2]] = math.inf
    tensors = []
    for made in range(count - 1):
        some = rng.choice(np.arange(made + 1, count), size=rng.integers(1, min(4, count - made) + 1), replace=True)
        readers = tuple(sorted({int(each) for each in some}))
        direct = {
            key: float(rng.integers(30)) for key in itertools.product(readers, (False, True)) if rng.random() < 0.4
        }
        tensors.append(Tensor(made, readers, float(rng.integers(0, 40)), direct))
    return times.tolist(), tensors


def test_no_assignment_is_faster():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        times, tensors = draw(rng, int(rng.integers(2, 8)))
        best = min(total(times, tensors, last) for last in itertools.product((False, True), repeat=len(times)))
        assert total(times, tensors, choose(times, tensors)) == pytest.approx(best, abs=1e-9), seed


def test_times_that_grow_after_a_choice_are_those_of_a_new_one():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        times, tensors = draw(rng, int(rng.integers(2, 9)))
        choice = Choice(times, [replace(each, direct=dict.fromkeys(each.direct, 0.0)) for each in tensors])
        choice.last()
        for number, each in enumerate(tensors):
            for (reader, last), more in each.direct.items():
                choice.slow(number, reader, last, more)
            choice.last()
        assert choice.last() == choose(times, tensors), seed


def test_long_chains_are_cut_at_once():
    count = 1200
    times = [(0.0, math.inf), *[(2.0, 1.0)] * count, (0.0, math.inf)]
    tensors = [Tensor(each, (each + 1,), 200.0) for each in range(count + 1)]
    assert sum(choose(times, tensors)) == count
