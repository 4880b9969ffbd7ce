"""Times of a few calls on the current stream, within a budget: the measurements of a race.

Before every sample a fill (`Fill`) takes the operands out of the L2 cache, and keeps the device busy while the host
enqueues the calls, so that the device's time and the host's are measured apart. Samples of all calls are interleaved,
so that a change of the clock affects all of them. The caller's arrays are the operands; only the fill is allocated.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np

from . import originals
from .cupy_internals import Event, backends
from .driver import relaxed_capture

#: Most samples of each call before the fastest meets the library's call alone.
ROUNDS = 9
#: One race may take this long, or this many calls where that takes longer. A caller does not notice 50 ms, once per
#: kind of call; ten calls are the least in which two calls can be distinguished, with a few samples of each.
BUDGET_US, LEAST_CALLS = 50_000.0, 10
#: Share of what is left of the budget after the first calls that samples of all may take; a duel needs the rest.
SHARE = 0.5
#: A call that takes more than this many times the fastest one's time leaves after its first sample: noise, the clock
#: and a cache that is warm change no time by as much, and each further sample of the slowest would cost most.
FAR_SLOWER = 3.0
#: A first call that takes longer than this is a sample, unless the host took more than `LOADING` of it: loading a
#: kernel or compiling one is work of the host. A shorter call is made again, which costs little.
LONG_US, LOADING = 1_000.0, 0.05
SAMPLE_US = 40.0  # short calls are repeated until a sample is this long: events resolve half a microsecond
MOST_REPEATS = 16
SMALLEST_FILL = 32 << 20
ROW = 4096  # elements of a fill that are summed to one
#: Most host time that fills hide: a call with more host time waits for the device itself, and a longer fill would only
#: lengthen that wait.
MOST_HIDDEN_US = 5_000.0
#: File in which nvpmodel keeps the current mode (JetPack 5 and 6).
POWER_MODE = Path("/var/lib/nvpmodel/status")

Call = Callable[[], object]


@dataclass
class Samples:
    """Samples of one call, in microseconds per call.

    Attributes
    ----------
    us : list of float
        Times of the device.
    host : list of float
        Times of the host to enqueue the call, of the same samples.
    """

    us: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)

    @property
    def device_us(self) -> float:
        """The median time of the device."""
        return median(self.us)

    @property
    def host_us(self) -> float:
        """The median time of the host."""
        return median(self.host)

    @property
    def felt_us(self) -> float:
        """The time that a caller of many calls feels: the device's, or the host's where that is longer."""
        return max(self.device_us, self.host_us)

    def felt(self) -> list[float]:
        """Return what a caller feels of each sample."""
        return [max(pair) for pair in zip(self.us, self.host, strict=True)]

    def extend(self, more: Samples) -> None:
        """Add later samples of the same call."""
        self.us += more.us
        self.host += more.host


def conditions(cupy: ModuleType) -> str:
    """Return the conditions of measured times, without the part: driver, CuPy and its backends, and on a Jetson the
    power mode."""
    found = {"cupy": str(cupy.__version__), "driver": cupy.cuda.runtime.driverGetVersion(), **backends(cupy)}
    with suppress(OSError, ValueError):  # no Jetson
        found["power_mode"] = POWER_MODE.read_text(encoding="ascii").strip()
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


class Fill:
    """Device work of a known length, after which calls are timed by events of the device alone.

    It reads an array that is larger than the L2 cache and writes almost nothing, so that the cache is full of clean
    lines that no call needs.  A fill that writes would leave dirty lines, and the first misses of the sample would wait
    for their write-back: 50 MB on an H100, 15 us of its bandwidth.  Dirty lines of an earlier call are written back
    during the fill. The read is the array library's own sum along rows: an ordinary kernel's loads allocate lines in
    the L2, which is not documented for a copy engine; a sum of the whole array would be the work of one block.
    """

    def __init__(self, cupy: ModuleType, nbytes: int):
        self.cuda = cupy.cuda
        self.array = cupy.zeros((max(nbytes // (4 * ROW), 1), ROW), np.float32)
        self._fills(2)  # the first may load a kernel
        self.cuda.get_current_stream().synchronize()
        us, host = self.time_work(lambda: self._fills(4))
        self.us = us / 4
        #: microseconds by which a fill puts the host ahead of the device
        self.lead_us = max((us - host) / 4, us / 32, 1.0)

    def _fills(self, times: int) -> None:
        for _ in range(times):
            originals.call(self.array.sum, axis=1)  # inside `accelerate` too: ours might begin another race

    def time_work(self, work: Call) -> tuple[float, float]:
        """Return the microseconds of the device for `work`, with the host's delays, and of the host to enqueue it."""
        taken: list[float] = []
        start, end = self._between(lambda: taken.append(host_us(work)))
        end.synchronize()
        return self.us_between(start, end), taken[0]

    def enqueue(self, work: Call, hidden_us: float) -> tuple[Event, Event]:
        """Enqueue `work` after fills that hide this much time of the host; return the events before and after it."""
        self._fills(self._count(hidden_us))
        return self._between(work)

    def cost_us(self, hidden_us: float) -> float:
        """Return the microseconds that the fills of `enqueue` take."""
        return self._count(hidden_us) * self.us

    def _count(self, hidden_us: float) -> int:
        return math.ceil(min(hidden_us, MOST_HIDDEN_US) / self.lead_us) + 1

    def _between(self, work: Call) -> tuple[Event, Event]:
        start, end = self.cuda.Event(), self.cuda.Event()
        start.record()
        work()
        end.record()
        return start, end

    def us_between(self, start: Event, end: Event) -> float:
        """Return the microseconds between two completed events."""
        return self.cuda.get_elapsed_time(start, end) * 1e3


def host_us(work: Call) -> float:
    """Return the microseconds that the host takes to enqueue `work`, without the device's time."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e6


class Sampler:
    """Times calls on the current stream, all of them within one budget.

    Parameters
    ----------
    cupy : module
        The array library.
    l2_bytes : float
        Size of the L2 cache.
    calls : sequence of callable
        Calls that enqueue work. Results are dropped before the next call is made, so that the library's
        allocator gives all of them the same memory.

    Attributes
    ----------
    last : int
        Place of the call that was started last, -1 before any.
    running : set of int
        Places of the calls that were started since the device was last idle.
    """

    def __init__(self, cupy: ModuleType, l2_bytes: float, calls: Sequence[Call]):
        self.calls = [partial(self._start, place, call) for place, call in enumerate(calls)]
        self.last, self.running = -1, set[int]()
        self._cupy, self._nbytes = cupy, max(int(2 * l2_bytes), SMALLEST_FILL)
        self._once: list[float] = []
        self._host: list[float] = []
        self._repeats = 1
        self._left_us, self._left_calls = BUDGET_US, LEAST_CALLS

    def first(self) -> list[Samples]:
        """Return samples of each call: several of those that may be the fastest, one of a call that is far slower, and
        of all where one takes as long as the whole budget."""
        with relaxed_capture(), self._spending():
            self.fill = Fill(self._cupy, self._nbytes)
            for call in self.calls:
                self._call_first(call)
        found = [Samples([us], [host]) for us, host in zip(self._once, self._host, strict=True)]
        longest = max(FAR_SLOWER * min(self._once), LONG_US)
        near = [place for place, us in enumerate(self._once) if us <= longest]
        self._repeats = max(1, min(MOST_REPEATS, math.ceil(SAMPLE_US / max(min(self._once), 1.0))))
        taken = self.again(near, 1)
        for place, samples in zip(near, taken, strict=bool(taken)):
            found[place] = samples
        if taken:
            # Two measurements say that a call is far slower: the host may have been interrupted in one.
            felt = {place: min(found[place].felt_us, self._once[place]) for place in near}
            near = [place for place in near if felt[place] <= FAR_SLOWER * min(felt.values())]
            for place, samples in zip(near, self._sample(near, ROUNDS - 1, SHARE), strict=True):
                found[place].extend(samples)
        return found

    def again(self, places: Sequence[int], rounds: int) -> list[Samples]:
        """Return new samples of the calls at these places, as many as are left of the budget; an empty list if it is
        spent."""
        found = self._sample(places, rounds, 1.0)
        return found if found[0].us else []

    def _start(self, place: int, call: Call) -> None:
        self.last = place
        self.running.add(place)
        call()

    def _call_first(self, call: Call) -> None:
        """Make the first calls of one, and keep their time. The race does not pay for loading or compiling."""
        first, host = self._time(call)
        us = first
        if us < LONG_US or host > LOADING * us:
            us, host = map(min, (us, host), self._time(call))
        self._left_us += first - us
        self._once.append(us)
        self._host.append(host)

    def _time(self, call: Call) -> tuple[float, float]:
        self._left_calls -= 1
        taken = self.fill.time_work(call)
        self.running.clear()
        return taken

    @contextmanager
    def _spending(self) -> Iterator[None]:
        """Take the time of a block, at whose end the device is idle, from the budget."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._left_us -= (time.perf_counter() - began) * 1e6

    def _affordable(self, places: Sequence[int], share: float) -> int:
        """Return how many samples of each of these calls a share of the budget pays."""
        if max(self._once[place] for place in places) >= BUDGET_US:
            return 0
        cost = sum(self._repeats * self._once[place] + self.fill.cost_us(self._hidden(place)) for place in places)
        by_time, by_calls = self._left_us / cost, self._left_calls / (self._repeats * len(places))
        decided = len(places) == 1 < len(self.calls)  # the winner's time is worth less than a decision
        return max(0, int(share * (by_time if decided else max(by_time, by_calls))))

    def _hidden(self, place: int) -> float:
        return self._repeats * self._host[place]

    def _sample(self, places: Sequence[int], rounds: int, share: float) -> list[Samples]:
        """Return at most `rounds` samples of each call, in turns; none where the budget pays none."""
        found, rounds = [Samples() for _ in places], min(rounds, self._affordable(places, share))
        if not rounds:
            return found
        hosts: list[float] = []

        def repeat(call: Call) -> None:
            for _ in range(self._repeats):
                call()

        def sample(place: int) -> tuple[Event, Event]:
            work = self.calls[place]
            return self.fill.enqueue(lambda: hosts.append(host_us(lambda: repeat(work))), self._hidden(place))

        with relaxed_capture(), self._spending():
            pairs = [[sample(place) for place in places] for _ in range(rounds)]
            self.fill.cuda.get_current_stream().synchronize()
        self.running.clear()
        self._left_calls -= rounds * len(places) * self._repeats
        for index, (place, samples) in enumerate(zip(places, found, strict=True)):
            samples.us += [self.fill.us_between(*each[index]) / self._repeats for each in pairs]
            # A call that waits for the device waits for the fill too: then only its time alone says what the host took.
            alone = self._host[place]
            samples.host += [min(each / self._repeats, alone) for each in hosts[index :: len(places)]]
        return found
