"""Our functions as operators of PyTorch, with fake kernels."""

from __future__ import annotations


def register() -> None:
    """Make `torch.ops.gensor.*`."""
