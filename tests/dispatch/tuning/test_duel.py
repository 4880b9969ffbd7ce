"""Duels: how seldom noise crowns a kernel that is slower than the library's call, and what they cost; simulated."""

import random
from statistics import mean, median

import pytest

from gensor_database import TIE_BAND, fastest
from gensor_kernels.dispatch.tuning import duel

RACES = 500
NAMES = ["a", "b", "c", "d"]


class Simulated:
    """Races of the library's call against kernels that take these multiples of its time, with noise."""

    def __init__(self, *slower, rounds=9, us=50.0, noise=0.05, seed=0):
        self.true, self.rounds, self.noise = [us, *(us * each for each in slower)], rounds, noise
        self.random, self.spent = random.Random(seed), []

    def draw(self, us, rounds):
        return [us * self.random.gauss(1, self.noise) for _ in range(rounds)]

    def again(self, rank, rounds):
        self.spent[-1] += rounds
        return self.draw(self.true[0], rounds), self.draw(self.true[rank + 1], rounds)

    def winners(self, dueling=True):
        """The times, as multiples of the library's, of the kernels that win; 0 of the library's call."""
        found = []
        for _ in range(RACES):
            self.spent.append(0)
            samples = [self.draw(us, self.rounds) for us in self.true]
            samples = duel.settle(samples, NAMES, self.again) if dueling else samples
            times = dict(enumerate(map(median, samples)))
            _, name = fastest({(rank > 0, ("", *NAMES)[rank]): us for rank, us in times.items()}, TIE_BAND)
            found.append(self.true[("", *NAMES).index(name)] / self.true[0] if name else 0)
        return found


@pytest.mark.parametrize(("rounds", "us", "before"), [(9, 50.0, 0.1), (3, 20_000.0, 0.3)])
def test_slower_kernels_are_seldom_stored(rounds, us, before):
    """At 5 % of noise fewer than 2 % of the stored winners are 3 % slower, however many of the contenders are."""
    slow = dict(rounds=rounds, us=us)
    assert mean(map(bool, Simulated(*[1.03] * 4, **slow).winners(dueling=False))) > before
    assert mean(map(bool, Simulated(*[1.03] * 4, **slow).winners())) < 0.02
    mixed = [
        ratio
        for seed, own in enumerate((0.94, 0.97, 1.0, 1.03))
        for ratio in Simulated(*[own, 1.03, 1.03, 1.06], seed=seed, **slow).winners()
    ]
    stored = [ratio for ratio in mixed if ratio]
    assert mean(ratio >= 1.03 for ratio in stored) < 0.02 and len(stored) > RACES


def test_faster_kernels_still_win():
    assert mean(map(bool, Simulated(0.92, 1.0, 1.0, 1.0).winners())) > 0.95
    assert mean(map(bool, Simulated(0.95, 1.0, 1.0, 1.0, noise=0.01).winners())) > 0.99


@pytest.mark.parametrize(("slower", "noise", "most"), [(0.8, 0.01, 3.01), (0.8, 0.05, 6), (1.3, 0.05, 0)])
def test_what_is_clear_ends_early(slower, noise, most):
    simulated = Simulated(slower, noise=noise)
    simulated.winners()
    assert mean(simulated.spent) <= most and max(simulated.spent) <= duel.MOST_ROUNDS


def test_long_calls_have_few_rounds():
    simulated = Simulated(0.97, rounds=3, us=20_000.0)
    simulated.winners()
    assert max(simulated.spent) == duel.MOST_LONG_ROUNDS


def test_a_kernel_that_cannot_run_alone_is_out():
    samples = duel.settle([[10.0] * 3, [5.0] * 3, [6.0] * 3], NAMES, lambda rank, _: rank and ([10.0] * 3, [7.0] * 3))
    assert samples == [[10.0] * 3, [], [7.0] * 3]
