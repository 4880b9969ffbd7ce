"""One arena for the activations of a run: the offset of each request for memory, from the times when it is in use.

The order of requests and returns of a run is the same whenever the same nodes run on the same signature. A Ledger notes
it, `make_layout` assigns each request a place in one piece of memory, and the Ledger of the next run hands out these
places. It checks the plan: a place that is still in use is not handed out, and the run counts as a different one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gensor_kernels.devices.lending import POISON, Lease

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.bound import Repeat

#: Alignment of places in bytes: at least that of any kernel or tensor map.
UNIT = 256

#: The node that makes a request, and the number of the request among those of the node.
Key = tuple[int, int]


class Use(NamedTuple):
    """A request for memory and its lifetime: [first, last) in a count of requests and returns."""

    key: Key
    nbytes: int
    first: int
    last: int


class Place(NamedTuple):
    """Offset of a request in the arena, and the node that frees it (None, or past the last, for the end of the run)."""

    offset: int
    nbytes: int
    dies: int | None

    def meets(self, other: Place) -> bool:
        """Return whether two places overlap."""
        return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes


class Layout(NamedTuple):
    """Places of all requests."""

    places: dict[Key, Place]
    #: Size of the arena.
    nbytes: int
    #: Bytes of the largest set of requests in use at a time: no arena is smaller.
    live: int
    #: Bytes of all requests together.
    requested: int


def round_up(nbytes: int) -> int:
    """Return the bytes of the arena that a request takes."""
    return -(-nbytes // UNIT) * UNIT


def offsets(uses: Sequence[Use]) -> list[int]:
    """Return offsets at which requests with common lifetimes do not overlap.

    The best of several greedy orders: each request goes into the smallest gap between those whose lifetimes it meets.
    """
    load = _load(uses, [round_up(use.nbytes) for use in uses])
    orders = (
        lambda use: (-use.nbytes, use.first),
        lambda use: (-max(load[use.first : use.last], default=0), -use.nbytes, use.first),
        lambda use: (-use.nbytes * (use.last - use.first), use.first),
        lambda use: (use.first - use.last, -use.nbytes, use.first),
        lambda use: (use.first, -use.nbytes),
    )
    best: list[int] = []
    height = -1
    for order in orders:
        ranks = [order(use) for use in uses]
        found = _assign(uses, sorted(range(len(uses)), key=ranks.__getitem__))
        top = max((low + round_up(use.nbytes) for low, use in zip(found, uses, strict=True)), default=0)
        if height < 0 or top < height:
            best, height = found, top
        if height <= max(load):
            break
    return best


def _load(uses: Sequence[Use], sizes: Sequence[int]) -> list[int]:
    """Return the bytes in use at each time."""
    changes = np.zeros(max((use.last for use in uses), default=0) + 1, np.int64)
    np.add.at(changes, [use.first for use in uses], sizes)
    np.subtract.at(changes, [use.last for use in uses], sizes)
    found: list[int] = changes.cumsum().tolist()
    return found


def _assign(uses: Sequence[Use], order: Sequence[int]) -> list[int]:
    """Return the offsets of requests that are placed in this order.

    Models that run by the array library make thousands of requests, so each step is a few array operations.
    """
    found = [0] * len(uses)
    done = np.empty((4, len(uses)), np.int64)  # low, high, first, last of the places so far, by low
    for count, number in enumerate(order):
        use, (low, high, first, last) = uses[number], done[:, :count]
        size, meets = round_up(use.nbytes), (first < use.last) & (last > use.first)
        ends = np.maximum.accumulate(np.concatenate(([0], high[meets])))
        gaps = low[meets] - ends[:-1]
        fits = np.flatnonzero(gaps >= size)
        found[number] = at = int(ends[fits[np.argmin(gaps[fits])]] if len(fits) else ends[-1])
        place = int(np.searchsorted(low, at, side="right"))
        done[:, place + 1 : count + 1] = done[:, place:count].copy()
        done[:, place] = at, at + size, use.first, use.last
    return found


def make_layout(uses: Sequence[Use], ends: dict[Key, int | None]) -> Layout:
    """Return the places of requests; `ends` names the node in which each was returned."""
    places = {
        use.key: Place(offset, use.nbytes, ends[use.key]) for use, offset in zip(uses, offsets(uses), strict=True)
    }
    nbytes = max((place.offset + round_up(place.nbytes) for place in places.values()), default=0)
    sizes = [use.nbytes for use in uses]
    return Layout(places, nbytes, max(_load(uses, sizes)), sum(sizes))


class Ledger:
    """Notes the requests of one run, and hands out the places of a Layout, from the address `base` on.

    Without a Layout, or where a request differs from it, the device allocates memory.
    """

    def __init__(self, layout: Layout | None = None, base: int = 0):
        self.layout, self.base = layout, base
        self._has_followed = layout is not None
        self._node, self._number = -1, 0
        self._keys: list[tuple[Key, int, int]] = []  # (key, bytes, address)
        self._events: list[int] = []  # the number of a request; ~number: its return
        self._ends: dict[Key, int] = {}
        self._seen = 0
        self._used: dict[int, tuple[int, int]] = {}  # addresses of requests in use, by number

    def begin(self, node: int) -> None:
        """Begin a node; -1 are the inputs, and the results come after the last node."""
        self._settle()
        self._node, self._number = node, 0

    def lease(self, nbytes: int) -> Lease:
        """Answer a request."""
        self._settle()
        key, number, address = (self._node, self._number), len(self._keys), 0
        self._number += 1
        if self.layout is not None:
            place = self.layout.places.get(key)
            if place is not None and place.nbytes == nbytes:
                address = self.base + place.offset
                if any(low < address + nbytes and address < high for low, high in self._used.values()):
                    address = 0
            self._has_followed &= address != 0
        self._keys.append((key, nbytes, address))
        self._events.append(number)
        return Lease(number, address, self._return)

    def _return(self, number: int) -> None:
        self._events.append(~number)

    def _settle(self) -> None:
        """Process the returns so far, which belong to the current node."""
        while self._seen < len(self._events):
            event = self._events[self._seen]
            self._seen += 1
            if event >= 0:
                _, nbytes, address = self._keys[event]
                if address:
                    self._used[event] = address, address + nbytes
            else:
                self._used.pop(~event, None)
                self._ends[self._keys[~event][0]] = self._node

    def follows(self) -> bool:
        """Return whether the requests were those of the Layout, all of them, with free places."""
        return self._has_followed and self.layout is not None and len(self._keys) == len(self.layout.places)

    def in_use(self) -> bool:
        """Return whether a place of the arena is in use."""
        self._settle()
        return bool(self._used)

    def make_layout(self) -> Layout:
        """Return the Layout of this run; memory that was not freed is in use to the end."""
        self._settle()
        times = {event: time for time, event in enumerate(self._events)}
        uses = [
            Use(key, nbytes, times[number], times.get(~number, len(times)))
            for number, (key, nbytes, _) in enumerate(self._keys)
        ]
        return make_layout(uses, {use.key: self._ends.get(use.key) for use in uses})


class Arena:
    """Memory for the places of a Layout, on the current stream."""

    def __init__(self, device: Device, layout: Layout):
        self.device, self.layout = device, layout
        self.owner = device.empty((layout.nbytes + UNIT,), np.dtype(np.uint8))
        self.base = round_up(device.pointer(self.owner))

    def holds(self, array: DeviceArray) -> bool:
        """Return whether an array is part of the arena."""
        return self.base <= self.device.pointer(array) < self.base + self.layout.nbytes

    def pin(self, array: DeviceArray) -> DeviceArray:
        """Return an array that keeps the arena alive if it is part of it; other arrays unchanged."""
        if not self.holds(array):
            return array
        at, shape, strides = self.device.pointer(array), tuple(array.shape), tuple(array.strides)
        return self.device.borrow(at, shape, strides, array.dtype, self.owner, self.device.number)

    def poison(self, node: int) -> list[Repeat]:
        """Return functions that overwrite, on the emulator, the memory that is unused after a node."""
        places = self.layout.places
        alive = [place for key, place in places.items() if key[0] <= node and (place.dies is None or place.dies > node)]
        dead = [place for place in places.values() if place.dies == node and not any(map(place.meets, alive))]
        return [partial(_spoil, self.base + place.offset, place.nbytes) for place in dead]


def _spoil(address: int, nbytes: int) -> None:
    ctypes.memset(address, POISON, nbytes)
