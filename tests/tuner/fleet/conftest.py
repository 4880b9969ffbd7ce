"""A test of a cluster that hangs fails: nothing else would end it."""

import signal

import pytest

from tests.doubles import fleet

SECONDS = 300


@pytest.fixture(scope="module")
def stubs():
    """Stub tasks can be requested."""
    with fleet.known():
        yield


@pytest.fixture(scope="session", autouse=True)
def _patient_clients():
    """On a busy machine the first worker takes longer to start than a user would wait."""
    from gensor_tuner.fleet import cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "CONNECT_SECONDS", 90.0)
        patch.setattr(cluster, "FIRST_SECONDS", 90.0)
        yield


@pytest.fixture(autouse=True)
def _ended_in_time():
    def late(*_):
        raise TimeoutError(f"this test has run for {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
