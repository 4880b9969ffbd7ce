"""Memory and streams of other libraries, for CuPy. Borrowed memory keeps its owner alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .cupy_internals import stream
from .device import reach


def array(
    cupy: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, owner: Any, number: int
) -> Any:
    """Return the CuPy array of memory at `address` (of its first element) on device `number`; strides in bytes."""
    dtype = np.dtype(dtype)
    before, size = reach(shape, strides, dtype.itemsize)
    memory = cupy.cuda.UnownedMemory(address - before, max(size, 1), owner, number)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, before), strides)


@contextmanager
def running_on(cupy: Any, address: int, number: int, mixed: bool) -> Iterator[None]:
    """Make device `number` and the stream at `address` CuPy's current ones within a block.

    With `mixed`, CuPy's own arrays take part: the stream first waits for CuPy's stream, which then waits for it.
    """
    with cupy.cuda.Device(number):
        own, theirs = cupy.cuda.get_current_stream(), stream(cupy, address)
        if own.ptr == theirs.ptr:
            yield
            return
        if mixed:
            theirs.wait_event(own.record())
        with theirs:
            yield
        if mixed:
            own.wait_event(theirs.record())


def wait_for(cupy: Any, address: int) -> None:
    """Make the current stream wait for all work enqueued so far on the stream at `address`."""
    current, other = cupy.cuda.get_current_stream(), stream(cupy, address)
    if current.ptr != other.ptr:
        current.wait_event(other.record())
