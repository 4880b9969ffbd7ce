"""Programmatic dependent launches: a kernel that waits for the launch in front itself starts while that one drains.

CuPy launches without attributes, so such a launch goes to the driver library: cuLaunchKernelEx, with
CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. Why that is safe is said in docs/reliability.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.core.family import Launch

from .cupy_internals import entry_address
from .driver import driver_function, driver_version

#: Of Arch.features.
FEATURE = "dependent_launch"
#: Older drivers have the launch from 11.8 on, but graphs whose edges can stand for it from 12.3 on.
OLDEST_DRIVER = 12030
#: Of the driver's enumeration of attributes (cuda.h).
PROGRAMMATIC_STREAM_SERIALIZATION = 6


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


class DependentLaunch:
    """Is called as CuPy's function of the launch, `function`, but does not wait for the launch in front.

    `blocks` is its grid, `stream` gives the address of the calling thread's current stream. The context is current: the
    launch in front has just been made in it.
    """

    def __init__(self, function: Any, launch: Launch, blocks: int, stream: Callable[[], int]):
        self._function, self._stream = function, stream
        self._entry = ctypes.c_void_p(entry_address(function))
        self._launch = driver_function("cuLaunchKernelEx")
        self._attribute = LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
        self._config = LaunchConfig(
            (blocks, 1, 1), (launch.block, 1, 1), launch.shared_bytes, None, ctypes.addressof(self._attribute), 1
        )

    def __call__(self, grid: tuple[int], block: tuple[int], given: Any, shared_bytes: int) -> None:
        """Enqueues it; where the driver refuses, as CuPy does, which raises what is wrong."""
        config = LaunchConfig.from_buffer_copy(self._config)  # threads have streams of their own
        config.stream = self._stream()
        if self._launch(ctypes.byref(config), self._entry, given[0].pointers, None):
            self._function(grid, block, given, shared_bytes)


def started(function: Any, launch: Launch, arch: Arch | None, stream: Callable[[], int]) -> Any:
    """What to call for a launch: `function`, CuPy's, or that which need not wait for the launch in front."""
    if arch is None or FEATURE not in arch.features or not launch.dependent or driver_version() < OLDEST_DRIVER:
        return function
    try:
        return DependentLaunch(function, launch, launch.blocks(arch.sms), stream)
    except (OSError, AttributeError):  # no such function, whatever the driver says of its version
        return function
