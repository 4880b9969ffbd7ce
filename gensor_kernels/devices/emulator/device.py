"""The emulator as a device: NumPy arrays in and out, kernels executed on the CPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Array, DeviceArray, Shape
from gensor_kernels.devices.device import Arguments, Code, Device, KernelArgument, Launcher, reach
from gensor_kernels.devices.lending import POISON, Lender, Lent
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.machine.arch import Arch
from gensor_kernels.shown import holds_numbers, no_array
from gensor_kernels.turns import Turns

from .build import build, build_many, is_built
from .run import Buffer, DamagedError, KernelFault, run

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


#: Bytes that addresses of memory on loan are multiples of.
LINE = 64


class EmulatorDevice(Device):
    """Executes kernels of `arch` on the CPU. Every access outside the arrays of a call raises KernelFault."""

    xp = np
    emulated = True
    unsupported = ""
    refusals = ()
    faults = (KernelFault,)
    where = None
    dlpack_kinds = (1,)  # kDLCPU

    def __init__(self, arch: Arch):
        self.arch = arch
        self.local, self._lent = Arguments(), Lent()
        self._libraries: dict[str, Path] = {}
        self._turns = Turns()

    def is_array(self, value: object) -> bool:
        """Return whether `value` is a NumPy array of numbers in native byte order, the only one that kernels read
        (api/interop.py), and without a mask."""
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            return False
        return value.dtype.isnative and holds_numbers(value)

    def pointer(self, array: DeviceArray) -> int:
        """Return an array's address; TypeError for what is no array, of which a Plan for arrays like it knows
        nothing."""
        if not self.is_array(array):
            raise TypeError(no_array("an operand", array, "numpy"))
        return int(array.ctypes.data)

    def is_local(self, array: Array) -> bool:
        """Return True: there is one memory."""
        return True

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return a new C-contiguous array, filled with a pattern that no result has."""
        array = np.empty(shape, dtype) if self._lent.lender is None else self._on_loan(shape, dtype)
        array.reshape(-1).view(np.uint8)[...] = POISON
        return array

    def _on_loan(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes == 0:
            return np.empty(shape, dtype)
        assert self._lent.lender is not None
        lease = self._lent.lender(nbytes)
        if not lease.address:
            lease.memory = np.empty(nbytes + LINE, np.uint8)
            lease.address = -(-lease.memory.ctypes.data // LINE) * LINE
        steps = [math.prod(shape[place + 1 :]) * dtype.itemsize for place in range(len(shape))]
        return self.borrow(lease.address, shape, tuple(steps), dtype, lease, 0)

    @contextmanager
    def lending(self, lender: Lender | None) -> Iterator[None]:
        """See Device.lending."""
        before, self._lent.lender = self._lent.lender, lender
        try:
            yield
        finally:
            self._lent.lender = before

    def parameters(self) -> tuple[bytearray, KernelArgument]:
        """See Device.parameters."""
        return Arguments().arguments

    def clear(self, array: DeviceArray) -> None:
        """See Device.clear."""
        array[...] = 0

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """See Device.copy."""
        target[...] = source

    def borrow(
        self, address: int, shape: Shape, strides: Shape, dtype: DTypeLike, owner: object, number: int
    ) -> DeviceArray:
        """Return the NumPy array on memory of another library."""
        before, size = reach(shape, strides, np.dtype(dtype).itemsize)
        if size == 0:
            return np.empty(shape, dtype)
        memory = (ctypes.c_char * size).from_address(address - before)
        memory.owner = owner  # type: ignore[attr-defined]
        return np.ndarray(shape, dtype, memory, before, strides)  # type: ignore[arg-type]

    def workspace(self, nbytes: int, zero: bool) -> tuple[np.ndarray, int]:
        """Return (owner, address) of temporary memory, aligned to 16 bytes and poisoned unless `zero`."""
        if self._lent.lender is not None:
            owner = self._on_loan((nbytes,), np.uint8)
            owner[...] = 0 if zero else POISON
            return owner, owner.ctypes.data
        raw = np.full(nbytes + 16, 0 if zero else POISON, np.uint8)
        start = -raw.ctypes.data % 16
        owner = raw[start : start + nbytes]
        return owner, owner.ctypes.data

    def synchronize(self) -> None:
        """Do nothing: a launch has ended when it returns."""

    def host(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def capturing(self) -> bool:
        """Return False: the emulator has no graphs."""
        return False

    def tf32(self) -> bool:
        """Return False: float32 products are IEEE products unless the call says precision="tf32"."""
        return False

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Build the kernel for the host. Raises BuildError, and ToolMissingError without g++."""
        with self._turns.at(code.digest):
            library = self._libraries.get(code.digest)
            if library is None:
                library = self._libraries[code.digest] = build(code.source)
        return partial(_launch, code.source, library, tuple(launches))

    def is_built(self, code: Code) -> bool:
        """Return whether the cache folder has its library. Raises ToolMissingError without g++."""
        return code.digest in self._libraries or is_built(code.source)

    def build(self, codes: Sequence[Code], done: Callable[[int, object], None]) -> None:
        """Build libraries on all cores. Raises ToolMissingError without g++; `load` raises errors of g++."""
        build_many([code.source for code in codes], done=done)

    def product(self, a: Array, b: Array, precision: str | None = None, out: Array | None = None) -> DeviceArray:
        """Raise UnsupportedError: there is no library to fall back to."""
        raise UnsupportedError("an emulated device serves calls by kernels only")

    def erfc(self, x: Array) -> DeviceArray:
        """Raise UnsupportedError: there is no library to fall back to."""
        raise UnsupportedError("an emulated device serves calls by kernels only")


class RehearsalDevice(EmulatorDevice):
    """The emulator of an arch, without kernels: the calls of a program become known without their time.

    Every result is zeros, which take no memory until they are written; indices that a program computes from them are
    valid ones.
    """

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return a new C-contiguous array of zeros."""
        return np.zeros(shape, dtype)

    def workspace(self, nbytes: int, zero: bool) -> tuple[np.ndarray, int]:
        """Return (owner, address) of one byte: nothing is written to it."""
        return super().workspace(1, True)

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Return a Launcher that does nothing."""
        return _skip

    def is_built(self, code: Code) -> bool:
        """Return True: there is nothing to build."""
        return True

    def build(self, codes: Sequence[Code], done: Callable[[int, object], None]) -> None:
        """Report every code as built."""
        for number in range(len(codes)):
            done(number, None)


def _launch(
    source: str, library: Path, launches: Sequence[Launch], arguments: Any, arrays: Any, steps: Any, workspace: Any
) -> None:
    """Execute the launches; only the call's arrays may be read, and only its results written."""
    result, *inputs = arrays
    written = [result, *(inputs[place] for place in launches[0].writes)]
    inputs += [step.operand for step in steps if step.operand is not None]
    if not all(array.flags.writeable for array in written):
        raise ValueError("output array is read-only")
    # Addresses are host addresses: arguments hold those of the caller's arrays.
    read = [array for array in inputs if not any(array is each for each in written)]
    touched = [(*extent(array), False) for array in read] + [(*extent(array), True) for array in written]
    if workspace is not None:
        touched.append((workspace.ctypes.data, workspace.nbytes, True))
    buffers = [Buffer(address, size, writable, address) for address, size, writable in touched]
    try:
        run(library, launches, bytes(arguments[0]), buffers, races=False)
    except DamagedError:
        run(build(source), launches, bytes(arguments[0]), buffers, races=False)


def extent(array: np.ndarray) -> tuple[int, int]:
    """Return (first address, bytes) of the memory between the lowest and the highest element of an array."""
    before, size = reach(array.shape, array.strides, array.itemsize)
    return array.ctypes.data - before, size


def _skip(arguments: object, arrays: object, steps: object, workspace: object) -> None:
    """Launch nothing."""
