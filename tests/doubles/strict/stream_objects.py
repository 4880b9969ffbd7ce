"""CuPy's streams, events and graphs over a System.

Read in CuPy 13.3 to 14.2: cupy/cuda/{stream,graph}.pyx, cupy_backends/cuda/api/runtime.pyx.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from . import capture
from .capture import RELAXED, Graph
from .results import Status, raising
from .system import System

DriverError = raising(cupy.cuda.driver.CUDADriverError, "CUDADriverError")
RuntimeError_ = raising(cupy.cuda.runtime.CUDARuntimeError, "CUDARuntimeError")


@contextmanager
def _raises(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except Status as status:
        raise kind(status) from None


OF_DRIVER, OF_RUNTIME = (lambda: _raises(DriverError)), (lambda: _raises(RuntimeError_))


def current_stream(system: System) -> Stream:
    streams_of = system.current.streams
    if system.current.number not in streams_of:
        streams_of[system.current.number] = Stream(system, 0)
    return streams_of[system.current.number]


class Stream:
    def __init__(self, system: System, handle: int):
        self.system, self.ptr = system, handle
        self._before: list[Stream] = []

    @property
    def stream(self) -> capture.Stream:
        with OF_RUNTIME():
            return self.system.context().stream(self.ptr)

    def use(self) -> Stream:
        self.system.current.streams[self.system.current.number] = self
        return self

    def __enter__(self) -> Stream:
        self._before.append(current_stream(self.system))
        return self.use()

    def __exit__(self, *error: object) -> None:
        self._before.pop().use()

    def synchronize(self) -> None:
        with OF_RUNTIME():
            self.system.context().synchronize(self.stream)

    def record(self, event: Event | None = None) -> Event:
        event = event or Event(self.system)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
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
        """See cupy.cuda.Stream.begin_capture: relaxed by default."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        with OF_RUNTIME():
            self.system.context().begin(self.stream, RELAXED if mode is None else mode)

    def end_capture(self) -> CapturedGraph:
        with OF_RUNTIME():
            return CapturedGraph(self.system, self.system.context().end(self.stream))


def stream_type(system: System) -> Any:
    def made(null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None) -> Stream:
        if null or ptds:
            return Stream(system, 2 if ptds else 0)
        with OF_RUNTIME():
            return Stream(system, system.context().new_stream(not non_blocking).handle)

    made.null, made.ptds = Stream(system, 0), Stream(system, 2)  # type: ignore[attr-defined]
    made.from_external = lambda other: Stream(system, other.__cuda_stream__()[1])  # type: ignore[attr-defined]
    return made


class Event:
    def __init__(self, system: System):
        self.system, self.event = system, capture.Event()

    def record(self, stream: Stream | None = None) -> None:
        with OF_RUNTIME():
            self.system.context().record(self.event, (stream or current_stream(self.system)).stream)

    def synchronize(self) -> None:
        with OF_RUNTIME():
            self.system.context().synchronize(self.event)

    @property
    def done(self) -> bool:
        with OF_RUNTIME():
            return self.system.context().query(self.event)


class CapturedGraph:
    def __init__(self, system: System, graph: Graph):
        self.system, self.context, self.graph = system, system.context(), graph

    def launch(self, stream: Stream | None = None) -> None:
        with OF_RUNTIME():
            self.context.replay(self.graph, (stream or current_stream(self.system)).stream)

    def destroy(self) -> None:
        self.context.destroy(self.graph)

    __del__ = destroy
