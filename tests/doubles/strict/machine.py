"""Puts a System under the package: the driver library, and CuPy as the package imports it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import cupy
import numpy as np

from gensor_kernels.devices import cuda, driver
from gensor_kernels.families.core.params import SIZE

from .arrays import Library, compute
from .capture import GLOBAL
from .context import Context, digest
from .library import NAMES, library
from .pool import Pool
from .stream_objects import CapturedGraph
from .surface import Surface
from .system import System


class Machine:
    """A System, its CuPy, and its devices, which are the package's own CudaDevices."""

    def __init__(self, system: System, surface: type[Surface] = Library):
        self.system, self.cupy, self.library = system, surface(system), library(system)

    @property
    def context(self) -> Context:
        return self.system.context()

    @property
    def pool(self) -> Pool:
        return self.cupy.cuda.pool

    @property
    def calls(self) -> list[tuple[str, tuple[int], tuple[int], int, bytes]]:
        """Launches so far: (kernel, grid, block, dynamic shared memory, Params)."""
        return [
            (each.function.name, each.grid[:1], each.block[:1], each.shared_bytes, each.parameters[:SIZE])
            for each in self.context.launches
        ]

    def device(self, number: int = 0) -> cuda.CudaDevice:
        return cuda.CudaDevice(number)

    def executes(self, cubin: bytes, executor: Callable[..., None]) -> None:
        """Let an executor run the launches of a cubin: `partial(emulated, source, target)`."""
        for each in self.system.contexts:
            each.executors[digest(cubin)] = executor

    def lacks(self, *names: str) -> None:
        self.library = library(self.system, names)
        forget_driver()

    def capture(self, call: Callable[[], Any], stream: Any = None, mode: int = GLOBAL) -> tuple[Any, CapturedGraph]:
        """Return (result of a call, the graph that it was captured into), in the mode that forbids most."""
        with stream or self.cupy.cuda.Stream() as own:
            own.begin_capture(mode)
            try:
                result = call()
            finally:
                graph = own.end_capture()
        return result, graph

    def synchronize(self) -> None:
        self.cupy.cuda.Stream.null.synchronize()


@contextmanager
def without_races(patch: Any, *parts: str) -> Iterator[Machine]:
    """These GPUs, whose kernels are predicted, never race and are not compared: times and results are no GPU's."""
    patch.setenv("GENSOR_COMPARE", "0")
    patch.setenv("GENSOR_TUNE", "predicted")
    patch.setenv("GENSOR_DETERMINISTIC", "1")
    with installed(parts or ("h200",)) as machine:
        yield machine


def forget_driver() -> None:
    for each in (driver.driver_function, driver.driver_version):
        each.cache_clear()


def erfc(values: Any) -> Any:
    return compute("erfc", lambda x: np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype), values)


@contextmanager
def installed(
    parts: Sequence[str] = ("h200",), version: int = 13000, surface: type[Surface] = Library
) -> Iterator[Machine]:
    """Within it, the process has these GPUs, and the package's CuPy is over them.

    Its functions are NumPy's, as operations of streams, or with a plain `Surface` CuPy's own, which have no GPU.
    """
    machine, load, before = Machine(System(parts, version), surface), ctypes.CDLL, cupy.cuda.get_allocator()

    def opened(name: Any, *rest: Any, **keywords: Any) -> Any:
        return machine.library if name in NAMES else load(name, *rest, **keywords)

    with ExitStack() as patched:
        patched.enter_context(mock.patch.object(ctypes, "CDLL", opened))
        patched.enter_context(mock.patch.object(cuda, "import_cupy", lambda: machine.cupy))
        if surface is Library:
            patched.enter_context(mock.patch("cupyx.scipy.special.erfc", erfc))
        forget_driver()
        cupy.cuda.set_allocator(machine.pool)
        try:
            yield machine
        finally:
            cupy.cuda.set_allocator(before)
            forget_driver()
    assert not machine.system.undefined, machine.system.undefined
