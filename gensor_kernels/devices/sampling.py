"""Times of a few calls on the current stream, within milliseconds: what a race between kernels and the library needs.

Before every sample a fill larger than the L2 cache takes the operands out of it, and keeps the device busy while the
host enqueues the calls: host time does not count. Samples of all calls are interleaved, so that a clock that changes
changes for all. The caller's arrays are the operands; nothing else is allocated but the fill.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROUNDS, FEW_ROUNDS = 9, 3
LONG_US = 20_000.0  # of all calls together: what takes longer is sampled in few rounds
SAMPLE_US = 40.0  # short calls are repeated until a sample is this long: events resolve half a microsecond
MOST_REPEATS = 16
SMALLEST_FILL = 32 << 20
#: Where nvpmodel keeps the mode that is set (JetPack 5 and 6).
POWER_MODE = Path("/var/lib/nvpmodel/status")
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

Call = Callable[[], Any]


def sampled(cupy: Any, l2_bytes: float, calls: Sequence[Call]) -> list[list[float]]:
    """Microseconds per call, a list of samples for each of `calls`; each is called once more before."""
    with relaxed_capture():
        return _Sampler(cupy, max(int(2 * l2_bytes), SMALLEST_FILL)).samples(calls)


def conditions(cupy: Any) -> str:
    """What times of this machine's GPU hang on beside its part: driver, CuPy, and on a Jetson the power mode."""
    found = {"cupy": str(cupy.__version__), "driver": cupy.cuda.runtime.driverGetVersion()}
    with suppress(OSError, ValueError):  # no Jetson
        found["power_mode"] = POWER_MODE.read_text(encoding="ascii").strip()
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


class _Sampler:
    def __init__(self, cupy: Any, fill_bytes: int):
        self.cuda = cupy.cuda
        self.fill = self.cuda.alloc(fill_bytes)
        self.fill_bytes = fill_bytes
        self._fills(1)
        self.fill_us = max(self._elapsed(lambda: self._fills(4)) / 4, 1.0)

    def samples(self, calls: Sequence[Call]) -> list[list[float]]:
        """See `sampled`."""
        once, host = [], 0.0
        for call in calls:
            call()  # what is loaded or allocated at a first call
            began = time.perf_counter()
            once.append(self._elapsed(call))
            host = max(host, (time.perf_counter() - began) * 1e6)
        repeats = max(1, min(MOST_REPEATS, math.ceil(SAMPLE_US / max(min(once), 1.0))))
        rounds = FEW_ROUNDS if sum(once) * repeats > LONG_US else ROUNDS
        fills = math.ceil(repeats * host / self.fill_us) + 1
        pairs = [[self._between(call, repeats, fills) for call in calls] for _ in range(rounds)]
        self.cuda.get_current_stream().synchronize()
        return [[self._us(*pairs[turn][index]) / repeats for turn in range(rounds)] for index in range(len(calls))]

    def _between(self, call: Call, repeats: int, fills: int) -> tuple[Any, Any]:
        self._fills(fills)
        start, end = self.cuda.Event(), self.cuda.Event()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        return start, end

    def _fills(self, times: int) -> None:
        for _ in range(times):
            self.fill.memset_async(0, self.fill_bytes)

    def _elapsed(self, work: Call) -> float:
        start, end = self.cuda.Event(), self.cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        return self._us(start, end)

    def _us(self, start: Any, end: Any) -> float:
        return self.cuda.get_elapsed_time(start, end) * 1e3


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Within it, this thread's synchronisations and allocations do not spoil a graph that another thread captures
    (CUDA driver API, cuThreadExchangeStreamCaptureMode). Without a driver to ask, nothing happens."""
    exchange = _exchange()
    mode = ctypes.c_int(RELAXED)
    if exchange is not None:
        exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        if exchange is not None:
            exchange(ctypes.byref(mode))


def _exchange() -> Any:
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return driver.cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None
