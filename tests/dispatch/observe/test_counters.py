"""The counters, and hits where they are enabled."""

import logging

import pytest

import gensor_kernels
from gensor_kernels.dispatch.observe import counters
from tests.doubles.kernels import aligned, raced
from tests.threads import in_threads


@pytest.fixture
def counted():
    """A function that returns the increments since the start of the test."""
    before = gensor_kernels.counters()

    def moved():
        now = gensor_kernels.counters()
        hits = {tier: n - (before["hits"] or {}).get(tier, 0) for tier, n in (now["hits"] or {}).items()}
        return {name: now[name] - before[name] for name in ("misses", "races", "tunes", "fallbacks")} | {"hits": hits}

    return moved


pytestmark = pytest.mark.usefixtures("user_database")


def test_misses_races_and_fallbacks(counted):
    a, made = aligned((64, 64)), raced()
    for _ in range(5):
        made.call(a, a, None, (), None, None)
    # The first call was the library's, before the second one was raced.
    assert counted() == {"misses": 1, "races": 1, "tunes": 0, "fallbacks": 1, "hits": counted()["hits"]}
    slower = raced(ours=50.0)
    for _ in range(5):
        slower.contract("ij,jk->ik", a, a)
    assert counted()["misses"] == 2 and counted()["fallbacks"] == 6


def test_hits_are_counted_where_they_are_enabled(counted, monkeypatch):
    monkeypatch.setenv("GENSOR_COUNT_HITS", "1")
    a, made = aligned((64, 64)), raced()
    for _ in range(5):
        made.call(a, a, None, (), None, None)
    assert counted()["hits"][1] == 3  # the second found the Plan of the library's, the first none
    assert gensor_kernels.counters()["kinds"][1] >= 1


def test_threads_lose_no_counts():
    counter = counters.Tally()
    in_threads(lambda _: [counter.add() for _ in range(2000)], range(8))
    assert counter.value() == 16000


def test_the_log_line(caplog):
    counters.misses.add()
    with caplog.at_level(logging.INFO, logger="gensor_kernels"):
        counters._log()
    assert "counters: {'hits': " in caplog.text and "'fallbacks': " in caplog.text
