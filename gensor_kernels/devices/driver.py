"""Functions of the driver library that CuPy does not offer, and launches with attributes.

A kernel that itself waits for the previous launch may start early, while that one drains: docs/reliability.md explains
why that is safe. Blocks that all wait for one another start together or not at all: another stream's may have taken
their places. CuPy launches without attributes, so that such launches go to the driver library: cuLaunchKernelEx with
CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION or CU_LAUNCH_ATTRIBUTE_COOPERATIVE.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.machine.arch import DEPENDENT_LAUNCH, Arch

from .cupy_internals import Kernel, entry_address

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@cache
def driver_function(name: str) -> Callable[..., int]:
    """Return a function of the driver library that returns a CUresult; OSError or AttributeError if it is missing."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    function = getattr(library, name)
    function.restype = ctypes.c_int
    return function


@cache
def driver_version() -> int:
    """Return the newest CUDA that the driver supports, 1000 * major + 10 * minor; 0 without a driver."""
    version = ctypes.c_int()
    try:
        status = driver_function("cuDriverGetVersion")(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return 0 if status else version.value


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Keep this thread's synchronisations and allocations from invalidating another thread's graph capture, within a
    block.

    See cuThreadExchangeStreamCaptureMode of the CUDA driver API.  Without a driver this does nothing.
    """
    mode = ctypes.c_int(RELAXED)
    try:
        exchange = driver_function("cuThreadExchangeStreamCaptureMode")
    except (OSError, AttributeError):
        yield
        return
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


#: Older drivers have the launch from 11.8 on, but graphs whose edges can stand for it from 12.3 on.
OLDEST_DRIVER = 12030
#: The driver's numbers for blocks that are too many to start together, and for devices where none do (cuda.h).
APART = (720, 801)
#: Values in the driver's enumeration of attributes (cuda.h).
COOPERATIVE, PROGRAMMATIC_STREAM_SERIALIZATION = 2, 6


class ResidencyError(BuildError):
    """The device does not start all blocks of a launch together: other processes or contexts have multiprocessors."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: the value is a union of 64 bytes, aligned to 8, that begins with an int here."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: blocks, threads, bytes of dynamic shared memory, stream, attributes."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class AttributeLaunch:
    """A launch of an entry with an attribute, called like CuPy's launch `by_cupy`, which it stands for.

    `blocks` is the grid, `stream` returns the address of the calling thread's current stream.  The context is current:
    modules are loaded in it.
    """

    def __init__(
        self, by_cupy: Kernel, entry: int, launch: Launch, blocks: int, stream: Callable[[], int], attribute: int
    ):
        self._function, self._stream = by_cupy, stream
        self._entry = ctypes.c_void_p(entry)
        self._launch = driver_function("cuLaunchKernelEx")
        self._attribute = LaunchAttribute(attribute, 0, 1)
        self._config = LaunchConfig(
            (blocks, 1, 1), (launch.block, 1, 1), launch.shared_bytes, None, ctypes.addressof(self._attribute), 1
        )

    def __call__(self, grid: tuple[int], block: tuple[int], given: Any, shared_bytes: int) -> None:
        """Enqueue the launch; if the driver refuses, launch through CuPy, which raises the error."""
        config = LaunchConfig.from_buffer_copy(self._config)  # each thread has its own stream
        config.stream = self._stream()
        if self._launch(ctypes.byref(config), self._entry, given[0].pointers, None):
            self._function(grid, block, given, shared_bytes)


def choose_launch(
    function: Kernel, launch: Launch, arch: Arch | None, stream: Callable[[], int]
) -> Kernel | AttributeLaunch:
    """Return the callable of a launch: an AttributeLaunch where driver and part support it, else CuPy's `function`."""
    if launch.together and not launch.per_sm:

        def cooperative(grid: tuple[int], block: tuple[int], given: Any, shared_bytes: int) -> None:
            try:
                function(grid, block, given, shared_bytes, None, True)
            except Exception as error:
                # CuPy itself raises a ValueError where it counts fewer places than blocks.
                if isinstance(error, ValueError) or getattr(error, "status", 0) in APART:
                    raise ResidencyError(f"the {launch.grid} blocks of {launch.entry} do not start together") from error
                raise

        return _attributed(cooperative, function, launch, launch.grid, stream, COOPERATIVE)
    if (
        arch is None
        or DEPENDENT_LAUNCH not in arch.features
        or not launch.dependent
        or driver_version() < OLDEST_DRIVER
    ):
        return function
    return _attributed(function, function, launch, launch.blocks(arch.sms), stream, PROGRAMMATIC_STREAM_SERIALIZATION)


def _attributed(
    by_cupy: Kernel, function: Kernel, launch: Launch, blocks: int, stream: Callable[[], int], attribute: int
) -> Kernel | AttributeLaunch:
    try:
        return AttributeLaunch(by_cupy, entry_address(function), launch, blocks, stream, attribute)
    except (OSError, AttributeError):  # the function is missing, contrary to the driver's version
        return by_cupy
