"""The device of a rehearsal: the emulator with NumPy in place of a GPU with CuPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gensor_kernels.devices.emulator.device import EmulatorDevice


class RehearsedDevice(EmulatorDevice):
    """Runs kernels on the emulator, and the library's own calls by NumPy."""

    def product(self, a: Any, b: Any, precision: str | None = None, out: Any = None) -> Any:
        """Return numpy.matmul; 16-bit types by way of float32."""
        if a.dtype.itemsize == 2:
            found = np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
        else:
            found = np.matmul(a, b)
        if out is None:
            return found
        out[...] = found
        return out

    def erfc(self, x: Any) -> Any:
        """Return the complementary error function, element-wise."""
        return np.vectorize(math.erfc, otypes=[x.dtype])(x)
