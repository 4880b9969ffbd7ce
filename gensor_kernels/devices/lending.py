"""Memory that a caller chooses: within `Device.lending`, every allocation of a thread is a request to a lender.

The lender sees the size of each request and the moment when its memory is no longer referenced; with both it plans
where the requests of the next run go (graph/execution/arena.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING

from .driver import relaxed_capture

if TYPE_CHECKING:
    from .cupy_internals import Memory

#: The byte that fills memory of the emulator whose contents nothing may read: a NaN in every floating-point type.
POISON = 0xFF


class Lease:
    """Memory in use: `returned` is called with `number` when the last reference is gone.

    Attributes
    ----------
    address : int
        Address of the memory. With 0 the device allocates memory, and stores it in `address` and `memory`.
    """

    __slots__ = ("address", "memory", "number", "returned")

    def __init__(self, number: int, address: int, returned: Callable[[int], None] | None):
        self.number, self.address, self.returned = number, address, returned
        self.memory: Memory = None

    def __del__(self) -> None:
        if self.returned is not None:  # from wherever Python drops it: without a lock
            self.returned(self.number)


#: Answers a request for a number of bytes, which is never 0.
Lender = Callable[[int], Lease]


class Lent(threading.local):
    """The lender of each thread's allocations on a device; None: memory comes from the device."""

    lender: Lender | None = None


class LendingAllocator:
    """CuPy's allocator within `lending`. `base` is the caller's, `captures`: allocations happen inside a capture."""

    def __init__(self, cuda: ModuleType, lender: Lender, base: Callable[[int], Memory], number: int, captures: bool):
        self.base = base
        self._cuda, self._lender, self._number, self._captures = cuda, lender, number, captures

    def __call__(self, nbytes: int) -> Memory:
        """Return memory of the lender's choice."""
        if nbytes == 0:
            return self.base(0)
        lease = self._lender(nbytes)
        if not lease.address:
            with relaxed_capture() if self._captures else nullcontext():
                lease.memory = self.base(nbytes)
            lease.address = lease.memory.ptr
        return self._cuda.MemoryPointer(self._cuda.UnownedMemory(lease.address, nbytes, lease, self._number), 0)
