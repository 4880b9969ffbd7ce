"""A GPU through CuPy. Only this file imports CuPy; cupy_internals.py holds its undocumented parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels import forking
from gensor_kernels.arrays import Array, DeviceArray, Shape
from gensor_kernels.config import logger
from gensor_kernels.errors import BuildError, MachineError, ToolMissingError, UnknownArchError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.machine.attributes import from_attributes
from gensor_kernels.turns import Turns

from . import cupy_internals
from .advice import about_device, about_import
from .cupy_internals import FLOAT32, Kernel, KernelModule, Memory, allow_shared_bytes, entry, load_module
from .device import Arguments, Code, Device, Handle, KernelArgument, Launcher, launcher, reach, ready
from .driver import RELAXED, choose_launch
from .graphs import Graphs
from .lending import Lender, LendingAllocator
from .originals import Original
from .sampling import Sampler, conditions
from .tensor_maps import Mapped

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: Dynamic shared memory that a kernel may use without an attribute, in bytes.
PLAIN_SHARED_BYTES = 48 * 1024
SINGLE = (FLOAT32, np.dtype(np.complex64))  # types that the TF32 switch affects


def import_cupy() -> ModuleType:
    """Return the `cupy` module; ToolMissingError with one sentence if it is absent or cannot be used."""
    try:
        import cupy
    except Exception as error:  # CuPy passes on errors of its loader: ImportError, OSError, RuntimeError
        raise ToolMissingError(about_import(error)) from error
    return cupy


def current_device() -> Callable[[], int]:
    """Return a function that gives the number of the current device; ToolMissingError if CuPy reaches no GPU."""
    query = import_cupy().cuda.runtime.getDevice
    try:
        query()
    except RuntimeError as error:
        raise ToolMissingError(about_device(error)) from error
    return query


def make_current(number: int) -> None:
    """Make a device the calling thread's current device; ToolMissingError if CuPy reaches none of that number."""
    try:
        import_cupy().cuda.Device(number).use()
    except RuntimeError as error:
        raise ToolMissingError(about_device(error)) from error


def _mapped_launcher(pairs: Sequence[tuple[Callable[..., None], Launch]], handle: Handle, sms: int) -> Launcher:
    """Return a launcher for kernels with tensor maps after Params, or with persistent blocks on ``sms``
    multiprocessors.

    `handle` makes a kernel argument from an address.
    """
    calls = [
        (function, (each.blocks(sms),), each, Mapped(each.maps, handle) if each.maps else None)
        for function, each in pairs
    ]

    def launch(arguments: tuple[bytearray, KernelArgument], arrays: object, steps: object, workspace: object) -> None:
        for function, grid, each, mapped in calls:
            given = arguments[1] if mapped is None else mapped(arguments[0])
            function(grid, (each.block,), given, each.shared_bytes)

    return launch


class Modules:
    """Modules loaded on one device, each once: stored cubins, or sources compiled where a cubin is missing or
    refused."""

    def __init__(self, device: CudaDevice):
        self.device = device
        self._loaded: dict[str, KernelModule] = {}
        self._functions: dict[tuple[str, str], tuple[Kernel, int]] = {}
        self._turns = Turns()  # a kernel is compiled once, and threads with other kernels do not wait for that

    def functions(self, code: Code, launches: Sequence[Launch]) -> list[Kernel]:
        """Return the entries of a kernel's launches; BuildError if the driver refuses it or its shared memory."""
        with self._turns.at(code.digest), self.device.current():
            if code.digest not in self._loaded:
                self._loaded[code.digest] = self._module(code)
            return [self._function(code, each) for each in launches]

    def _module(self, code: Code) -> KernelModule:
        device = self.device
        if code.cubin:
            try:
                return load_module(device.cupy, code.cubin)
            except device.refusals as error:
                if not device.compiles:
                    raise BuildError(f"the driver refused the stored cubin: {error}") from error
                logger().info("the driver refused %s (%s); compiling it here", code.digest[:12], error)
        if not device.compiles:
            raise BuildError("no cubin is stored, and nothing is compiled here")
        from gensor_kernels.build import nvrtc  # few processes compile

        try:
            binary = nvrtc.compile_cubin(code.source, device.arch.target if device.arch else code.target)
        except MachineError as error:
            raise BuildError(f"the driver refused the stored cubin, and {error}") from error
        if binary.error is not None:
            raise BuildError("NVRTC refused the kernel", binary.error)
        try:
            return load_module(device.cupy, binary.cubin)
        except device.refusals as error:
            raise BuildError(f"the driver refused a cubin by {binary.toolchain}: {error}") from error

    def _function(self, code: Code, launch: Launch) -> Kernel:
        """Return the entry of a loaded module, with permission to use the shared memory of `launch`."""
        found = self._functions.get((code.digest, launch.entry))
        try:
            function, allowed = found or (entry(self._loaded[code.digest], launch.entry), PLAIN_SHARED_BYTES)
            if launch.shared_bytes > allowed:
                allow_shared_bytes(self.device.driver, function, launch.shared_bytes)
                allowed = launch.shared_bytes
        except self.device.refusals as error:
            raise BuildError(f"the driver refused {launch.entry}: {error}") from error
        self._functions[code.digest, launch.entry] = function, allowed
        return function


class CudaDevice(Device):
    """A GPU of this process.

    Parameters
    ----------
    number : int
        Device number in CuPy.

    Attributes
    ----------
    arch : Arch or None
        None for an unsupported compute capability, with the reason in `unsupported`.
    compiles : bool
        Whether a missing or refused cubin is compiled; otherwise it is a BuildError.
    """

    emulated = False
    compiles = True
    dlpack_kinds = (2, 13)  # kDLCUDA, kDLCUDAManaged

    def __init__(self, number: int):
        self.cupy = cupy = import_cupy()
        self.xp = Original(cupy)
        self.number = number
        self.unsupported = ""
        self.arch = None
        self._identify()
        self._prepare(several=cupy.cuda.runtime.getDeviceCount() > 1)

    def _prepare(self, several: bool) -> None:
        cupy = self.cupy
        self.pointer = attrgetter("data.ptr")
        self.where = attrgetter("data.device_id") if several else None
        argument = cupy_internals.argument_type(cupy)
        self._handle = lambda address: (argument(address),)
        self.local = Arguments(self._handle)
        self.ready = partial(ready, handle=self._handle)
        of_driver, of_runtime = cupy_internals.errors(cupy)
        self.refusals = (of_driver, BuildError)  # the latter for operands without a tensor map
        self.faults = (*self.refusals, of_runtime)
        self.driver = cupy_internals.driver_api(cupy)
        self.array = cupy.ndarray
        self._null_stream = cupy_internals.null_stream(cupy)
        self._modules = Modules(self)
        self._graphs = Graphs()
        self._lock = forking.lock(self, "_lock", threading.RLock)
        self._switch, self._tf32, self._set_switch = cupy_internals.tf32_switch(cupy)

    def _identify(self) -> None:
        cupy = self.cupy
        device = cupy.cuda.Device(self.number)
        facts = device.attributes
        self.integrated = bool(facts.get("Integrated"))
        properties = cupy.cuda.runtime.getDeviceProperties(self.number)
        name = properties["name"]
        bandwidth = None
        if facts.get("MemoryClockRate") and facts.get("GlobalMemoryBusWidth"):
            # kHz, two transfers per clock, bits
            bandwidth = 2e3 * facts["MemoryClockRate"] * facts["GlobalMemoryBusWidth"] / 8 / 1e9
        capability = device.compute_capability
        try:
            self.arch = from_attributes(
                (int(capability[:-1]), int(capability[-1])),
                name.decode() if isinstance(name, bytes) else str(name),
                facts["MultiProcessorCount"],
                facts.get("ClockRate", 0) / 1e6 or 1.0,
                bandwidth,
                facts.get("L2CacheSize"),
                properties.get("totalGlobalMem"),
            )
        except UnknownArchError as error:
            self.unsupported = str(error)

    # ---- arrays and memory

    def is_array(self, value: object) -> bool:
        """Return whether `value` is a CuPy array."""
        return isinstance(value, self.array)

    def is_local(self, array: Array) -> bool:
        """Return whether an array's memory is on this device."""
        return self.where is None or self.where(array) == self.number

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
        """Return a new C-contiguous array, not initialised, from CuPy's allocator."""
        return self.array(shape, dtype)

    def workspace(self, nbytes: int, zero: bool) -> tuple[Memory, int]:
        """Return (owner, address) of memory from CuPy's pool, which reuses it in the order of the stream."""
        memory = self.cupy.cuda.alloc(nbytes)
        if zero:
            memory.memset_async(0, nbytes)
        return memory, memory.ptr

    def synchronize(self) -> None:
        """Wait for the current stream; raises the faults of its kernels."""
        self.cupy.cuda.get_current_stream().synchronize()

    def host(self, array: DeviceArray) -> np.ndarray:
        """Return a copy in host memory."""
        return array.get()

    # ---- arrays of other libraries

    def borrow(
        self, address: int, shape: Shape, strides: Shape, dtype: DTypeLike, owner: object, number: int
    ) -> DeviceArray:
        """See Device.borrow."""
        cupy, dtype = self.cupy, np.dtype(dtype)
        before, size = reach(shape, strides, dtype.itemsize)
        memory = cupy.cuda.UnownedMemory(address - before, max(size, 1), owner, number)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, before), strides)

    @contextmanager
    def running_on(self, stream: int, number: int, mixed: bool) -> Iterator[None]:
        """Make device `number` and the stream at an address CuPy's current ones within a block.

        With `mixed`, CuPy's own arrays take part: the stream first waits for CuPy's stream, which then waits for it.
        """
        with self.cupy.cuda.Device(number):
            own, theirs = self.cupy.cuda.get_current_stream(), cupy_internals.stream(self.cupy, stream)
            if own.ptr == theirs.ptr:
                yield
                return
            if mixed:
                theirs.wait_event(own.record())
            with theirs:
                yield
            if mixed:
                own.wait_event(theirs.record())

    def wait_for(self, stream: int) -> None:
        """Make the current stream wait for all work enqueued so far on the stream at an address."""
        current, other = self.cupy.cuda.get_current_stream(), cupy_internals.stream(self.cupy, stream)
        if current.ptr != other.ptr:
            current.wait_event(other.record())

    # ---- kernels

    def capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        try:
            return bool(self.cupy.cuda.get_current_stream().is_capturing())
        except RuntimeError:  # the legacy stream cannot be queried while another stream captures
            return True

    def lasting(self, *owners: object) -> AbstractContextManager[None]:
        """See Graphs.lasting."""
        if not self.capturing():
            return nullcontext()
        return self._graphs.lasting(self.cupy.cuda, self.stream, *owners)

    def lending(self, lender: Lender | None) -> AbstractContextManager[object]:
        """See Device.lending: CuPy's allocator of this thread asks the lender."""
        cuda, base = self.cupy.cuda, self.cupy.cuda.get_allocator()
        if isinstance(base, LendingAllocator):
            base = base.base
        if lender is None:
            return cuda.using_allocator(base)
        return cuda.using_allocator(LendingAllocator(cuda, lender, base, self.number, self.capturing()))

    def capture_graph(self, run: Callable[[], None]) -> Callable[[], None] | None:
        """See Device.capture_graph. The capture has its own stream: the legacy stream cannot be captured."""
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture(RELAXED)
            try:
                run()
            except BaseException:
                with suppress(RuntimeError):  # why the capture is invalid has been raised
                    stream.end_capture()
                raise
            return stream.end_capture().launch

    def parameters(self) -> tuple[bytearray, KernelArgument]:
        """See Device.parameters."""
        return Arguments(self._handle).arguments

    def clear(self, array: DeviceArray) -> None:
        """See Device.clear."""
        array.data.memset_async(0, array.nbytes)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """See Device.copy: one copy of memory, where both are contiguous."""
        if isinstance(source, np.ndarray):
            target.set(source)
        elif source.flags.c_contiguous and target.flags.c_contiguous and self.is_local(source):
            target.data.copy_from_device_async(source.data, target.nbytes)
        else:
            target[...] = source

    def load(self, code: Code, launches: Sequence[Launch]) -> Launcher:
        """Load the module. Raises BuildError if the driver refuses it or its shared memory."""
        arch, functions = self.arch, self._modules.functions(code, launches)
        called = [choose_launch(*each, arch, self.stream) for each in zip(functions, launches, strict=True)]
        pairs = list(zip(called, launches, strict=True))
        if arch is None or not any(each.maps or each.per_sm for each in launches):
            return launcher(pairs)
        return _mapped_launcher(pairs, self._handle, arch.sms)

    def stream(self) -> int:
        """Return the address of the calling thread's current stream, as launches by CuPy pass it."""
        return int(self.cupy.cuda.get_current_stream().ptr) or self._null_stream

    def current(self) -> AbstractContextManager[object]:
        """Return a context in which this device is current: modules belong to a device."""
        return self.cupy.cuda.Device(self.number)

    # ---- the library's own operations

    def tf32(self) -> bool:
        """Return CuPy's own switch, set by the environment variable `CUPY_TF32`: see cupy_internals.tf32_switch."""
        return bool(self._switch(FLOAT32) == self._tf32)

    def product(self, a: Array, b: Array, precision: str | None = None, out: Array | None = None) -> DeviceArray:
        """Return the original cupy.matmul; with `precision` "ieee" without TF32, regardless of CuPy's switch."""
        if precision == "ieee" and self.tf32() and np.promote_types(a.dtype, b.dtype) in SINGLE:
            with self._lock:
                self._set_switch(False)
                try:
                    return self.xp.matmul(a, b, out=out)
                finally:
                    self._set_switch(True)
        return self.xp.matmul(a, b, out=out)

    def erfc(self, x: Array) -> DeviceArray:
        """Return the complementary error function, element-wise."""
        from cupyx.scipy.special import erfc

        return erfc(x)

    # ---- measuring

    def sampler(self, calls: Sequence[Callable[[], object]]) -> Sampler:
        """See Device.sampler."""
        return Sampler(self.cupy, self.arch.l2_mb * 1e6 if self.arch else 0, calls)

    def free_bytes(self) -> int:
        """Return the bytes that the driver or CuPy's pool can give."""
        pool = self.cupy.get_default_memory_pool()
        free: int = self.cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
        limit: int = pool.get_limit()  # 0 where there is none
        return min(free, limit - pool.used_bytes()) if limit else free

    def conditions(self) -> str:
        """See sampling.conditions."""
        return conditions(self.cupy)
