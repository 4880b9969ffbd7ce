"""A thread's own Params: kernels are launched from it, so no two threads may share one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from ..programs.params import SIZE


class Arguments(threading.local):
    """`arguments` is, in each thread, a bytearray of the size of Params and what launches take it by.

    `handle` makes the latter from the buffer's address, which does not change while the thread lives.
    """

    def __init__(self, handle: Callable[[int], Any] = lambda address: address):
        buffer = bytearray(SIZE)
        self._pinned = (ctypes.c_char * SIZE).from_buffer(buffer)  # a bytearray that is exported cannot move
        self.arguments = buffer, handle(ctypes.addressof(self._pinned))
