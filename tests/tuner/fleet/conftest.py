"""A test of a cluster that hangs fails: nothing else would end it."""

import signal

import pytest

SECONDS = 300


@pytest.fixture(autouse=True)
def _ended_in_time():
    def late(*_):
        raise TimeoutError(f"this test has run for {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
