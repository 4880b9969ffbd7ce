"""Kernels that stand by for graph capture, of kinds of calls that the array library serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Standby:
    """The Plan that launches kernels inside a capture, in the place of the library's call, which cannot be recorded.

    It is made at the second run, where it is `wanted` at all: that costs milliseconds and loads a kernel, which shapes
    that never come back must not pay for. Inside a capture only kernels that are loaded already can stand by.
    """

    def __init__(self, device: Any, wanted: bool):
        self.device, self.wanted = device, wanted
        self.runs_to_wait = 1 if wanted else -1
        self.plan: Any = None

    def now(self, make: Callable[[bool], Any]) -> Any:
        """The Plan of this run, None outside of a capture; `make` is told whether there is one."""
        if self.runs_to_wait > 0:
            self.runs_to_wait -= 1
            return None
        if self.runs_to_wait < 0 and self.plan is None:
            return None
        capturing = self.device.capturing()
        if self.runs_to_wait == 0:
            self.plan = make(capturing)
            self.runs_to_wait = 0 if capturing and self.plan is None else -1
        return self.plan if capturing else None
