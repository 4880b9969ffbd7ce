"""A device that takes every call and computes nothing: the calls of a program become known without their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.devices.device import Code, Launcher
from gensor_kernels.families.core.family import Launch

from .device import EmulatorDevice

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class RehearsalDevice(EmulatorDevice):
    """The emulator of an arch, without kernels: every result is zeros, which take no memory until they are written.

    Indices that a program computes from them are valid ones.
    """

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return a new C-contiguous array of zeros."""
        return np.zeros(shape, dtype)

    def workspace(self, nbytes: int, zero: bool) -> tuple[np.ndarray, int]:
        """Return (owner, address) of one byte: nothing is written to it."""
        return super().workspace(1, True)

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Return a Launcher that does nothing."""
        return _skip

    def is_built(self, code: Code) -> bool:
        """Return True: there is nothing to build."""
        return True

    def build(self, codes: Sequence[Code], done: Callable[[int, object], None]) -> None:
        """Report every code as built."""
        for number in range(len(codes)):
            done(number, None)


def _skip(arguments: Any, arrays: Any, steps: Any, workspace: Any) -> None:
    """Launch nothing."""
