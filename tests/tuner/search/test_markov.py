"""The Markov chain: its transition matrix on a small space, sampling, the schedule, and its memo."""

import numpy as np
import pytest

from gensor_tuner.search.graph import Graph
from gensor_tuner.search.markov import COLD, SHARED_HOT, Chains, Schedule, choose, probabilities, transition_matrix
from gensor_tuner.search.region import NOWHERE, TIE, Region

from .synthetic import ToySpace


@pytest.fixture(scope="module")
def small():
    """A space of some 1,100 points, its sorted codes, and its graph."""
    graph = Graph(ToySpace(shared=8_000))
    return graph, np.sort(graph.encode(graph.space.all_legal()))


def test_matrix_rows_are_the_stated_probabilities(small):
    graph, codes = small
    tau = 0.3
    matrix = transition_matrix(graph, codes, tau)
    assert np.allclose(matrix.sum(axis=1), 1)
    at = codes.size // 2
    point = graph.decode(codes[[at]])
    targets, found = graph.neighbours(point)
    phi = graph.space.potential(np.concatenate([point, targets[0, found[0]]]))
    weight = (phi[0] / phi) ** (1 / tau)
    expected = np.zeros(codes.size)
    np.add.at(expected, np.searchsorted(codes, graph.encode(targets[0, found[0]])), weight[1:])
    expected[at] += weight[0]
    assert np.allclose(matrix[at], expected / weight.sum())


def test_irreducible_and_aperiodic_at_fixed_tau(small):
    graph, codes = small
    assert 300 < codes.size < 3000
    for tau in (0.05, 1.0):
        matrix = transition_matrix(graph, codes, tau)
        assert (np.diag(matrix) > 0).all()
        reach = (matrix > 0).astype(np.float32)
        for _ in range(7):  # a positive power, here the 128th: from everywhere to everywhere in 128 steps
            reach = (reach @ reach > 0).astype(np.float32)
        assert reach.all()


def test_chains_follow_the_transition_matrix(small):
    graph, codes = small
    region = Region(graph)
    tau, at, draws = 0.5, codes.size // 3, 40_000
    here = region.add(graph.decode(codes[[at]]))
    region.expand(here)
    edges = region.edges[region.row[here]]
    weights = probabilities(np.repeat(region.log_phi[edges], draws, axis=0), np.full(draws, 1 / tau, np.float32))
    column = choose(weights, np.random.default_rng(0).random(draws, dtype=np.float32))
    landed = region.table.codes[edges[0, column]]
    assert NOWHERE not in edges[0, column]
    seen = np.bincount(np.searchsorted(codes, landed), minlength=codes.size) / draws
    expected = transition_matrix(graph, codes, tau)[at]
    assert np.abs(seen - expected).max() < 4 * np.sqrt(0.25 / draws)


def test_a_chain_rests_at_a_local_minimum(small):
    graph, _ = small
    region = Region(graph)
    plan = Schedule(chains=8, steps=300, hot=0.05, cycle=300)
    chains = Chains(region, np.repeat(region.add(graph.space.start()[None]), 8), plan, np.random.default_rng(3))
    assert chains.run() == 8 * 300
    around = region.log_phi[region.edges[region.row[chains.at]]]
    assert (around[:, 0] <= around.min(axis=1)).all()


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
