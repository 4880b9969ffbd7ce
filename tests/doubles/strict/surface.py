"""CuPy's surface over a System: as much of `cupy` and `cupy.cuda` as the package asks for; the rest is CuPy's own.

Read in CuPy 13.3 to 14.2: cupy/cuda/{function,stream,device,graph,memory}.pyx, cupy_backends/cuda/api/runtime.pyx.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import cupy

from . import streams
from .capture import RELAXED, Graph
from .execution import Fault
from .memory import UNIT, Arena, Block
from .results import Status, raising
from .system import System

DriverError = raising(cupy.cuda.driver.CUDADriverError, "CUDADriverError")
RuntimeError_ = raising(cupy.cuda.runtime.CUDARuntimeError, "CUDARuntimeError")


@contextmanager
def _raises(kind: type[Exception]):
    try:
        yield
    except Status as status:
        raise kind(status) from None


OF_DRIVER, OF_RUNTIME = (lambda: _raises(DriverError)), (lambda: _raises(RuntimeError_))


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
        self.Stream = _streams(system)
        self.ExternalStream = lambda handle, device_id=-1: Stream(system, handle)
        self.MemoryPointer = pointer_type(system)
        self.pool = Pool(system, self.MemoryPointer)

    def __getattr__(self, name: str) -> Any:
        return getattr(cupy.cuda, name)

    def get_current_stream(self, device_id: int = -1) -> Stream:
        """See cupy.cuda.get_current_stream."""
        return current_stream(self.system)

    def get_elapsed_time(self, start: Event, end: Event) -> float:
        """See cupy.cuda.get_elapsed_time: milliseconds."""
        with OF_RUNTIME():
            for each in (start, end):
                if each.event.operation is None or not each.event.operation.done:
                    raise Status(600, "an event has not happened")
        return (end.event.microseconds - start.event.microseconds) / 1e3


def _driver(system: System) -> SimpleNamespace:
    def set_attribute(handle: int, attribute: int, value: int) -> None:
        with OF_DRIVER():
            context = system.context()
            if attribute != 8:
                raise Status(1, f"attribute {attribute} of a kernel")
            context.found(handle).allow(context.part, value)

    return SimpleNamespace(
        CUDADriverError=cupy.cuda.driver.CUDADriverError,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        funcSetAttribute=set_attribute,
    )


def _runtime(system: System) -> SimpleNamespace:
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
    )


class Device:
    """See cupy.cuda.Device."""

    def __init__(self, system: System, number: int | None):
        self.system = system
        self.id = system.current.number if number is None else int(number)
        self._before: list[int] = []

    def use(self) -> None:
        """See cupy.cuda.Device.use."""
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
        """See cupy.cuda.Device.attributes."""
        with OF_RUNTIME():
            return dict(self.system.context(self.id).part.attributes)

    @property
    def compute_capability(self) -> str:
        """See cupy.cuda.Device.compute_capability."""
        with OF_RUNTIME():
            return "".join(map(str, self.system.context(self.id).part.capability))


# ---- modules and launches


class Module:
    """See cupy.cuda.Module: unloaded with its last reference."""

    def __init__(self, system: System):
        self.system, self.module = system, None

    def load(self, image: bytes) -> None:
        """Load a module of bytes."""
        with OF_DRIVER():
            self.module = self.system.context().load(image)

    def get_function(self, name: str) -> Function:
        """Find a kernel."""
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
            system.launch(
                self.function, grid, block, shared_mem, place, pointers, cooperative=enable_cooperative_groups
            )


# ---- streams, events and graphs


def current_stream(system: System) -> Stream:
    """Return the calling thread's current stream on its current device."""
    streams_of = system.current.streams
    if system.current.number not in streams_of:
        streams_of[system.current.number] = Stream(system, 0)
    return streams_of[system.current.number]


class Stream:
    """See cupy.cuda.Stream and cupy.cuda.ExternalStream."""

    def __init__(self, system: System, handle: int):
        self.system, self.ptr = system, handle
        self._before: list[Stream] = []

    @property
    def stream(self) -> streams.Stream:
        """The stream of the driver."""
        with OF_RUNTIME():
            return self.system.context().stream(self.ptr)

    def use(self) -> Stream:
        """Make it the current stream."""
        self.system.current.streams[self.system.current.number] = self
        return self

    def __enter__(self) -> Stream:
        self._before.append(current_stream(self.system))
        return self.use()

    def __exit__(self, *error: object) -> None:
        self._before.pop().use()

    def synchronize(self) -> None:
        """See cupy.cuda.Stream.synchronize."""
        with OF_RUNTIME():
            self.system.context().synchronize(self.stream)

    def record(self, event: Event | None = None) -> Event:
        """See cupy.cuda.Stream.record."""
        event = event or Event(self.system)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """See cupy.cuda.Stream.wait_event."""
        with OF_RUNTIME():
            self.system.context().wait(self.stream, event.event)

    def is_capturing(self) -> bool:
        """See cupy.cuda.Stream.is_capturing: an error for a capture that a call has invalidated."""
        with OF_RUNTIME():
            status = self.system.context().capturing(self.stream)
        if status == 2:
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return bool(status)

    def begin_capture(self, mode: int | None = None) -> None:
        """See cupy.cuda.Stream.begin_capture: relaxed, if nothing else is asked for."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        with OF_RUNTIME():
            self.system.context().begin(self.stream, RELAXED if mode is None else mode)

    def end_capture(self) -> CapturedGraph:
        """See cupy.cuda.Stream.end_capture."""
        with OF_RUNTIME():
            return CapturedGraph(self.system, self.system.context().end(self.stream))


def _streams(system: System) -> Any:
    def made(null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None) -> Stream:
        if null or ptds:
            return Stream(system, 2 if ptds else 0)
        with OF_RUNTIME():
            return Stream(system, system.context().new_stream(not non_blocking).handle)

    made.null, made.ptds = Stream(system, 0), Stream(system, 2)  # type: ignore[attr-defined]
    made.from_external = lambda other: Stream(system, other.__cuda_stream__()[1])  # type: ignore[attr-defined]
    return made


class Event:
    """See cupy.cuda.Event."""

    def __init__(self, system: System):
        self.system, self.event = system, streams.Event()

    def record(self, stream: Stream | None = None) -> None:
        """See cupy.cuda.Event.record."""
        with OF_RUNTIME():
            self.system.context().record(self.event, (stream or current_stream(self.system)).stream)

    def synchronize(self) -> None:
        """See cupy.cuda.Event.synchronize."""
        with OF_RUNTIME():
            self.system.context().synchronize(self.event)

    @property
    def done(self) -> bool:
        """See cupy.cuda.Event.done."""
        with OF_RUNTIME():
            return self.system.context().query(self.event)


class CapturedGraph:
    """See cupy.cuda.Graph: the graph and its executable form, which end together."""

    def __init__(self, system: System, graph: Graph):
        self.system, self.context, self.graph = system, system.context(), graph

    def launch(self, stream: Stream | None = None) -> None:
        """See cupy.cuda.Graph.launch."""
        with OF_RUNTIME():
            self.context.replay(self.graph, (stream or current_stream(self.system)).stream)

    def destroy(self) -> None:
        """Destroy the graph, as CuPy does with the last reference."""
        self.context.destroy(self.graph)

    __del__ = destroy


# ---- memory


class _Held:
    """What CuPy's memory refers to while it is in use."""

    def __init__(self, arena: Arena, block: Block):
        self._given = arena, block

    def __del__(self) -> None:
        arena, block = self._given
        arena.ended.append((arena, block))  # from wherever Python drops it: without a lock


class Pool:
    """CuPy's memory pool at its worst: memory that is freed goes to the next call of its stream at once.

    See cupy/cuda/memory.pyx: a pool has an arena for each stream, and memory goes back to the arena it came from.
    """

    def __init__(self, system: System, pointer: Any):
        self.system, self._pointer = system, pointer
        self._arenas: dict[tuple[int, Any], Arena] = {}

    def __call__(self, nbytes: int) -> Any:
        """Allocate memory."""
        number, context = self.system.current.number, self.system.context()
        with context.lock, OF_RUNTIME():
            context.reap()
            stream = context.stream(current_stream(self.system).ptr)
            arena = self._arenas.get((number, stream))
            if arena is None or arena.memory is not context.memory:
                arena = self._arenas[number, stream] = Arena(context.memory, stream, context.ended)
            size = max(-(-nbytes // UNIT), 1) * UNIT
            place = arena.take(size)
            block = context.use_again(stream, *place) if place else self._malloc(context, size)
            return self._pointer(cupy.cuda.UnownedMemory(block.first, block.size, _Held(arena, block), number), 0)

    def _malloc(self, context: Any, size: int) -> Block:
        try:
            return context.malloc(size)
        except Status as status:
            if status.number != 2:
                raise
            self.free_all_blocks()
            return context.malloc(size)

    def free_all_blocks(self) -> None:
        """Give all free memory back to the driver."""
        with OF_RUNTIME():
            for (number, _), arena in self._arenas.items():
                context = self.system.context(number)
                with context.lock:
                    context.reap()
                    while arena.free:
                        context.free(*arena.free.pop())

    def everything(self) -> list[Any]:
        """Allocate all free memory, as calls of others may at any time."""
        taken = []
        for (number, stream), arena in self._arenas.items():
            context = self.system.context(number)
            with context.lock:
                context.reap()
                while arena.free:
                    block = context.use_again(stream, *arena.free.pop())
                    taken.append((arena, _Held(arena, block)))
        return taken

    def in_use(self) -> int:
        """Return the bytes in use on the current device."""
        context = self.system.context()
        with context.lock:
            context.reap()
            return sum(each.size for each in context.memory.by_host.values())


def pointer_type(system: System) -> type:
    """Return CuPy's MemoryPointer with copies and fills that are operations of the current stream."""

    class Pointer(cupy.cuda.MemoryPointer):
        def memset_async(self, value: int, size: int, stream: Stream | None = None) -> None:
            """See cupy.cuda.MemoryPointer.memset_async."""
            place = self.ptr
            enqueue(system, "memset", [place], lambda: ctypes.memset(place, value, size) and None, stream)

    return Pointer


def enqueue(system: System, name: str, places: list[int], work: Any, stream: Stream | None = None) -> None:
    """Put work on memory at some addresses at the end of a stream; it is a fault if that memory is not its own then."""
    context = system.context()

    def checked() -> None:
        damage = context.memory.damage(uses)
        if damage:
            raise Fault(700, f"{name}: {damage}")
        work()

    with context.lock, OF_RUNTIME():
        context.reap()
        uses = context.memory.uses(places)
        context.enqueue(context.stream((stream or current_stream(system)).ptr), name, checked, uses)
