"""A pytest plugin: every test runs inside `accelerate`, and what came of its calls is written down at the end.

GENSOR_SUITE_COUNTERS=counters.json python -m pytest -p benchmarks.gpu.accelerated .../test_matmul.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import gensor_kernels


@pytest.fixture(autouse=True)
def accelerated() -> Iterator[None]:
    """CuPy's functions are ours while the test runs."""
    with gensor_kernels.accelerate():
        yield


def pytest_sessionfinish() -> None:
    """Counters, for who asked: tests that no kernel had a part in would prove nothing."""
    path = os.environ.get("GENSOR_SUITE_COUNTERS")
    if path:
        Path(path).write_text(json.dumps(gensor_kernels.counters()), encoding="utf-8")
