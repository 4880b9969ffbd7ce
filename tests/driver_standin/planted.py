"""Bugs of the host path, planted one at a time: each reaches the driver, which refuses it or is passed other bytes."""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from gensor_kernels.devices import cuda, cupy_internals, driver, tensor_maps

Bug = Callable[[], AbstractContextManager]
_argument_type, _encode, _mapped = cupy_internals.argument_type, tensor_maps.encode, tensor_maps.Mapped


def _passed_by(place: Callable[[int], int]) -> AbstractContextManager:
    """Pass an argument at the place that follows from its address."""

    def argument_type(cupy):
        made = _argument_type(cupy)
        return lambda address: made(place(address))

    return patch.object(cupy_internals, "argument_type", argument_type)


def _cpointer() -> AbstractContextManager:
    """Pass `CPointer(address)`, as the package once did: in CuPy 13 it holds the address of the Python integer."""

    def argument_type(cupy):
        class Argument(cupy.cuda.function.CPointer):
            __slots__ = ("pointers",)

            def __init__(self, address):
                super().__init__(address)
                self.pointers = (ctypes.c_void_p * 1)(address)

        return Argument

    return patch.object(cupy_internals, "argument_type", argument_type)


def _maps(change: Callable) -> AbstractContextManager:
    return patch.object(cuda, "Mapped", lambda maps, handle: _mapped(change(maps), handle))


def _encoded(change: Callable) -> AbstractContextManager:
    return patch.object(_mapped.__init__, "__defaults__", (lambda wanted: change(_encode(wanted)),))


class _OtherConfig(driver.LaunchConfig):
    """A configuration with blocks and threads in each other's place."""

    def __init__(self, grid, block, *rest):
        super().__init__(block, grid, *rest)


#: the Form in which bugs are planted: it has tensor maps, much shared memory, and dependent launches
FORM = "floats_wgmma: parts, split"
#: a bug with CuPy 13 alone
HISTORICAL = "CPointer of the address"
ARGUMENTS: dict[str, Bug] = {
    HISTORICAL: _cpointer,
    "the address of the integer": lambda: _passed_by(id),
    "an address behind the first field": lambda: _passed_by(lambda address: address + 8),
}
BUGS = {
    **ARGUMENTS,
    "maps 64 bytes further": lambda: patch.object(tensor_maps, "MAPS_OFFSET", tensor_maps.MAPS_OFFSET + 64),
    "maps in reverse": lambda: _maps(lambda maps: maps[::-1]),
    "the first map twice": lambda: _maps(lambda maps: maps[:1] * len(maps)),
    "a map without its last byte of an extent": lambda: _encoded(lambda map: map[:40] + bytes(8) + map[48:]),
    "a swizzle of 64 bytes": lambda: patch.object(tensor_maps, "_SWIZZLE_128", 2),
    "shared memory that is not asked for": lambda: patch.object(cuda, "allow_shared_bytes", lambda *given: None),
    "another attribute": lambda: patch.object(driver, "PROGRAMMATIC_STREAM_SERIALIZATION", 4),
    "a launch that is not dependent": lambda: patch.object(driver, "OLDEST_DRIVER", 99999),
    "blocks for threads": lambda: patch.object(driver, "LaunchConfig", _OtherConfig),
}
