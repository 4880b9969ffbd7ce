"""`child` runs a module with this environment's CuPy, or that of the interpreter STANDIN_PYTHON."""

import os
import sys
from functools import partial

import pytest

from .runtime import run_child


@pytest.fixture(scope="session")
def child():
    """child("launched", ...) -> the JSON that the module prints."""
    python = os.environ.get("STANDIN_PYTHON", sys.executable)
    if python == sys.executable:
        pytest.importorskip("cupy")
    return partial(run_child, python=python)
