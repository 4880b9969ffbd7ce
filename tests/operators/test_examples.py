"""Examples in docstrings of modules that other packages use: they run, and print the stated results."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "gensor_database.store",
    "gensor_kernels.machine.arch",
    "gensor_kernels.operators",
    "gensor_kernels.operators.expression.evaluate",
    "gensor_kernels.operators.expression.expression",
    "gensor_kernels.operators.products.matmul",
    "gensor_kernels.operators.types.dtypes",
    "gensor_kernels.operators.types.workload",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(import_module(name))
    assert result.attempted and not result.failed
