"""Device memory: real host memory, with gaps between blocks.

Who owns a block is known twice: to the host, as soon as memory is allocated or freed, and to the device, where its
stream has got so far. A launch that runs when its memory is somebody else's by the device's count is a fault.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .results import Status

#: Sizes are multiples of it, as are the gaps between blocks.
UNIT = 512
#: Bytes of addresses: untouched pages cost nothing.
RESERVED = 1 << 36
FLAGS = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000} if sys.platform == "linux" else {}  # MAP_NORESERVE
#: Freed memory holds it, a NaN of every floating-point type; of large blocks, MOST_POISONED bytes at both ends.
POISON, MOST_POISONED = 0xFF, 4 << 20


class Block(NamedTuple):
    """An allocation: its address, its bytes, and the serial number of this use."""

    first: int
    size: int
    serial: int

    def has(self, address: int) -> bool:
        return self.first <= address < self.first + self.size


class Memory:
    """The memory of one device. `by_host` are the blocks in use, `by_device` the serial numbers that own them."""

    def __init__(self) -> None:
        self._pages = mmap.mmap(-1, RESERVED, **FLAGS)
        self._view = (ctypes.c_char * RESERVED).from_buffer(self._pages)
        self.lowest = -(-ctypes.addressof(self._view) // UNIT) * UNIT
        self.end = ctypes.addressof(self._view) + RESERVED
        self.top, self.serial = self.lowest, 0
        self.by_host: dict[int, Block] = {}
        self.by_device: dict[int, Block] = {}
        self._given_back: list[tuple[int, int]] = []

    def allocate(self, nbytes: int) -> Block:
        size = max(-(-nbytes // UNIT), 1) * UNIT
        place = next((each for each in self._given_back if each[1] == size), None)
        if place is not None:
            self._given_back.remove(place)
            return self.use(place[0], size, True)
        if self.top + size + UNIT > self.end:
            raise Status(2, f"{size} bytes")
        first = self.top
        self.top += size + UNIT
        return self.use(first, size, True)

    def use(self, first: int, size: int, owned: bool = False) -> Block:
        """Give a free block to its next user; `owned` by the device at once."""
        self.serial += 1
        block = self.by_host[first] = Block(first, size, self.serial)
        if owned:
            self.own(block)
        return block

    def own(self, block: Block) -> None:
        """Note that the device has come to a use, whose memory holds nothing that anybody wrote."""
        self.poison(block)
        self.by_device[block.first] = block

    def disown(self, block: Block) -> None:
        """Note that the device has come to the end of a use."""
        self.poison(block)
        self.by_device.pop(block.first, None)

    def poison(self, block: Block) -> None:
        some = min(block.size, MOST_POISONED)
        ctypes.memset(block.first, POISON, some)
        ctypes.memset(block.first + block.size - some, POISON, some)

    def give_back(self, first: int, size: int) -> None:
        self._given_back.append((first, size))

    def whose(self, address: int) -> Block | None:
        """Return the block in use that contains an address, as the host knows."""
        return next((each for each in list(self.by_host.values()) if each.has(address)), None)

    def uses(self, words: list[int]) -> tuple[tuple[int, int | None], ...]:
        """Return (address, serial number or None) of words that are addresses of this memory."""
        found = {}
        for word in words:
            if self.lowest <= word < self.end:
                block = self.whose(word)
                found[block.first if block else word] = block.serial if block else None
        return tuple(found.items())

    def damage(self, uses: tuple[tuple[int, int | None], ...]) -> str:
        for first, serial in uses:
            now = self.by_device.get(first)
            if serial is None or now is None or now.serial != serial:
                return f"memory at {first:#x} of use {serial} is {'freed' if now is None else f'use {now.serial}'} now"
        return ""


@dataclass(eq=False)
class Arena:
    """Free memory of a stream in CuPy's pool; `ended` takes uses that Python has dropped, until the next call."""

    memory: Memory
    stream: Any
    ended: deque[tuple[Arena, Block]]
    free: list[tuple[int, int]] = field(default_factory=list)

    def take(self, size: int) -> tuple[int, int] | None:
        """Return (address, size) of what was freed last and is large enough."""
        fitting = [place for place, each in enumerate(self.free) if each[1] >= size]
        return self.free.pop(fitting[-1]) if fitting else None

    def take_back(self, block: Block) -> None:
        self.memory.by_host.pop(block.first, None)
        self.free.append((block.first, block.size))
