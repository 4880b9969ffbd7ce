"""Constants and memory that the plans of a model share on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_kernels.graph.ir.derived import Derived

from .bound import Arenas


class Weights:
    """Constants of a model on one device: plans of several signatures share equal ones."""

    def __init__(self) -> None:
        #: Arrays by dtype, shape, strides and first elements.
        self._arrays: dict[tuple[Any, ...], list[np.ndarray]] = {}
        #: Copies on the device, by the identity of the NumPy array.
        self.placed: dict[int, tuple[np.ndarray, Any]] = {}
        #: Arrays that rules and layouts computed from the file's constants.
        self.derived = Derived()
        self.arenas = Arenas()

    def shared(self, value: np.ndarray) -> np.ndarray:
        """Return the first array that was equal to this one."""
        if value.dtype == object:  # text
            return value
        candidates = self._arrays.setdefault(
            (value.dtype.name, value.shape, value.strides, value.flat[:16].tobytes()), []
        )
        for each in candidates:
            if each is value or np.array_equal(_bytes(each), _bytes(value)):
                return each
        candidates.append(value)
        return value


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
