"""Examples in docstrings of the tuner run unchanged."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["run.progress", "shapes.reader", "store.uses"])
def test_examples_run(module):
    found = doctest.testmod(import_module(f"gensor_tuner.{module}"))
    assert found.attempted and not found.failed
