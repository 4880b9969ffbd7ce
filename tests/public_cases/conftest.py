"""Who serves drawn calls, and the record of them."""

import pytest

from .serving import recorded, serving


@pytest.fixture
def served(monkeypatch):
    with serving(monkeypatch) as found:
        yield found


@pytest.fixture
def served_on_hopper(monkeypatch):
    with serving(monkeypatch, "sm_90") as found:
        yield found


@pytest.fixture
def calls_recorded(served, tmp_path):
    with recorded(tmp_path / "calls.csv"):
        yield
