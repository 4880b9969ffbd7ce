"""Constants of a model, and their copies on a device that plans share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.devices.device import reach
from gensor_kernels.graph.ir.graph import Derived, owner_of
from gensor_kernels.graph.lowerings.base import upload

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import DeviceArray


class Weights:
    """Constants of a model, and their copies on one device."""

    def __init__(self) -> None:
        #: Arrays by dtype, shape, strides and first elements.
        self._arrays: dict[tuple[object, ...], list[np.ndarray]] = {}
        #: The same arrays by identity, and by that of the owner of their memory.
        self._all: dict[int, np.ndarray] = {}
        self._by_owner: dict[int, list[np.ndarray]] = {}
        #: Copies on the device, by the identity of the NumPy array.
        self.placed: dict[int, DeviceArray] = {}
        #: Arrays that rules and layouts computed from the file's constants.
        self.derived = Derived()

    def share(self, value: np.ndarray) -> np.ndarray:
        """Return the first array that was equal to this one: plans of several signatures share it."""
        if value.dtype != object:  # text
            key = value.dtype.name, value.shape, value.strides, value.flat[:16].tobytes()
            alike = self._arrays.setdefault(key, [])
            for each in alike:
                if each is value or np.array_equal(_bytes(each), _bytes(value)):
                    return each
            alike.append(value)
        self._all[id(value)] = value
        self._by_owner.setdefault(id(owner_of(value)), []).append(value)
        return value

    def on(self, device: Device, value: np.ndarray) -> DeviceArray:
        """Return a shared array, or a view of one, on the device, or None for any other array."""
        if id(value) in self._all:
            if id(value) not in self.placed:
                self.placed[id(value)] = upload(device, value)
            return self.placed[id(value)]
        at, (before, size) = value.ctypes.data, reach(value.shape, value.strides, value.itemsize)
        for whole in self._by_owner.get(id(owner_of(value)), ()):
            offset = at - whole.ctypes.data
            if (
                reach(whole.shape, whole.strides, whole.itemsize) == (0, whole.nbytes)
                and before <= offset
                and offset - before + size <= whole.nbytes
            ):
                copy = self.on(device, whole)
                shape, strides = tuple(value.shape), tuple(value.strides)
                return device.borrow(device.pointer(copy) + offset, shape, strides, value.dtype, copy, device.number)
        return None


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
