"""Fixtures of public calls."""

import pytest

import gensor_kernels


@pytest.fixture
def user_database(monkeypatch, tmp_path):
    """Set the user's database to a file that does not exist yet."""
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))


@pytest.fixture
def emulated(no_databases):
    with gensor_kernels.emulated("sm_87"):
        yield
