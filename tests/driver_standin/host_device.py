"""A CudaDevice whose memory is the double's: CuPy loads and launches, and the emulator executes what the driver got."""

from __future__ import annotations

import ctypes
import weakref
from collections import Counter
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from gensor_kernels.devices import cuda
from gensor_kernels.devices.cuda import import_cupy
from gensor_kernels.devices.emulator.run import SMS, encode
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.core.tensor_maps import MAP_BYTES, MAPS_OFFSET, description
from gensor_kernels.machine.arch import lookup
from tests.doubles.strict import memory
from tests.doubles.strict.launches import emulated
from tests.doubles.strict.results import Status

from .runtime import Runtime


class PassedError(AssertionError):
    """The driver was passed other bytes than the package packed."""


class Memory:
    """The part of an array library that the verifier needs, over the double's memory."""

    uint8 = np.uint8
    asarray = staticmethod(np.asarray)

    def __init__(self, of: memory.Memory) -> None:
        self._memory = of

    def full(self, size: int, value: int, dtype: Any) -> np.ndarray:
        block = self._memory.allocate(size * np.dtype(dtype).itemsize)
        array = np.frombuffer((ctypes.c_char * block.size).from_address(block.first), dtype)[:size]
        array[...] = value
        weakref.finalize(array, self._free, block)
        return array

    def _free(self, block: memory.Block) -> None:
        self._memory.by_host.pop(block.first)
        self._memory.disown(block)
        self._memory.give_back(block.first, block.size)


class HostDevice(cuda.CudaDevice):
    """A part with as many multiprocessors as the emulator, so that blocks walk tiles.

    `synchronize` compares the launches since its last call, and executes them.
    """

    def __init__(self, name: str, runtime: Runtime):
        runtime.become(name, MultiProcessorCount=SMS)
        self._runtime, self._packed = runtime, b""
        self.cupy, self.xp = import_cupy(), Memory(runtime.context.memory)
        self.arch, self.unsupported, self.number = replace(lookup(name), sms=SMS), "", 0
        self._prepare(several=False)
        self.pointer = attrgetter("ctypes.data")
        self.faults = (*self.faults, Status)
        runtime.calls()  # of earlier devices, whose modules are unloaded late

    def calls(self) -> Counter[str]:
        return Counter(self._runtime.calls())

    def host(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def load(self, code, launches):
        """Return a launcher that also keeps its Params, for `synchronize` to compare."""
        self._launches = launches
        self._runtime.context.executor = partial(emulated, code.source, code.target)
        launch = super().load(code, launches)

        def kept(arguments, arrays, steps, workspace):
            self._packed = bytes(arguments[0])
            launch(arguments, arrays, steps, workspace)

        return kept

    def synchronize(self) -> None:
        """Raise PassedError where a byte differs, and the faults of the launches."""
        made, context = self._runtime.launches(), self._runtime.context
        if made or self._packed:
            if [each.function.name for each in made] != [each.entry for each in self._launches]:
                raise PassedError(f"launched: {[each.function.name for each in made]}")
            for launch, wanted in zip(made, self._launches, strict=True):
                self._compare(launch, wanted)
            self._packed = b""
        context.synchronize(context.stream(0))

    def _compare(self, launch, wanted):
        dependent = "dependent_launch" in self.arch.features and wanted.dependent
        expected = (wanted.blocks(self.arch.sms), 1, 1), (wanted.block, 1, 1), wanted.shared_bytes, dependent
        found = launch.grid, launch.block, launch.shared_bytes, launch.dependent
        if found != expected:
            raise PassedError(f"{wanted.entry} was launched as {found}, not {expected}")
        passed = launch.parameters
        if len(passed) != size_of(wanted) or passed[:SIZE] != self._packed:
            raise PassedError(f"{wanted.entry} was passed other bytes than Params")
        if passed[MAPS_OFFSET:] != b"".join(encode(description(self._packed, each)) for each in wanted.maps):
            raise PassedError(f"{wanted.entry} was passed other tensor maps than {wanted.maps}")


def size_of(launch) -> int:
    return MAPS_OFFSET + MAP_BYTES * len(launch.maps) if launch.maps else SIZE
