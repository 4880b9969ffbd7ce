"""A vectorised hash table from encoded points to dense ids, in the order of first appearance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FREE = np.int64(-1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Fibonacci hashing spreads neighbouring codes


class CodeTable:
    """Open addressing over two arrays. Ids are 0, 1, 2, ...; `codes[i]` is the code with id i.

    Nothing is ever overwritten or forgotten, so `len(table)` counts distinct codes exactly.
    """

    def __init__(self, bits: int = 14):
        """`bits`: log2 of the first number of slots; the table doubles when half full."""
        self._count = 0
        self.codes = np.empty(1 << (bits - 1), np.int64)
        self._allocate(bits)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.full(1 << bits, _FREE, np.int64)
        self._ids = np.full(1 << bits, -1, np.int32)
        self._owner = np.empty(1 << bits, np.int32)

    def __len__(self) -> int:
        return self._count

    def intern(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Ids of `codes` (n,) int64, non-negative; unknown ones are added in order of first appearance.

        Returns (ids (n,) int32, positions of the first appearance of each new code).
        """
        before = self._count
        self._reserve(before + codes.size)
        slot = self._slots(codes)
        ids = self._ids[slot]
        new = np.flatnonzero(ids < 0)
        if new.size:
            places = slot[new]
            # Written backwards, so that the first of several equal codes is the one that stays.
            self._owner[places[::-1]] = new[::-1]
            first = new[self._owner[places] == new]
            self._count = before + first.size
            self.codes[before : self._count] = codes[first]
            self._ids[slot[first]] = np.arange(before, self._count, dtype=np.int32)
            return self._ids[slot], first
        return ids, new

    def _slots(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of every code, claiming free slots for unknown ones (linear probing)."""
        keys, last = self._keys, (1 << self._bits) - 1
        slot = ((codes.view(np.uint64) * _GOLDEN) >> np.uint64(64 - self._bits)).view(np.int64)
        pending = np.arange(codes.size)
        wanted, place = codes, slot
        while pending.size:
            found = keys[place]
            free = found == _FREE
            if free.any():
                # Several codes may want one slot: the last writer has it, the others probe on.
                keys[place[free]] = wanted[free]
                found = keys[place]
            elsewhere = np.flatnonzero(found != wanted)
            slot[pending] = place
            pending, wanted = pending[elsewhere], wanted[elsewhere]
            place = (place[elsewhere] + 1) & last
        return slot

    def _reserve(self, count: int) -> None:
        """Make room for `count` codes in at most half the slots."""
        bits = self._bits
        while count > 1 << (bits - 1):
            bits += 1
        if bits == self._bits:
            return
        codes = np.empty(1 << (bits - 1), np.int64)
        codes[: self._count] = self.codes[: self._count]
        self.codes = codes
        self._allocate(bits)
        known = self.codes[: self._count]
        self._ids[self._slots(known)] = np.arange(self._count, dtype=np.int32)


def grown(array: NDArray, size: int) -> NDArray:
    """`array` with room for `size` rows: itself, or a copy of twice the length whose new rows are empty."""
    if size <= len(array):
        return array
    larger = np.empty((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
