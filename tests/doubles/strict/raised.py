"""Errors of the driver's and the runtime's as CuPy raises them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cupy

from .results import Status, raising

DriverError = raising(cupy.cuda.driver.CUDADriverError, "CUDADriverError")
RuntimeError_ = raising(cupy.cuda.runtime.CUDARuntimeError, "CUDARuntimeError")


@contextmanager
def _raises(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except Status as status:
        raise kind(status) from None


OF_DRIVER, OF_RUNTIME = (lambda: _raises(DriverError)), (lambda: _raises(RuntimeError_))
