"""Streams and events: operations wait in their streams until a caller waits for their effects.

A GPU may run an operation at once or late. Here it runs as late as possible, so that an effect without
a wait is missing; only the ends of memory come early, so that memory freed too soon no longer has its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


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
