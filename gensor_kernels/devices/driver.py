"""Functions of the driver library that CuPy does not offer."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

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
