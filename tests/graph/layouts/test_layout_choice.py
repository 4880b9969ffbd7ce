"""The choice of layouts: the minimum cut compared with every assignment of small graphs."""

import itertools
import math

import numpy as np
import pytest

from gensor_kernels.graph.layouts.choice import Tensor, choose, total


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


@pytest.mark.parametrize(
    ("times", "tensors", "chosen"),
    [
        # three readers gain 4 each: one conversion of 10 pays, three would not
        ([(0.0, math.inf), *[(4.0, 0.0)] * 3], [Tensor(0, (1, 2, 3), 10.0)], [False, True, True, True]),
        ([(0.0, math.inf), *[(4.0, 0.0)] * 3], [Tensor(0, (each,), 10.0) for each in (1, 2, 3)], [False] * 4),
        # a reader that takes either layout needs no conversion
        ([(0.0, math.inf), (9.0, 3.0)], [Tensor(0, (1,), 10.0, {(1, True): 2.0})], [False, True]),
    ],
)
def test_conversions(times, tensors, chosen):
    assert choose(times, tensors) == chosen
    assert tensors[0].crossing(chosen)[1] == (len(tensors[0].readers) == 3)


def test_long_chains_are_cut_at_once():
    count = 1200
    times = [(0.0, math.inf), *[(2.0, 1.0)] * count, (0.0, math.inf)]
    tensors = [Tensor(each, (each + 1,), 200.0) for each in range(count + 1)]
    assert sum(choose(times, tensors)) == count
