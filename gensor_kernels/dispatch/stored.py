"""From databases to a Library."""

from __future__ import annotations

from ..machine.arch import Arch
from .library import Contents, Library


def library(arch: Arch) -> Library:
    """Everything stored for `arch`."""
    return Library(Contents())
