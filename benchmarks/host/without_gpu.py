"""A CUDA device without a driver: real `cupy.ndarray` objects at made-up addresses, and launches that do nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from unittest import mock

import cupy

from gensor_kernels.devices import cuda
from gensor_kernels.devices.device import Code, Launcher, launcher
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload

ARCH = lookup("h200")
#: The first made-up address.
LOWEST = 0x7F0000000000


class StubDevice(cuda.CudaDevice):
    """A CudaDevice that asks no driver what it is, and whose kernels do nothing when they are launched."""

    def __init__(self, several: bool = False) -> None:
        self.xp = self.cupy = cupy
        self.arch, self.unsupported, self.number = ARCH, "", 0
        self._prepare(several)

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Return a Launcher of functions that do nothing."""
        return launcher([(_function, each) for each in launches])

    def capturing(self) -> bool:
        """Return False at once: the time of this call counts."""
        return False


def _function(grid: object, block: object, arguments: object, shared: object) -> None:
    """Stands in for cupy.cuda.Function."""


def starter_kernels(workload: Workload, split_k: int = 1) -> Iterator[library.Kernel]:
    """Yield the kernels of every family's default Programs for a workload; with a split they need a workspace."""
    for space in Space(workload, ARCH).families:
        for program in space.family.starters(workload, ARCH):
            split = {"split_k": split_k} if "split_k" in program.by_name else {}
            yield library.generate(program.replace(**split), workload, ARCH)


@contextmanager
def fake_allocator() -> Iterator[None]:
    """Within it, CuPy's allocator hands out addresses that are never read."""
    following, before = itertools.count(LOWEST, 2**24), cupy.cuda.get_allocator()
    memory = cupy.cuda.UnownedMemory

    def allocate(size: int) -> cupy.cuda.MemoryPointer:
        return cupy.cuda.MemoryPointer(memory(next(following), max(size, 1), None, 0), 0)

    cupy.cuda.set_allocator(allocate)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(before)


@contextmanager
def stub_runtime(
    stored: Iterable[library.Kernel], portfolio: Iterable[str] = (), several: bool = False
) -> Iterator[Runtime]:
    """Within it, public calls on CuPy arrays use a Runtime of the stub that holds the `stored` kernels.

    As on a machine with one GPU, without a query of the current device, or with `several`.
    """
    contents = library.Contents({kernel.digest: kernel for kernel in stored}, portfolio=frozenset(portfolio))
    found = library.Library(contents)
    with (
        mock.patch.dict(os.environ, GENSOR_TUNE="predicted", GENSOR_COMPARE="0"),
        mock.patch.object(cuda, "current_device", lambda: int),  # the number 0, by a function that is not Python's
        mock.patch.object(cuda, "CudaDevice", lambda number: StubDevice(several)),
        mock.patch.object(load, "library", lambda arch: found),
        mock.patch.object(current, "inside", ContextVar("benchmark", default=None)),
        mock.patch.multiple(current, only=None, lookup=current._cuda, _has_blocks=False, _runtimes={}),
    ):
        yield current.current_runtime()
