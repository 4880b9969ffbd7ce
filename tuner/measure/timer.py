"""Timing of kernels and the vendor's call on a GPU.

Protocol (benchmarks/README.md): normal random inputs; operand sets rotate so that together they exceed twice the L2
cache and every call reads DRAM; the queue is kept full, so host time does not count; kernels and the vendor's call are
interleaved in every round; the median of the rounds counts, after the common clock of each round is removed.
Accumulator, math mode and epilogue are equal on both sides: the vendor's side is the call that would run without us
(`Operands.vendor`). In tests the emulator device stands in for a GPU: the code path is the same, the times carry no
information.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_database.record import canonical
from gensor_kernels.devices.device import Code, Device
from gensor_kernels.devices.sampling import Fill, host_us
from gensor_kernels.errors import BuildError
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError, open_gpu
from gensor_tuner.tasks.task import Executor

from .operands import Noise, Operands

if TYPE_CHECKING:
    from gensor_kernels.devices.cuda import CudaDevice

ROUNDS = 15
ROUND_SECONDS = 0.004  # of device time per kernel and round
MOST_CALLS = 500  # per round: the driver queues about a thousand launches before the host has to wait
STEADIED_FROM, POLISHES = 3, 3
HOST_SLACK = 1.5  # factor on the host's launch time of the previous pass
LARGEST_BYTES = 8 << 30  # of all operand sets together

Call = Callable[[], object]
#: A candidate with its binary for the device.
Kernel = tuple[Candidate, Code]
#: Makes another library's call for a set of operands; returns None where it has none.
Vendor = Callable[[Operands], Call | None]
#: Called with the number of a kernel before it runs.
Watch = Callable[[int], None]


def ignore_run(index: int) -> None:
    """Do nothing before a kernel runs."""


@dataclass(frozen=True)
class Timed:
    """Microseconds per call over the rounds: median and quartiles."""

    median_us: float
    low_us: float
    high_us: float
    rounds: int
    calls: int

    def scaled(self, factor: float) -> Timed:
        """Return the times after a correction of the clock."""
        low, high = self.low_us * factor, self.high_us * factor
        return replace(self, median_us=self.median_us * factor, low_us=low, high_us=high)

    def samples(self, background: bool = False) -> str:
        """Return how the time was taken as canonical JSON; in the `background` a program used the same GPU."""
        found = {name: value for name, value in asdict(self).items() if name != "median_us"}
        return canonical(found | {"background": True} if background else found)


@dataclass(frozen=True)
class Times:
    """Measurements of kernels that were timed together.

    `timed` has one entry per kernel, None if it has no time, and `why` the reason, else "". `vendor` is the vendor's
    call, if it was requested and exists. `conditions` are those of the device while the kernels ran. `failed` are the
    numbers of kernels that were loaded, and failed when they ran. `lost` is the reason why nothing was timed, if it
    says nothing about the kernels: their operands exceed the device's memory, or no machine could finish the task.
    """

    timed: tuple[Timed | None, ...]
    vendor: Timed | None
    conditions: str
    why: tuple[str, ...]
    failed: tuple[int, ...] = ()
    lost: str = ""

    @classmethod
    def none(cls, count: int, lost: str, conditions: str = "{}") -> Times:
        """Return times of none of `count` kernels."""
        return cls((None,) * count, None, conditions, ("",) * count, lost=lost)


def open_timer(arch: Arch, number: int | None = None) -> Timer:
    """Return a timer on this machine's GPU; GpuError without one of exactly this part, by which times are stored."""
    os.environ.setdefault("CUPY_TF32", "1")  # for the vendor's side of TF32 rows; IEEE rows switch it off per call
    device = open_gpu(arch, number)
    assert device.arch is not None
    if device.arch.part != arch.part:
        here = device.arch.part
        raise GpuError(f"the GPU here is {here}, times of {arch.part} were asked for: use --arch {here}", True)
    return Timer(device, CudaClock(device))


class HostClock:
    """Times synchronous calls: on the emulator."""

    def measure(self, calls: Sequence[Call]) -> float:
        """Return the seconds that the calls take one after the other."""
        began = time.perf_counter()
        for call in calls:
            call()
        return time.perf_counter() - began


class CudaClock:
    """Times calls with events; a fill kernel before them hides the host's launch time and empties the L2."""

    def __init__(self, device: CudaDevice, memory: int | None = None):
        l2 = device.cupy.cuda.Device(device.number).attributes.get("L2CacheSize", 1 << 26)
        size = max(4 * l2, 256 << 20)
        self.fill = Fill(device.cupy, size if memory is None else max(1, min(size, memory // 4)))

    def measure(self, calls: Sequence[Call]) -> float:
        """Return the device seconds of the calls, which are enqueued while the device is busy with the fill."""

        def work() -> None:
            for call in calls:
                call()

        host = host_us(work)
        self.fill.cuda.get_current_stream().synchronize()
        start, end = self.fill.enqueue(work, HOST_SLACK * host)
        end.synchronize()
        return self.fill.us_between(start, end) * 1e-6


Clock = HostClock | CudaClock


class Timer:
    """Times the candidates of a workload against each other and the vendor's call.

    With a limit of `memory` bytes, all operand sets together take at most half of it (one set may take more); the rest
    is for the clock, workspaces and allocations of the vendor's call.
    """

    def __init__(self, device: Device, clock: Clock, memory: int | None = None):
        self.device, self.clock = device, clock
        self.most = LARGEST_BYTES if memory is None else memory // 2
        self.noise = Noise(device)
        #: called with the number of each kernel before it runs, every time
        self.watch: Watch = ignore_run

    @property
    def emulated(self) -> bool:
        """Whether times carry no information."""
        return self.device.emulated

    def on(self, executor: Executor) -> Timer:
        """Return this timer, which times on this machine for every executor."""
        return self

    def conditions(self) -> str:
        """Return `Device.conditions`."""
        return self.device.conditions()

    def objection(self, candidate: Candidate, code: Code, workload: Workload) -> str:
        """Return why the device does not load a kernel; "" where it does."""
        try:
            self.device.load(code, candidate.family.launches(candidate.program, workload))
        except BuildError as error:
            return str(error)
        return ""

    def times(
        self, workload: Workload, kernels: Sequence[Kernel], vendor: bool = True, before: Watch = ignore_run
    ) -> Times:
        """Time kernels and, with `vendor`, the vendor's call; see `beside` for `before`."""
        vendors = {"vendor": Operands.vendor} if vendor and not self.device.emulated else {}
        timed, theirs = self.beside(workload, kernels, vendors, before)
        return Times(tuple(timed), theirs.get("vendor"), self.conditions(), ("",) * len(timed))

    def beside(
        self, workload: Workload, kernels: Sequence[Kernel], vendors: Mapping[str, Vendor], before: Watch = ignore_run
    ) -> tuple[list[Timed], dict[str, Timed]]:
        """Time kernels and the calls of several vendors, interleaved in every round.

        `vendors` maps names to functions from Operands to a call. `before(i)` is called before kernel i runs for the
        first time, and once more with i = len(kernels) when the last kernel has returned. Returns one Timed per
        kernel, and one per vendor that has a call for these operands.
        """
        sets = self._operand_sets(workload)
        runners: list[list[Call]] = [[each.launcher(*kernel) for each in sets] for kernel in kernels]
        names = []
        for name, made in vendors.items():
            theirs = [call for each in sets if (call := made(each)) is not None]
            if len(theirs) == len(sets):
                names.append(name)
                runners.append(theirs)
        timed = self.race(runners, lambda index: before(min(index, len(kernels))))
        return timed[: len(kernels)], dict(zip(names, timed[len(kernels) :], strict=True))

    def race(self, runners: Sequence[Sequence[Call]], before: Watch = ignore_run) -> list[Timed]:
        """Time runners, each the calls that it makes in turn, interleaved in every round.

        `before(i)` is called before runner i runs for the first time, and once more with their number at the end.
        """
        counts = []
        for index, each in enumerate(runners):
            before(index)
            self.watch(index)
            counts.append(self._calls_per_round(each))
        before(len(runners))
        return interleaved(self.clock, runners, counts, 1 if self.device.emulated else ROUNDS, self.watch)

    def _calls_per_round(self, calls: Sequence[Call]) -> int:
        if self.device.emulated:
            return 1
        once = self.clock.measure(list(calls)) / len(calls)
        return max(1, min(MOST_CALLS, math.ceil(ROUND_SECONDS / max(once, 1e-6))))

    def _operand_sets(self, workload: Workload) -> list[Operands]:
        """Return operand sets of the workload whose total size exceeds twice the L2 cache."""
        first = Operands(self.device, workload, self.noise)
        count = self.sets_of(first.nbytes)
        return [first, *(Operands(self.device, workload, self.noise, seed) for seed in range(1, count))]

    def sets_of(self, size: int) -> int:
        """Return how many sets of operands of this many bytes exceed twice the L2 cache."""
        arch = self.device.arch
        cache = 2 * arch.l2_mb * 1e6 if arch is not None and not self.device.emulated else 0
        size = max(size, 1)
        return max(1, min(256, math.ceil(cache / size), self.most // size))


def interleaved(
    clock: Clock,
    runners: Sequence[Sequence[Call]],
    counts: Sequence[int],
    rounds: int = ROUNDS,
    watch: Watch = ignore_run,
) -> list[Timed]:
    """Time `counts` calls of each runner in each round, all runners alternately; return one Timed per runner."""
    samples: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for index, (found, each, count) in enumerate(zip(samples, runners, counts, strict=True)):
            watch(index)
            calls = [each[i % len(each)] for i in range(count)]
            found.append(clock.measure(calls) / count * 1e6)
    quartiles = (np.percentile(own, (50, 25, 75)).tolist() for own in steady(np.array(samples)))
    timed = zip(quartiles, counts, strict=True)
    return [Timed(median, low, high, rounds, count) for (median, low, high), count in timed]


def steady(samples: np.ndarray) -> np.ndarray:
    """Remove the variation that all runners of a round share, the clock, from samples (runners, rounds).

    Where a GPU throttles in the middle of a measurement, half of a runner's samples have another clock, and chance
    decides which half holds the median. Method: median polish (Tukey) of the logarithms. With fewer than three runners
    the outlier is ambiguous, and the samples stay as they are.
    """
    if len(samples) < STEADIED_FROM:
        return samples
    logs = np.log(samples)
    for _ in range(POLISHES):
        own = np.median(logs, axis=1, keepdims=True)
        common = np.median(logs - own, axis=0)
        logs = logs - (common - np.median(common))
    return np.exp(logs)


def vendor_name(workload: Workload) -> str:
    """Return the name of CuPy's side of a comparison in Timing rows."""
    return "cupy.matmul" if workload.operator == "matmul" else f"cupy, {workload.operator}"
