"""The Markov chain: transition probabilities on a small space, sampling, and the schedule."""

import numpy as np
import pytest

from gensor_tuner.search.graph import Graph
from gensor_tuner.search.markov import COLD, SHARED_HOT, Chains, Schedule, probabilities
from gensor_tuner.search.region import TIE, Region, plainness

from .synthetic import ToySpace


@pytest.fixture(scope="module")
def small():
    """A space of some 1,100 points, its sorted codes, and its graph."""
    graph = Graph(ToySpace(shared=8_000))
    return graph, np.sort(graph.encode(graph.space.all_legal()))


def expected(graph, codes, at, tau):
    """The probability of each point after one step from point `at`, by the definition."""
    point = graph.decode(codes[[at]])
    targets, found = graph.neighbours(point)
    reached = np.concatenate([point, targets[0, found[0]]])
    log_phi = np.log(graph.space.potential(reached)) - TIE * (
        reached @ plainness(graph.space.coordinates, walking=True)
    )
    weight = np.exp((log_phi[0] - log_phi) / tau)
    return np.bincount(np.searchsorted(codes, graph.encode(reached)), weight / weight.sum(), codes.size)


@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_transitions_are_as_defined_irreducible_and_aperiodic(small, tau):
    graph, codes = small
    region, count = Region(graph), codes.size
    assert 300 < count < 3000
    ids = region.add(graph.decode(codes))
    region.expand(ids)
    edges = region.edges[region.row[ids]]
    weights = probabilities(region.log_phi[edges], np.full(count, 1 / tau, np.float32))
    row, column = np.nonzero(weights)
    matrix = np.zeros((count, count))
    np.add.at(matrix, (row, np.searchsorted(codes, region.table.codes[edges[row, column]])), weights[row, column])
    matrix /= matrix.sum(axis=1, keepdims=True)
    for at in (0, count // 2, count - 1):
        np.testing.assert_allclose(matrix[at], expected(graph, codes, at, tau), rtol=1e-4, atol=1e-6)
    assert (np.diag(matrix) > 0).all()
    reach = (matrix > 0).astype(np.float32)
    for _ in range(7):  # a positive power, here the 128th: from everywhere to everywhere in 128 steps
        reach = (reach @ reach > 0).astype(np.float32)
    assert reach.all()


def test_chains_step_with_these_probabilities(small):
    graph, codes = small
    region, at, count = Region(graph), codes.size // 3, 40_000
    starts = np.repeat(region.add(graph.decode(codes[[at]])), count)
    plan = Schedule(chains=count, steps=1, hot=SHARED_HOT, cycle=2)
    chains = Chains(region, starts, plan, np.random.default_rng(0))
    assert chains.run() == count
    seen = np.bincount(np.searchsorted(codes, region.table.codes[chains.at]), minlength=codes.size) / count
    assert np.abs(seen - expected(graph, codes, at, SHARED_HOT)).max() < 4 * np.sqrt(0.25 / count)


@pytest.mark.parametrize("hot", [0.05, COLD])
def test_chains_that_share_a_start_are_hotter(small, hot):
    graph, _ = small
    region = Region(graph)
    (root,) = region.add(graph.space.start()[None])
    others = region.add(graph.scatter(3, np.random.default_rng(0)))
    plan = Schedule(chains=8, steps=10, hot=hot, cycle=10)
    chains = Chains(region, np.array([root, *others, root, root], np.int32), plan, np.random.default_rng(0))
    first = np.array([row[0] for row in chains._inverse_tau])[chains._shared]
    # One chain of each start has the usual temperature, and so have chains for which no start is left.
    np.testing.assert_allclose(1 / first, [hot] * 4 + [SHARED_HOT] * 2 + [hot] * 2, rtol=1e-5)
    own, shared = plan.inverse_taus(), plan.inverse_taus(SHARED_HOT)
    assert (shared <= own).all()
    np.testing.assert_allclose(1 / np.array([own[-1], shared[-1]]), COLD, rtol=1e-5)


def test_equal_predictions_are_decided_by_plainness():
    space = ToySpace()
    plain = space.potential
    space.potential = lambda points: np.ones(len(plain(points)))
    region = Region(Graph(space))
    chains = Chains(region, region.add(space.start()[None]), Schedule(4, 400, 0.05, 400), np.random.default_rng(0))
    chains.run()
    final = region.points(chains.at)
    names = [c.name for c in space.coordinates]
    assert (final[:, 0] == 2).all()
    for name in ("vthread_m", "stages", "split"):
        assert (final[:, names.index(name)] == 0).all(), name
    assert 0 < TIE * sum(len(c.values) for c in space.coordinates) < 0.01
