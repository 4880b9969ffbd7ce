"""Puts a System under the package: the driver library, and CuPy as the package imports it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
import pytest

from gensor_kernels.devices import cuda, driver

from .arrays import Library
from .context import Context, digest
from .library import NAMES, library
from .system import System


class Machine:
    """A System, its CuPy, and its devices, which are the package's own CudaDevices."""

    def __init__(self, system: System):
        self.system, self.cupy = system, Library(system)

    @property
    def context(self) -> Context:
        """The current device's context."""
        return self.system.context()

    def device(self, number: int = 0) -> cuda.CudaDevice:
        """Return a new CudaDevice."""
        return cuda.CudaDevice(number)

    def compiled_from(self, cubin: bytes, source: str) -> None:
        """Tell of which text a cubin was compiled: its launches are executed."""
        for each in self.system.contexts:
            each.sources[digest(cubin)] = source

    def release(self) -> None:
        """Give up what the machine holds; raises what a driver would not have noticed."""
        assert not self.system.undefined, self.system.undefined


@contextmanager
def installed(patch: pytest.MonkeyPatch, parts: Sequence[str] = ("h200",), version: int = 13000) -> Iterator[Machine]:
    """Within it, the process has these GPUs, and the package's CuPy is over them."""
    machine = Machine(System(parts, version))
    load = ctypes.CDLL
    before = cupy.cuda.get_allocator()

    def opened(name: Any, *rest: Any, **keywords: Any) -> Any:
        return library(machine.system) if name in NAMES else load(name, *rest, **keywords)

    patch.setattr(ctypes, "CDLL", opened)
    patch.setattr(cuda, "import_cupy", lambda: machine.cupy)
    for each in (driver.driver_function, driver.driver_version):
        each.cache_clear()
    cupy.cuda.set_allocator(machine.cupy.cuda.pool)
    try:
        yield machine
    finally:
        cupy.cuda.set_allocator(before)
        for each in (driver.driver_function, driver.driver_version):
            each.cache_clear()
        machine.release()
