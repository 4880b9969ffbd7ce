"""Stored kernels of few classes, so that a run on the emulator builds few libraries."""

import pytest

from tests.doubles.stored import ARCHS, stock_classes


@pytest.fixture(scope="module")
def stored_kernels(request, tmp_path_factory):
    """(path, digest -> (Program, class)) of a database of the CLASSES of a module, by default of all classes."""
    path = tmp_path_factory.mktemp("stocked") / "kernels.db"
    return path, stock_classes(path, getattr(request.module, "CLASSES", ARCHS))


@pytest.fixture
def kernels(no_databases, stored_kernels, monkeypatch):
    """digest -> (Program, class) of the kernels that serve calls."""
    path, written = stored_kernels
    monkeypatch.setenv("GENSOR_DB", str(path))
    return written
