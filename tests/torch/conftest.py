"""Shared by tests of PyTorch's integration."""

import pytest

from tests.graph.conftest import emulator  # noqa: F401 (a fixture)


@pytest.fixture
def no_gradients(emulator):  # noqa: F811 (the fixture)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with torch.no_grad():
        yield
