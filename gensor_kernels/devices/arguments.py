"""Params in memory: kernels are launched from it, so no two threads may write one at a time."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable
from typing import Any

from gensor_kernels.programs.core.params import SIZE


class Arguments(threading.local):
    """`arguments` is, in each thread, a bytearray of the size of Params and what launches take it by.

    `handle` makes the latter from the buffer's address, which does not change while the thread lives.
    """

    def __init__(self, handle: Callable[[int], Any] = lambda address: address):
        buffer = bytearray(SIZE)
        self._pinned = (ctypes.c_char * SIZE).from_buffer(buffer)  # a bytearray that is exported cannot move
        self.arguments = buffer, handle(ctypes.addressof(self._pinned))


#: A typecode of unsigned 64-bit words; of the two, array is quicker with "L".
WORD = "L" if array("L").itemsize == 8 else "Q"


def ready(template: bytes, handle: Callable[[int], Any] = lambda address: address) -> tuple[array[int], Any]:
    """New Params that start as `template`: their words, to write addresses to, and what launches take them by.

    The words must not be resized: they would move.
    """
    words = array(WORD, template)
    return words, handle(words.buffer_info()[0])
