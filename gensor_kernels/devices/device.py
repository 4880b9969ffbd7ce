"""Device: the interface between dispatch and the executor of kernels, a GPU (`cuda.py`) or the emulator."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gensor_kernels.arrays import Array, DeviceArray, Shape
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.core.source import bind
from gensor_kernels.machine.arch import Arch

from .agreement import Sample, agree

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from .lending import Lender
    from .sampling import Sampler


def reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return (bytes before the first element, bytes from the lowest to the highest element) of an array."""
    if 0 in shape:
        return 0, 0
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = -sum(end for end in ends if end < 0)
    return low, low + sum(end for end in ends if end > 0) + itemsize


@dataclass(frozen=True)
class Code:
    """Code to load on a device.

    Attributes
    ----------
    digest : str
        Name of the code: equal digests mean equal code.
    text : str
        A family's flattened source.
    constants : tuple[tuple[str, int | str], ...]
        (macro, value) pairs of one kernel.
    target : str
        Compile target.
    cubin : bytes
        Stored binary, empty if there is none.
    """

    digest: str
    text: str = field(repr=False)
    constants: tuple[tuple[str, int | str], ...]
    target: str
    cubin: bytes = field(default=b"", repr=False)

    @property
    def source(self) -> str:
        """Text for a compiler."""
        return bind(self.text, dict(self.constants))


#: Type of a kernel's argument in the library's launch.
KernelArgument: TypeAlias = Any
Handle = Callable[[int], KernelArgument]


class Arguments(threading.local):
    """Kernel arguments of each thread: kernels are launched from memory that no two threads may write at a time.

    `arguments` is a bytearray of `size` bytes, those of Params by default, and the launch argument that `handle` made
    from its address, which does not change while the thread lives.
    """

    def __init__(self, handle: Handle = lambda address: address, size: int = SIZE):
        buffer = bytearray(size)
        self._pinned = (ctypes.c_char * size).from_buffer(buffer)  # a bytearray that is exported cannot move
        self.arguments = buffer, handle(ctypes.addressof(self._pinned))


#: A typecode of unsigned 64-bit words; of the two, array is quicker with "L".
WORD = "L" if array("L").itemsize == 8 else "Q"


def ready(template: bytes, handle: Handle = lambda address: address) -> tuple[array[int], KernelArgument]:
    """Return new Params with the contents of `template`: their words, for writing addresses, and the launch argument.

    The words must not be resized, which would move them.
    """
    words = array(WORD, template)
    return words, handle(words.buffer_info()[0])


#: Enqueues launches: takes `local.arguments`, (result, a, b), the epilogue's steps and the workspace's owner.
Launcher = Callable[[tuple[bytearray, KernelArgument], Sequence[DeviceArray], Sequence[Any], Any], None]


@dataclass(frozen=True)
class OneLaunch:
    """A Launcher of one kernel with Params as its only argument; callers may call `function` directly."""

    function: Callable[..., None]
    grid: tuple[int]
    block: tuple[int]
    shared_bytes: int

    def __call__(
        self, arguments: tuple[bytearray, KernelArgument], arrays: object, steps: object, workspace: object
    ) -> None:
        """Enqueue the launch."""
        self.function(self.grid, self.block, arguments[1], self.shared_bytes)


def launcher(pairs: Sequence[tuple[Callable[..., None], Launch]]) -> Launcher:
    """Return a Launcher on the current stream; the driver copies Params before a call returns."""
    calls = [OneLaunch(function, (each.grid,), (each.block,), each.shared_bytes) for function, each in pairs]
    if len(calls) == 1:
        return calls[0]

    def several(arguments: tuple[bytearray, KernelArgument], arrays: object, steps: object, workspace: object) -> None:
        for each in calls:
            each(arguments, arrays, steps, workspace)

    return several


class Device:
    """One device: its arrays, its memory, and the launching of kernels.

    Attributes
    ----------
    arch : Arch or None
        None if kernels are not supported, for the reason in `unsupported`.
    number : int
        Number among the machine's devices.
    xp : module
        Array library: NumPy or CuPy.
    emulated : bool
        Whether only kernels may serve a call: tier 4 raises.
    array : type or None
        Class of arrays whose calls may take direct ways (dispatch/direct.py).
    pointer : Callable[[Array], int]
        Address of an array's first element.  `pointer` and `where` are attributes because every call uses them.
    where : Callable[[Array], int] or None
        Device of an array's memory, unless there is only one device.
    dlpack_kinds : tuple[int, ...]
        Device types of DLPack for this device's memory.
    integrated : bool
        Whether device and host share memory and power budget.
    local : Arguments
        Params of the calling thread.
    ready : Callable
        As the function `ready`: Params of a Plan's own.
    refusals : tuple[type[Exception], ...]
        Errors of a launch that the device refuses at once.
    faults : tuple[type[Exception], ...]
        Errors of a kernel that fails while it runs, raised by its launch, or by `synchronize` and all later calls.
    """

    arch: Arch | None
    unsupported: str
    number: int = 0
    xp: Any  # NumPy, CuPy, or CuPy's own functions (originals.py)
    emulated: bool
    array: Any = None
    pointer: Callable[[Array], int]
    where: Callable[[Array], int] | None
    dlpack_kinds: tuple[int, ...] = ()
    integrated = False
    local: Arguments
    ready: Callable[[bytes], tuple[array[int], KernelArgument]]
    refusals: tuple[type[Exception], ...]
    faults: tuple[type[Exception], ...]

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this device's library."""
        raise NotImplementedError

    def is_local(self, array: Array) -> bool:
        """Return whether an array's memory is on this device."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
        """Return a new C-contiguous array, not initialised."""
        raise NotImplementedError

    def borrow(
        self, address: int, shape: Shape, strides: Shape, dtype: DTypeLike, owner: object, number: int
    ) -> DeviceArray:
        """Return an array on memory of another library, which `owner` keeps alive.

        `address` is that of the first element, strides are in bytes, `number` is the memory's device.
        """
        raise NotImplementedError

    def workspace(self, nbytes: int, zero: bool) -> tuple[object, int]:
        """Return (owner, address) of temporary memory on the current stream; it may be dropped after the launch."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the current stream; raises one of `faults` if a kernel failed."""
        raise NotImplementedError

    def host(self, array: DeviceArray) -> np.ndarray:
        """Return the array in host memory: a copy, or the array itself if it is there already."""
        raise NotImplementedError

    def capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph.

        Then no kernel may be compiled, loaded or measured, and memory is allocated within `lasting`.
        """
        raise NotImplementedError

    def lasting(self, *owners: object) -> AbstractContextManager[None]:
        """Return a context in which this thread's allocations live as long as the graph being captured.

        `owners`, which hold memory that the graph reads, live as long.
        """
        return nullcontext()

    def lending(self, lender: Lender | None) -> AbstractContextManager[object]:
        """Return a context in which this thread's allocations are requests to a lender; None: the device's own memory.

        On the emulator only results and workspaces of kernels are: NumPy allocates by itself.
        """
        raise NotImplementedError

    def current(self) -> AbstractContextManager[object]:
        """Return a context in which this device is the current one."""
        return nullcontext()

    def stream(self) -> int:
        """Return the address of this thread's current stream."""
        return 0

    def capture_graph(self, run: Callable[[], None]) -> Callable[[], None] | None:
        """Return a function that launches on the current stream the graph of all that `run` enqueues.

        None where the device has no graphs. `run` only describes the work: nothing is executed.
        """
        return None

    def parameters(self) -> tuple[bytearray, KernelArgument]:
        """Return new kernel arguments, as `local.arguments`."""
        raise NotImplementedError

    def clear(self, array: DeviceArray) -> None:
        """Enqueue zeros into an array of bytes."""
        raise NotImplementedError

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Enqueue a copy into an array of the same shape and dtype; `source` may be a NumPy array."""
        raise NotImplementedError

    def tf32(self) -> bool:
        """Return whether the library's own switch allows TF32 for float32 products."""
        raise NotImplementedError

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Return a Launcher that enqueues the launches, in order, on the current stream.

        Raises BuildError if the device refuses the kernel.
        """
        raise NotImplementedError

    def is_built(self, code: Code) -> bool:
        """Return whether `load` finds a binary and compiles nothing."""
        return bool(code.cubin)

    def build(self, codes: Sequence[Code], done: Callable[[int, object], None]) -> None:
        """Build the binaries that `load` would build, several at a time; `done` as in `ordered_map`."""
        raise NotImplementedError

    def product(self, a: Array, b: Array, precision: str | None = None, out: Array | None = None) -> DeviceArray:
        """Return the library's own matmul; its switch decides on TF32 unless `precision` is "ieee"."""
        raise NotImplementedError

    def erfc(self, x: Array) -> DeviceArray:
        """Return the complementary error function, element-wise."""
        raise NotImplementedError

    # ---- measuring

    def sampler(self, calls: Sequence[Callable[[], object]]) -> Sampler:
        """Return what times these calls, interleaved on the current stream: see sampling.Sampler."""
        raise NotImplementedError

    def free_bytes(self) -> int | None:
        """Return the bytes that can be allocated, or None where nothing limits them."""
        return None

    def agrees(self, results: Sequence[DeviceArray], expected: Sequence[Sample]) -> bool:
        """Return whether what one call wrote twice, of the second time each a `sample`, is the same but for rounding:
        see agreement.agree."""
        return all(agree(self.xp, *pair) for pair in zip(results, expected, strict=True))

    def conditions(self) -> str:
        """Return the conditions of measured times, without the part, as canonical JSON: driver, library, power mode."""
        return "{}"
