"""What dispatch needs of whatever executes kernels: the base of a GPU (`cuda.py`) and of the emulator."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gensor_kernels.build.source import bind
from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.params import SIZE


@dataclass(frozen=True)
class Code:
    """What a device loads: a family's flattened source, the constants of one kernel, and its cubin if there is one.

    `digest` names the code: equal digests, equal code. `constants` are (macro, value) pairs.
    """

    digest: str
    text: str = field(repr=False)
    constants: tuple[tuple[str, int | str], ...]
    target: str
    cubin: bytes = field(default=b"", repr=False)

    @property
    def source(self) -> str:
        """The text a compiler gets."""
        return bind(self.text, dict(self.constants))


class Arguments(threading.local):
    """`arguments` is, in each thread, a bytearray of the size of Params and what launches take it by.

    `handle` makes the latter from the buffer's address, which does not change while the thread lives.
    """

    def __init__(self, handle: Callable[[int], Any] = lambda address: address):
        buffer = bytearray(SIZE)
        self._pinned = (ctypes.c_char * SIZE).from_buffer(buffer)  # a bytearray that is exported cannot move
        self.arguments = buffer, handle(ctypes.addressof(self._pinned))


#: A typecode of unsigned 64-bit words; of the two, array is quicker with "L".
WORD = "L" if array("L").itemsize == 8 else "Q"


def ready(template: bytes, handle: Callable[[int], Any] = lambda address: address) -> tuple[array[int], Any]:
    """New Params that start as `template`: their words, to write addresses to, and what launches take them by.

    The words must not be resized: they would move.
    """
    words = array(WORD, template)
    return words, handle(words.buffer_info()[0])


Launcher = Callable[[Any, Any, Any, Any], None]


@dataclass(frozen=True)
class OneLaunch:
    """A Launcher of one kernel that takes nothing but Params: who knows that may call `function` itself."""

    function: Callable[..., Any]
    grid: tuple[int]
    block: tuple[int]
    shared_bytes: int

    def __call__(self, arguments: Any, arrays: Any, steps: Any, workspace: Any) -> None:
        """Enqueues it."""
        self.function(self.grid, self.block, arguments[1], self.shared_bytes)


def launcher(pairs: Sequence[tuple[Any, Launch]]) -> Launcher:
    """Calls functions on the current stream; the driver copies Params before a call returns."""
    calls = [OneLaunch(function, (each.grid,), (each.block,), each.shared_bytes) for function, each in pairs]
    if len(calls) == 1:
        return calls[0]

    def several(arguments: Any, arrays: Any, steps: Any, workspace: Any) -> None:
        for each in calls:
            each(arguments, arrays, steps, workspace)

    return several


class Device:
    """One device: its arrays, its memory, and the launching of kernels.

    `pointer(array)` gives the address of its first element; `where(array)` the device whose memory it lies in, and
    is None where there is only one. They are on the path of every call: attributes, not methods.
    """

    #: None where kernels are not supported, for the reason in `unsupported`
    arch: Arch | None
    unsupported: str
    #: which of the machine's devices it is
    number: int = 0
    #: the array library: NumPy or CuPy
    xp: Any
    #: True where nothing but kernels may serve a call: tier 4 raises
    emulated: bool
    pointer: Callable[[Any], Any]
    where: Callable[[Any], Any] | None
    #: device types of DLPack whose memory is this device's
    dlpack_kinds: tuple[int, ...] = ()
    #: whether device and host share their memory, and their power
    integrated = False
    #: `local.arguments`: this thread's Params, as a bytearray, and what launches take it by
    local: Any
    #: `ready(template)`: Params of a Plan's own, as 64-bit words, and what launches take them by
    ready: Callable[[bytes], tuple[array[int], Any]]
    #: what `launch` raises for a launch the device refuses at once
    refusals: tuple[type[Exception], ...]
    #: what a kernel that goes wrong while it runs is reported by: at its launch, or by `synchronize` and all after it
    faults: tuple[type[Exception], ...]

    def is_array(self, value: Any) -> bool:
        """Whether `value` is an array of this device's library."""
        raise NotImplementedError

    def is_local(self, array: Any) -> bool:
        """Whether an array's memory is on this device."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new C-contiguous array, not initialised."""
        raise NotImplementedError

    def borrowed(self, address: int, shape: Any, strides: Any, dtype: Any, owner: Any, number: int) -> Any:
        """An array on memory of another library, which `owner` holds: `address` is its first element's, strides are in
        bytes, `number` is the device's."""
        raise NotImplementedError

    def workspace(self, nbytes: int, zero: bool) -> tuple[Any, int]:
        """(owner, address) of temporary memory on the current stream; it may be dropped after the launch."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Waits for the current stream; raises one of `faults` where a kernel went wrong."""
        raise NotImplementedError

    def host(self, array: Any) -> np.ndarray:
        """The array in the host's memory: a copy, or the array itself where it lies there."""
        raise NotImplementedError

    def capturing(self) -> bool:
        """Whether the current stream records a graph: nothing may be compiled, loaded or measured, and what is
        allocated is allocated within `lasting`."""
        raise NotImplementedError

    def lasting(self) -> AbstractContextManager[None]:
        """Within it, what this thread allocates lasts as long as the graph that the current stream records."""
        return nullcontext()

    def tf32(self) -> bool:
        """Whether the library's own switch allows TF32 for float32 products."""
        raise NotImplementedError

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Makes the kernel callable; BuildError where the device refuses it.

        The Launcher takes this thread's `local.arguments`, (result, a, b), the epilogue's steps and the workspace's
        owner, and enqueues the launches on the current stream.
        """
        raise NotImplementedError

    def is_built(self, code: Code) -> bool:
        """Whether `load` has a binary to load, and compiles nothing."""
        return bool(code.cubin)

    def build(self, codes: Sequence[Code], done: Callable[[int, Any], None]) -> None:
        """Makes the binaries that `load` would have to make, several at a time; `done` as in `ordered_map`."""
        raise NotImplementedError

    def product(self, a: Any, b: Any, precision: str | None = None, out: Any = None) -> Any:
        """The library's own matmul; its switch decides on TF32 unless `precision` is "ieee"."""
        raise NotImplementedError

    def erfc(self, x: Any) -> Any:
        """Complementary error function, element-wise."""
        raise NotImplementedError

    # ---- measuring

    def sampled(self, calls: Sequence[Callable[[], Any]]) -> list[list[float]]:
        """Microseconds per call, a list of samples for each of `calls`, taken in turns on the current stream."""
        raise NotImplementedError

    def conditions(self) -> str:
        """What times on this device hang on beside its part, as canonical JSON: driver, library, power mode."""
        return "{}"
