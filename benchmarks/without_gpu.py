"""A CUDA device without a driver: real `cupy.ndarray` objects at made-up addresses, and launches that do nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from unittest import mock

import cupy

from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.space import Space
from tests.doubles import fake_cuda

ARCH = lookup("h200")


class StubDevice(fake_cuda.FakeCudaDevice):
    """A CudaDevice whose kernels do nothing when they are launched."""

    def __init__(self) -> None:
        super().__init__(ARCH.part, function=lambda entry: _function)

    def capturing(self) -> bool:
        """Return False at once: the time of this call counts."""
        return False


def _function(grid: object, block: object, arguments: object, shared: object) -> None:
    """Stands in for cupy.cuda.Function."""


def starter_kernels(workload: Workload, split_k: int = 1) -> Iterator[library.Kernel]:
    """Yield the kernels of every family's default Programs for a workload; with a split they need a workspace."""
    for space in Space(workload, ARCH).families:
        for program in space.family.starters(workload, ARCH):
            yield library.generate(program.replace(split_k=split_k), workload, ARCH)


@contextmanager
def fake_allocator() -> Iterator[None]:
    """Within it, CuPy's allocator hands out addresses that are never read."""
    following = itertools.count(fake_cuda.LOWEST, 2**24)
    memory = cupy.cuda.UnownedMemory

    def allocate(size: int) -> cupy.cuda.MemoryPointer:
        return cupy.cuda.MemoryPointer(memory(next(following), max(size, 1), None, 0), 0)

    with fake_cuda.allocating(allocate):
        yield


@contextmanager
def stub_runtime(stored: Iterable[library.Kernel], portfolio: Iterable[str] = ()) -> Iterator[Runtime]:
    """Within it, public calls on CuPy arrays use a Runtime of the stub that holds the `stored` kernels."""
    contents = library.Contents({kernel.digest: kernel for kernel in stored}, portfolio=frozenset(portfolio))
    with mock.patch.dict(os.environ, GENSOR_TUNE="predicted"):
        made = Runtime(StubDevice(), library.Library(contents))
        # As on a machine with one GPU: no query of the current device.
        inside = ContextVar("benchmark", default=made)
        with mock.patch.object(current, "only", made), mock.patch.object(current, "inside", inside):
            yield made
