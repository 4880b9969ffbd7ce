"""Times of a few calls on the current stream, within milliseconds: the measurements of a race.

Before every sample a fill (`Fill`) takes the operands out of the L2 cache, and keeps the device busy while the host
enqueues the calls, so that host time does not count.  Samples of all calls are interleaved, so that a change of the
clock affects all of them.  The caller's arrays are the operands; only the fill is allocated.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np

from . import originals
from .cupy_internals import Event, backends
from .driver import relaxed_capture

ROUNDS, FEW_ROUNDS = 9, 3
LONG_US = 20_000.0  # of all calls together: longer calls are sampled in few rounds
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


def take_samples(
    cupy: ModuleType, l2_bytes: float, calls: Sequence[Call], rounds: int | None = None
) -> list[list[float]]:
    """Return microseconds per call, a list of samples for each of `calls`; each is called twice before.

    `rounds` is the number of samples of each, by default nine, or three for long calls.
    """
    with relaxed_capture():
        return _samples(Fill(cupy, max(int(2 * l2_bytes), SMALLEST_FILL)), calls, rounds)


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
        self._fills(math.ceil(min(hidden_us, MOST_HIDDEN_US) / self.lead_us) + 1)
        return self._between(work)

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


def _samples(fill: Fill, calls: Sequence[Call], rounds: int | None) -> list[list[float]]:
    """See `take_samples`."""
    stream = fill.cuda.get_current_stream()
    once, host = [], []
    for call in calls:
        call()  # loads and allocations of a first call
        stream.synchronize()
        device_us, enqueued_us = fill.time_work(call)
        once.append(device_us)
        host.append(enqueued_us)
    repeats = max(1, min(MOST_REPEATS, math.ceil(SAMPLE_US / max(min(once), 1.0))))
    rounds = rounds or (FEW_ROUNDS if sum(once) * repeats > LONG_US else ROUNDS)

    def sample(call: Call, host_us: float) -> tuple[Event, Event]:
        return fill.enqueue(lambda: [call() for _ in range(repeats)], repeats * host_us)

    pairs = [[sample(*each) for each in zip(calls, host, strict=True)] for _ in range(rounds)]
    stream.synchronize()
    return [[fill.us_between(*each[index]) / repeats for each in pairs] for index in range(len(calls))]
