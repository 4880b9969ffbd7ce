"""A device's context: the driver's calls. Errors of kernels come late and stay, until the context is reset."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

from . import elf
from .capture import GLOBAL, Capture, Event, Graph, Operation, Stream, forbidden_by, run
from .launches import Fault, Function, Launch, Module, check, execute
from .memory import Arena, Block, Memory
from .part import Part
from .results import Status

LEGACY, PER_THREAD = 0, 2
#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
DYNAMIC_SHARED_BYTES = 8
_handles = itertools.count(0x1010, 16)


def _call(method: Callable[..., Any]) -> Callable[..., Any]:
    """A call of the driver: one at a time, and none after an error that stays."""

    @wraps(method)
    def called(self: Context, *arguments: Any, **keywords: Any) -> Any:
        with self.lock:
            self.reap()
            if self.failed is not None:
                raise Status(self.failed.number, str(self.failed))
            return method(self, *arguments, **keywords)

    return called


class Context:
    """The state of one device.

    `executors` run the launches of cubins, by `digest`, `executor` those of all other cubins. Without either a launch
    only has to own the memory that its parameters point to. `launches` are all that the device accepted, `failed` is
    the fault that has ended the context.
    """

    def __init__(self, part: Part):
        self.part, self.lock = part, threading.RLock()
        self.executors: dict[str, Callable[..., None]] = {}
        self.executor: Callable[..., None] | None = None
        self.ended: deque[tuple[Arena, Block]] = deque()
        self.modes = threading.local()
        self.reset()

    def reset(self) -> None:
        with self.lock:
            self.memory, self.failed = Memory(), None
            self.functions: dict[int, Function] = {}
            self.streams: dict[Any, Stream] = {LEGACY: Stream(LEGACY)}
            self.captures: list[Capture] = []
            self.captured = 0
            self.objects: dict[int, tuple[int, int]] = {}
            self.launches: list[Launch] = []
            self.modules: list[Module] = []

    def handle(self) -> int:
        return next(_handles)

    @_call
    def load(self, image: bytes) -> Module:
        self.unsafe("cuModuleLoadData")
        if not image.startswith(elf.MAGIC):
            raise Status(218, "no cubin, hence taken for PTX")
        try:
            found = elf.parse(image)
        except elf.DamagedImageError as error:
            raise Status(200, str(error)) from error
        if not self.part.runs(found.capability, found.specific):
            raise Status(209, f"code for {found.capability} on {self.part.capability}")
        module = Module(self.handle(), found, self.executors.get(digest(image), self.executor))
        self.modules.append(module)
        return module

    def module(self, handle: int) -> Module:
        for each in self.modules:
            if each.handle == handle and each.loaded:
                return each
        raise Status(400, f"{handle:#x} is no module of this context")

    @_call
    def function(self, module: Module, name: str) -> Function:
        """Find a kernel (cuModuleGetFunction), which has one handle."""
        if name not in module.image.entries:
            raise Status(500, f"{name} is none of {', '.join(module.image.entries)}")
        for each in self.functions.values():
            if each.module is module and each.name == name:
                return each
        function = Function(self.handle(), module, name)
        self.functions[function.handle] = function
        return function

    def allow(self, handle: int, attribute: int, value: int) -> None:
        function = self.found(handle)
        if attribute != DYNAMIC_SHARED_BYTES:
            raise Status(1, f"attribute {attribute} of a kernel")
        function.allow(self.part, value)

    @_call
    def found(self, handle: int) -> Function:
        function = self.functions.get(handle)
        if function is None or not function.module.loaded:
            raise Status(400, f"{handle:#x} is no kernel of this context")
        return function

    @_call
    def stream(self, handle: int) -> Stream:
        """Return the stream of a handle; the per-thread one is each thread's own."""
        if handle == PER_THREAD:
            return self.streams.setdefault((handle, threading.get_ident()), Stream(handle))
        if handle == 1:
            handle = LEGACY
        if handle not in self.streams:
            raise Status(400, f"{handle:#x} is no stream of this context")
        return self.streams[handle]

    @_call
    def new_stream(self, blocking: bool) -> Stream:
        stream = Stream(self.handle(), blocking)
        self.streams[stream.handle] = stream
        return stream

    @_call
    def enqueue(self, stream: Stream, name: str, work: Callable[[], None], uses: Any = ()) -> None:
        self._implicit(stream, name)
        if stream.capture is not None:
            stream.capture.add(stream, name, work, uses)
        else:
            self.push(stream, work)

    def push(self, stream: Stream, work: Callable[[], None], after: tuple[Operation, ...] = ()) -> Operation:
        others = [each for each in self.streams.values() if each.blocking]
        ordered = others if stream.handle == LEGACY else [self.streams[LEGACY]] if stream.blocking else []
        stream.last = Operation(work, (stream.last, *(each.last for each in ordered), *after))
        return stream.last

    @_call
    def record(self, event: Event, stream: Stream) -> None:
        self._implicit(stream, "cuEventRecord")
        event.capture, event.operation = stream.capture, None
        if stream.capture is not None:
            event.nodes = stream.capture.tip(stream)
            return
        event.operation = self.push(stream, lambda: None)

    @_call
    def wait(self, stream: Stream, event: Event) -> None:
        self._implicit(stream, "cuStreamWaitEvent")
        if event.capture is not None:
            if event.capture not in self.captures:
                raise Status(907, "the event was recorded in a capture that has ended")
            if stream.capture not in (None, event.capture):
                raise Status(902, "two captures would merge")
            event.capture.join(stream, event.nodes)
        elif stream.capture is not None:
            stream.capture.valid = False
            raise Status(905, "the event is outside the capture")
        elif event.operation is not None:
            self.push(stream, lambda: None, (event.operation,))

    @_call
    def synchronize(self, wanted: Stream | Event) -> None:
        if isinstance(wanted, Stream):
            self._implicit(wanted, "cuStreamSynchronize")
        if wanted.capture is not None:
            wanted.capture.valid = False
            raise Status(900, "it would wait for a capture")
        if isinstance(wanted, Event):
            self.unsafe("cuEventSynchronize")
        self.drain(wanted.last if isinstance(wanted, Stream) else wanted.operation)
        if self.failed is not None:
            raise Status(self.failed.number, str(self.failed))

    @_call
    def query(self, event: Event) -> bool:
        if event.capture is not None:
            raise Status(907, "the event was recorded in a capture")
        self.unsafe("cuEventQuery")
        return event.operation is None or event.operation.done

    def drain(self, wanted: Operation | None) -> None:
        """Run an operation and all before it, after the ends of memory that other streams have come to."""
        for stream in list(self.streams.values()):
            run(stream.last_end, self._run)
        if wanted is not None:
            run(wanted, self._run)

    def _run(self, operation: Operation) -> None:
        if self.failed is None:
            try:
                operation.work()
            except Fault as fault:
                self.failed = fault

    def reap(self) -> None:
        """Take the memory that Python has dropped, wherever that was."""
        while self.ended:
            arena, block = self.ended.popleft()
            arena.take_back(block)
            if arena.memory is self.memory:
                stream = arena.stream
                stream.last_end = self.push(stream, lambda block=block: self.memory.disown(block))

    @_call
    def malloc(self, nbytes: int) -> Block:
        self.unsafe("cudaMalloc")
        return self.memory.allocate(nbytes)

    @_call
    def free(self, first: int, size: int) -> None:
        self.unsafe("cudaFree")
        for stream in list(self.streams.values()):
            run(stream.last, self._run)
        self.memory.give_back(first, size)

    @_call
    def use_again(self, stream: Stream, first: int, size: int) -> Block:
        """Give memory that the host has freed to the next user in the order of a stream."""
        block = self.memory.use(first, size)
        stream.last_end = self.push(stream, lambda: self.memory.own(block))
        return block

    @_call
    def launch(self, launch: Launch, stream: Stream) -> None:
        if self.found(launch.function.handle) is not launch.function:
            raise Status(400, "a kernel of another context")
        check(self.part, launch)
        self.enqueue(stream, launch.function.name, lambda: execute(self.part, self.memory, launch), launch.uses)
        self.launches.append(launch)

    def unsafe(self, name: str) -> None:
        """Refuse a call that a capture forbids, which breaks that capture."""
        broken = forbidden_by(self.captures, getattr(self.modes, "mode", GLOBAL))
        for each in broken:
            each.valid = False
        if broken:
            raise Status(900, f"{name} during a capture")

    def _implicit(self, stream: Stream, name: str) -> None:
        """Refuse a use of the legacy stream while a stream that waits for it is captured."""
        if stream.handle != LEGACY:
            return
        broken = [each for each in self.captures if any(own.blocking for own in each.streams)]
        for each in broken:
            each.valid = False
        if broken:
            raise Status(906, f"{name} on the legacy stream during a capture")

    @_call
    def begin(self, stream: Stream, mode: int) -> None:
        if stream.handle == LEGACY:
            raise Status(900, "the legacy stream cannot be captured")
        if stream.capture is not None:
            raise Status(1, "the stream is captured already")
        self.captured += 1
        self.captures.append(Capture(self.captured, mode, stream))

    @_call
    def end(self, stream: Stream) -> Graph:
        capture = stream.capture
        if capture is None:
            raise Status(1, "the stream is not captured")
        self.captures.remove(capture)
        return capture.end()

    @_call
    def capturing(self, stream: Stream) -> int:
        """Return a stream's state (cuStreamIsCapturing): 0, 1, or 2 for a capture that has failed."""
        if stream.handle == LEGACY and any(own.blocking for each in self.captures for own in each.streams):
            raise Status(906, "the legacy stream during a capture")
        return 0 if stream.capture is None else 1 if stream.capture.valid else 2

    @_call
    def replay(self, graph: Graph, stream: Stream) -> None:
        if graph.destroyed:
            raise Status(400, "the graph is destroyed")
        for node in graph.nodes:
            self.enqueue(stream, node.name, node.work, node.uses)
        graph.launched_on = stream

    def destroy(self, graph: Graph) -> None:
        """Destroy a graph, and its user objects after its last launch."""
        with self.lock:
            graph.destroyed = True
            if graph.launched_on is None or self.failed is not None:
                graph.end()
            else:
                self.push(graph.launched_on, graph.end)


def digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()
