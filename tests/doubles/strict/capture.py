"""Streams and events, and graph capture: which calls it forbids, what is captured, and graphs.

A GPU may run an operation of a stream at once or late. Here it runs as late as possible, so that an effect without a
wait is missing; only the ends of memory come early, so that memory freed too soon no longer has its contents.

After the CUDA Driver API's cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode, and the CUDA C++ Programming
Guide, "Stream Capture".
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .results import Status

GLOBAL, THREAD_LOCAL, RELAXED = range(3)


class Operation:
    """Work of the device, after other operations."""

    def __init__(self, work: Callable[[], None], after: Iterable[Operation]):
        self.work, self.done = work, False
        self.after = [each for each in after if not each.done]


def run(wanted: Operation, failed: Callable[[Operation], None]) -> None:
    """Run an operation after all that it waits for; `failed` runs the work of each and takes its faults."""
    waiting = [wanted]
    while waiting:
        operation = waiting[-1]
        first = [each for each in operation.after if not each.done]
        if operation.done or not first:
            waiting.pop()
            if not operation.done:
                operation.done, operation.after = True, []
                failed(operation)
        else:
            waiting.extend(first)


class Stream:
    """A stream: its last operation, and the last of them that ended a use of memory.

    `blocking`: its operations wait for the legacy stream's, and the other way round. `capture` is its Capture, if any.
    """

    def __init__(self, handle: int, blocking: bool = True):
        self.handle, self.blocking = handle, blocking
        self.last = self.last_end = Operation(lambda: None, ())
        self.last.done = True
        self.capture: Any = None


class Event:
    """An event: the operation before it, or the captured nodes."""

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self.capture: Any = None
        self.nodes: frozenset[int] = frozenset()


class Node(NamedTuple):
    """A captured operation: its name, its work, and the allocations that it was captured with."""

    name: str
    work: Callable[[], None]
    uses: tuple[tuple[int, int | None], ...]


class Graph:
    """The captured operations. User objects end with the last reference: of the graph or of launches that wait."""

    def __init__(self, number: int):
        self.number = number
        self.nodes: list[Node] = []
        self.retained: list[tuple[int, int]] = []
        self.launched_on: Stream | None = None
        self.destroyed = False

    @property
    def handle(self) -> int:
        return 0x900000 + 16 * self.number

    def end(self) -> None:
        """Call the destructors of its user objects as the driver does: without the interpreter's lock."""
        for pointer, destructor in self.retained:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destructor)(pointer)
        self.retained.clear()


class Capture:
    """A capture in progress: its mode, its thread, its streams, and the nodes that the next of each depends on."""

    def __init__(self, number: int, mode: int, origin: Stream):
        self.graph, self.mode = Graph(number), mode
        self.thread, self.valid = threading.get_ident(), True
        self.tips: dict[int, frozenset[int]] = {}
        self.streams: list[Stream] = []
        self.join(origin, frozenset())

    def join(self, stream: Stream, nodes: frozenset[int]) -> None:
        if stream not in self.streams:
            self.streams.append(stream)
            stream.capture = self
        self.tips[id(stream)] = self.tips.get(id(stream), frozenset()) | nodes

    def tip(self, stream: Stream) -> frozenset[int]:
        return self.tips[id(stream)]

    def add(self, stream: Stream, name: str, work: Callable[[], None], uses: Iterable = ()) -> None:
        if not self.valid:
            raise Status(901, f"{name} in a capture that has failed")
        self.graph.nodes.append(Node(name, work, tuple(uses)))
        self.tips[id(stream)] = frozenset((len(self.graph.nodes),))

    def end(self) -> Graph:
        """Return the graph; raises why there is none."""
        for each in self.streams:
            each.capture = None
        if not self.valid:
            raise Status(901, "a call has invalidated the capture")
        return self.graph


def forbidden_by(captures: list[Capture], mode: int) -> list[Capture]:
    """Return the captures that an unsafe call of this thread, in its own mode, would break."""
    here = threading.get_ident()
    if mode == RELAXED:
        return []
    local = [each for each in captures if each.thread == here and each.mode != RELAXED]
    others = [each for each in captures if each.thread != here and each.mode == GLOBAL]
    return local + others if mode == GLOBAL else local
