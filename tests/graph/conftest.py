"""Shared by tests of graphs."""

import secrets
import shutil

import pytest

import gensor_kernels
from gensor_kernels import config
from gensor_kernels.graph import conditions


@pytest.fixture
def emulator():
    with gensor_kernels.emulated("sm_87"):
        yield


@pytest.fixture
def cache(monkeypatch):
    """The folder of kept plans and times, which is empty."""
    monkeypatch.setenv("GENSOR_PLANS", "1")
    monkeypatch.setattr(conditions, "FOLDER", f"plans-{secrets.token_hex(8)}")
    folder = config.cache_dir() / conditions.FOLDER
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
