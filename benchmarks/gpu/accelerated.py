"""A pytest plugin: every test runs inside `accelerate`, and the counters of its calls are written at the end.

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
    """Route CuPy's functions to ours while the test runs."""
    with gensor_kernels.accelerate():
        yield


def pytest_sessionfinish() -> None:
    """Write the counters: a pass proves nothing about tests without a call that a kernel served."""
    path = os.environ.get("GENSOR_SUITE_COUNTERS")
    if path:
        Path(path).write_text(json.dumps(gensor_kernels.counters()), encoding="utf-8")
