"""CuPy's surface over a System: the parts of `cupy` and `cupy.cuda` that the package uses; the rest is CuPy's own.

Read in CuPy 13.3 to 14.2: cupy/cuda/{function,device}.pyx, cupy_backends/cuda/api/{driver,runtime}.pyx.
"""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import cupy

from .context import DYNAMIC_SHARED_BYTES
from .pool import Pool, pointer_type
from .stream_objects import OF_DRIVER, OF_RUNTIME, Event, Stream, current_stream, stream_type
from .system import System


def address(argument: Any) -> int:
    """Return the address that a CPointer passes; its field cannot be read from Python, its memory can."""
    if not isinstance(argument, cupy.cuda.function.CPointer):
        raise TypeError(f"Unsupported type {type(argument)}")
    size = cupy.cuda.function.CPointer.__basicsize__
    return struct.unpack_from("<Q", ctypes.string_at(id(argument), size), size - 8)[0]


class Surface:
    """`cupy`: its name `cuda` is ours; an attribute that the test sets comes before CuPy's."""

    def __init__(self, system: System):
        self.system, self.cuda = system, Cuda(system)

    def get_default_memory_pool(self) -> Pool:
        return self.cuda.pool

    def __getattr__(self, name: str) -> Any:
        return getattr(cupy, name)


class Cuda:
    """`cupy.cuda`. `pool` is the allocator, once it is set."""

    def __init__(self, system: System):
        self.system = system
        self.function = SimpleNamespace(
            CPointer=cupy.cuda.function.CPointer,
            CNumpyArray=cupy.cuda.function.CNumpyArray,
            Module=lambda: Module(system),
            Function=Function,
        )
        self.driver = _driver(system)
        self.runtime = _runtime(system)
        self.Device = lambda number=None: Device(system, number)
        self.Event = lambda *flags, **keywords: Event(system)
        self.Stream = stream_type(system)
        self.ExternalStream = lambda handle, device_id=-1: Stream(system, handle)
        self.MemoryPointer = pointer_type(system)
        self.pool = Pool(system, self.MemoryPointer)

    def __getattr__(self, name: str) -> Any:
        return getattr(cupy.cuda, name)

    def get_current_stream(self, device_id: int = -1) -> Stream:
        return current_stream(self.system)


def _driver(system: System) -> SimpleNamespace:
    def set_attribute(handle: int, attribute: int, value: int) -> None:
        with OF_DRIVER():
            system.context().allow(handle, attribute, value)

    return SimpleNamespace(
        CUDADriverError=cupy.cuda.driver.CUDADriverError,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=DYNAMIC_SHARED_BYTES,
        funcSetAttribute=set_attribute,
    )


def _runtime(system: System) -> SimpleNamespace:
    def memory() -> tuple[int, int]:
        found = system.context().memory
        return found.end - found.top, system.context().part.memory_bytes

    def properties(number: int) -> dict[str, Any]:
        with OF_RUNTIME():
            part = system.context(number).part
        return {"name": part.name.encode(), "totalGlobalMem": part.memory_bytes}

    return SimpleNamespace(
        CUDARuntimeError=cupy.cuda.runtime.CUDARuntimeError,
        getDevice=lambda: system.current.number,
        getDeviceCount=lambda: len(system.contexts),
        getDeviceProperties=properties,
        driverGetVersion=lambda: system.version,
        memGetInfo=memory,
    )


class Device:
    def __init__(self, system: System, number: int | None):
        self.system = system
        self.id = system.current.number if number is None else int(number)
        self._before: list[int] = []

    def use(self) -> None:
        with OF_RUNTIME():
            self.system.context(self.id)
        self.system.current.number = self.id

    def __enter__(self) -> Device:
        self._before.append(self.system.current.number)
        self.use()
        return self

    def __exit__(self, *error: object) -> None:
        self.system.current.number = self._before.pop()

    @property
    def attributes(self) -> dict[str, int]:
        with OF_RUNTIME():
            return dict(self.system.context(self.id).part.attributes)

    @property
    def compute_capability(self) -> str:
        with OF_RUNTIME():
            return "".join(map(str, self.system.context(self.id).part.capability))


class Module:
    """See cupy.cuda.Module: unloaded with its last reference."""

    def __init__(self, system: System):
        self.system, self.module = system, None

    def load(self, image: bytes) -> None:
        with OF_DRIVER():
            self.module = self.system.context().load(image)

    def get_function(self, name: str) -> Function:
        with OF_DRIVER():
            return Function(self, self.system.context().function(self.module, name))

    def __del__(self) -> None:
        if self.module is not None:
            self.module.loaded = False


class Function:
    """See cupy.cuda.Function: it launches on the current stream, and passes an address for each argument."""

    def __init__(self, module: Module, function: Any):
        self.module, self.function, self.ptr = module, function, function.handle

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Any,
        shared_mem: int = 0,
        stream: Stream | None = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Launch the kernel; CuPy makes empty axes those of one block or thread."""
        system = self.module.system
        grid, block = (tuple(max(1, each) for each in (*sizes, 1, 1)[:3]) for sizes in (grid, block))
        with OF_DRIVER():
            place = (stream or current_stream(system)).ptr
            pointers = [address(each) for each in args]
            system.launch(self.function, grid, block, shared_mem, place, pointers, together=enable_cooperative_groups)
