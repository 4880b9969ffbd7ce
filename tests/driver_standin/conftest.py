"""`child` runs a module over the stand-in, with this environment's CuPy or that of STANDIN_PYTHON, an interpreter."""

import importlib.util
import os
import sys
from functools import partial

import pytest

from .library import child as run_child


@pytest.fixture(scope="session")
def standin():
    """Return the path of the stand-in; skip where there is no g++."""
    from gensor_kernels.errors import ToolMissingError

    from .library import built

    try:
        return built()
    except ToolMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def child(standin, tmp_path_factory):
    """child("launched", ...) -> what the module prints."""
    python = os.environ.get("STANDIN_PYTHON", sys.executable)
    if python == sys.executable and importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    return partial(run_child, tmp_path_factory.mktemp("standin"), python=python)
