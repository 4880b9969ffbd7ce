"""Rounds of measurements: who is timed, what is undone, when it ends, and that a candidate's failure is a value."""

from types import SimpleNamespace

import numpy as np
import pytest

from gensor_kernels.errors import BuildError
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_tuner.build.pool import Pool
from gensor_tuner.measure import timer as timers
from gensor_tuner.measure.timer import Timed, steady
from gensor_tuner.measure.tournament import BATCH, DEVIATION, QUIET, Calls, Posterior, Rounds, Tournament
from gensor_tuner.search.walk import walk

ARCH = lookup("sm_87")
PROBLEM = workload(512, 512, 512, dtype="float32")


def test_a_clock_that_changes_in_the_middle_is_taken_out():
    true = np.array([1.0, 1.05, 1.2, 3.0])
    clock = np.where(np.arange(15) < 7, 1.0, 1.15)
    samples = true[:, None] * clock
    samples[0, 3] *= 1.4  # an interruption, which would move the first one's median to the other clock
    assert np.median(samples, axis=1).argmin() == 0
    found = np.median(steady(samples), axis=1)
    np.testing.assert_allclose(found / found[0], true, rtol=1e-6)
    np.testing.assert_allclose(steady(samples[:2]), samples[:2])


def test_alike_programs_are_off_alike_and_doubt_grows_with_distance():
    x = np.exp(np.array([[0.0, 0.1, 5.0]], dtype=np.float32))
    posterior = Posterior(np.concatenate([x, x**2]))
    mean, doubt = posterior(np.array([0]), np.array([0.3]))
    assert mean[0] > mean[1] > mean[2] > 0 and doubt[0] < 0.05 < doubt[1] < doubt[2]
    nothing, prior = posterior(np.zeros(0, int), np.zeros(0))
    assert (nothing == 0).all() and prior == pytest.approx(DEVIATION)
    equal = Posterior(np.ones((4, 6), np.float32))(np.array([0, 1]), np.array([0.1, 0.3]))
    assert np.isfinite(equal).all()


def flat(count):
    return np.full(count, 1e-3), np.ones((2, count), np.float32), np.ones(count, bool)


def test_rounds_end_after_two_without_gain_and_time_the_leader_again():
    rounds = Rounds(100)
    first = rounds.next(*flat(100))
    assert len(first) == BATCH
    rounds.add(first, np.linspace(1.0, 2.0, BATCH))
    for number in range(QUIET):
        columns = rounds.next(*flat(100))
        assert columns[0] == first[0] and len(columns) == BATCH + 1
        # Everything takes twice as long now: that is the clock.
        drift = rounds.add(columns, np.array([2.0, *np.linspace(2.2, 3.0, BATCH)]))
        assert drift == pytest.approx(0.5) and rounds.seconds[columns[1]] == pytest.approx(1.1), number
    assert rounds.next(*flat(100)) == []


def test_a_leader_that_fails_when_timed_again_leads_no_longer():
    rounds = Rounds(4)
    rounds.add([0, 1, 2], np.array([1.0, 2.0, 3.0]))
    rounds.fail([0])
    able = np.array([False, True, True, True])
    assert rounds.leader == 1 and rounds.next(*flat(4)[:2], able) == [1, 3]


def test_who_is_promising_comes_first():
    predicted, features, able = flat(40)
    features[0] = np.where(np.arange(40) % 2, 10.0, 1.0)
    features[1] = np.arange(1, 41)
    rounds = Rounds(40)
    columns = rounds.next(predicted, features, np.arange(40) < BATCH)
    rounds.add(columns, np.array([1.4e-3 if column % 2 else 0.7e-3 for column in columns]))
    chosen = rounds.next(predicted, features, able)[1:]
    assert np.mean([column % 2 for column in chosen[:8]]) < 0.2


class Binaries:
    """Compiles everything but what `broken` names."""

    def __init__(self, broken=()):
        self.made, self.broken = set(), broken

    def __contains__(self, each):
        return each.name in self.made

    def __getitem__(self, each):
        return each.name

    def among(self, pool):
        return np.array([each in self for each in pool.candidates], bool)

    def compile(self, pool, columns, spaces):
        for column in columns:
            self.made.add(pool.candidates[column].name)
            if column in self.broken:
                pool.dead[pool.candidates[column].name] = "not compiled: planted"
        return len(columns)

    def code(self, each):
        return each.name


class Timer(timers.Timer):
    """Its own device. Times are those of a table; each round the clock is slower by a tenth."""

    def __init__(self, pool, true, refused=()):
        self.true = {each.name: seconds for each, seconds in zip(pool.candidates, true, strict=True)}
        self.device, self.rounds, self.refused = self, [], [pool.candidates[column].name for column in refused]

    def conditions(self):
        return "{}"

    def load(self, code, launches):
        if code in self.refused:
            raise BuildError("planted")

    def times(self, problem, kernels, vendor=True, before=None):
        slower = 1.1 ** len(self.rounds)
        self.rounds.append([each.name for each, _ in kernels])
        for index in range(len(kernels) + 1):
            before(index)
        timed = [Timed(self.true[each.name] * 1e6 * slower, 1.0, 1.0, 15, 1) for each, _ in kernels]
        theirs = Timed(50.0, 49.0, 51.0, 15, 1) if vendor else None
        return timers.Times(tuple(timed), theirs, "{}", ("",) * len(timed))


@pytest.fixture(scope="module")
def space():
    return Space(PROBLEM, ARCH)


@pytest.fixture
def pool(space):
    made = Pool([PROBLEM])
    made.add(space, [program for program, _ in walk(space, chains=8, steps=60, keep=40).best], siblings=False)
    return made


def contest(space, pool, true, most=100, broken=(), refused=(), rejected=()):
    """(tournament, timer, candidates that it says it tries)."""
    timer, names, tried = Timer(pool, true, refused), [pool.candidates[column].name for column in rejected], []

    def recorded(each, binary, problem):
        return SimpleNamespace(outcome="wrong") if each.name in names else None

    def trying(each, *_):
        tried.append(each)

    found = Tournament([space], Binaries(broken), timer, most, Calls(recorded, trying, lambda *_: None))
    found.binaries.compile(pool, range(6), [space])
    return found, timer, tried


def test_the_fastest_is_found_whatever_the_clock_does(space, pool):
    true = 1e-4 * (1 + np.random.default_rng(0).random(len(pool.candidates)))
    held, timer, tried = contest(space, pool, true)
    measured, picks = held.measured(pool)
    known = np.isfinite(measured[0])
    np.testing.assert_allclose(measured[0][known], true[known])
    assert true[picks[0]] <= 1.01 * true[known].min() and known.sum() > 20
    entrants, vendor = held.contests[0].timed, held.contests[0].vendor
    assert vendor.median_us == 50.0 and len(entrants) == known.sum() == len({each.name for each, *_ in entrants})
    assert all(timed.median_us == pytest.approx(timer.true[each.name] * 1e6) for each, _, timed in entrants)
    assert tried[-1] is None and len(timer.rounds[0]) == 6


def test_no_more_is_compiled_than_may_be_and_where_nothing_runs_nothing_is_picked(space, pool):
    held, timer, _ = contest(space, pool, np.full(len(pool.candidates), 1e-4), most=5)
    held.measured(pool)
    assert len(held.binaries.made) == 6 + 5 and {name for each in timer.rounds for name in each} == held.binaries.made
    everything = range(len(pool.candidates))
    held, timer, _ = contest(space, pool, np.ones(len(everything)), refused=everything)
    assert held.measured(pool)[1].tolist() == [-1] and not timer.rounds


def test_failures_are_values(space, pool):
    true = 1e-4 * np.linspace(1, 2, len(pool.candidates))
    held, *_ = contest(space, pool, true, broken=(7,), refused=(0, 8), rejected=(1, 9))
    measured, picks = held.measured(pool)
    assert not np.isfinite(measured[0][[0, 1, 7, 8, 9]]).any() and picks[0] == 2
    assert len(pool.dead) == 3 and "not loaded: planted" in pool.dead.values()
