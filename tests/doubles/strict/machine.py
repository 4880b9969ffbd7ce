"""Puts a System under the package: the driver library, and CuPy as the package imports it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np
import pytest

from gensor_kernels.devices import cuda, driver
from gensor_kernels.programs.core.params import SIZE

from .arrays import Library, computed
from .capture import GLOBAL
from .context import Context, digest
from .library import NAMES, library
from .surface import CapturedGraph, Pool
from .system import System


class Machine:
    """A System, its CuPy, and its devices, which are the package's own CudaDevices."""

    def __init__(self, system: System):
        self.system, self.cupy, self.library = system, Library(system), library(system)

    @property
    def context(self) -> Context:
        """The current device's context."""
        return self.system.context()

    @property
    def pool(self) -> Pool:
        """The allocator of CuPy's arrays."""
        return self.cupy.cuda.pool

    @property
    def calls(self) -> list[tuple[str, tuple[int], tuple[int], int, bytes]]:
        """Launches so far: (kernel, grid, block, dynamic shared memory, Params)."""
        return [
            (each.function.name, each.grid[:1], each.block[:1], each.shared_bytes, each.parameters[:SIZE])
            for each in self.context.launches
        ]

    def device(self, number: int = 0) -> cuda.CudaDevice:
        """Return a new CudaDevice."""
        return cuda.CudaDevice(number)

    def compiled_from(self, cubin: bytes, source: str) -> None:
        """Tell of which text a cubin was compiled: its launches are executed."""
        for each in self.system.contexts:
            each.sources[digest(cubin)] = source

    def lacks(self, *names: str) -> None:
        """Take functions away from the driver library."""
        self.library = library(self.system, names)
        forget_driver()

    def captured(self, call: Callable[[], Any], stream: Any = None, mode: int = GLOBAL) -> tuple[Any, CapturedGraph]:
        """Return (result of a call, the graph that it was captured into), in the mode that forbids most."""
        with stream or self.cupy.cuda.Stream() as own:
            own.begin_capture(mode)
            try:
                result = call()
            finally:
                graph = own.end_capture()
        return result, graph

    def synchronize(self) -> None:
        """Wait for every stream of the current device."""
        self.cupy.cuda.Stream.null.synchronize()

    def release(self) -> None:
        """Give up what the machine holds; raises what a driver would not have noticed."""
        assert not self.system.undefined, self.system.undefined


def forget_driver() -> None:
    """Let the package look for the driver library again."""
    for each in (driver.driver_function, driver.driver_version):
        each.cache_clear()


def erfc(values: Any) -> Any:
    """See cupyx.scipy.special.erfc."""
    return computed("erfc", lambda x: np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype), values)


@contextmanager
def installed(patch: pytest.MonkeyPatch, parts: Sequence[str] = ("h200",), version: int = 13000) -> Iterator[Machine]:
    """Within it, the process has these GPUs, and the package's CuPy is over them."""
    machine, load, before = Machine(System(parts, version)), ctypes.CDLL, cupy.cuda.get_allocator()

    def opened(name: Any, *rest: Any, **keywords: Any) -> Any:
        return machine.library if name in NAMES else load(name, *rest, **keywords)

    patch.setattr(ctypes, "CDLL", opened)
    patch.setattr(cuda, "import_cupy", lambda: machine.cupy)
    patch.setattr("cupyx.scipy.special.erfc", erfc)
    forget_driver()
    cupy.cuda.set_allocator(machine.pool)
    try:
        yield machine
    finally:
        cupy.cuda.set_allocator(before)
        patch.setattr(ctypes, "CDLL", load)
        forget_driver()
        machine.release()
