"""A machine of one or more GPUs: which device and stream are current in a thread, and launches on them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from .context import Context
from .launches import Function, Launch, Three, words
from .part import part
from .results import Status, UndefinedError


class _Current(threading.local):
    """The current state of a thread: the device's number, and the stream of each device."""

    def __init__(self) -> None:
        self.number = 0
        self.streams: dict[int, object] = {}


class System:
    """The driver's state. `version` is the newest CUDA it supports, 1000 * major + 10 * minor.

    `refuses` has the status of functions of the driver library that fail at any call, `called` the (function, status)
    of each call of that library, and `undefined` the mistakes of callers that a driver does not notice.
    """

    def __init__(self, parts: Sequence[str] = ("h200",), version: int = 13000):
        self.contexts = [Context(part(name)) for name in parts]
        self.current, self.version = _Current(), version
        self.refuses: dict[str, int] = {}
        self.called: list[tuple[str, int]] = []
        self.undefined: list[str] = []

    def context(self, number: int | None = None) -> Context:
        """Return a device's context, by default the current one's."""
        number = self.current.number if number is None else number
        if not 0 <= number < len(self.contexts):
            raise Status(101, f"device {number} of {len(self.contexts)}")
        return self.contexts[number]

    def launch(
        self,
        function: Function,
        grid: Three,
        block: Three,
        shared_bytes: int,
        stream: int,
        pointers: Sequence[int],
        dependent: bool = False,
        together: bool = False,
    ) -> None:
        sizes, context = function.entry.parameters, self.context()
        if len(pointers) != len(sizes):
            raise UndefinedError(f"{function.name} takes {len(sizes)} arguments, not {len(pointers)}")
        passed = b"".join(ctypes.string_at(place, size) for place, size in zip(pointers, sizes, strict=True))
        with context.lock:
            context.reap()
            uses = context.memory.uses(words(passed))
            launch = Launch(
                *(function, grid, block, shared_bytes, passed, dependent, together, uses, stream),
                next(iter(pointers), 0),
            )
            context.launch(launch, context.stream(stream))
