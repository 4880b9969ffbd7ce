"""Shared by tests of graphs."""

import pytest

import gensor_kernels


@pytest.fixture
def emulator():
    with gensor_kernels.emulated("sm_87"):
        yield
