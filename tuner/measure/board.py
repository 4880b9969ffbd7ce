"""A worker's GPU: a child process owns it, so that a kernel that faults or hangs costs that process alone.

Kernels that other machines compiled are timed and executed there, as tasks.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple

from gensor_kernels.devices.device import Code
from gensor_kernels.errors import GensorError
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.validation import workload_of
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError, count_gpus, free_memory, limit_memory, open_any_gpu, out_of_memory
from gensor_tuner.tasks.task import Executor, Result, Task, from_plain
from gensor_tuner.verify.device_process import ATTEMPTS, DeviceProcess, EndedError, Say, judged, verified
from gensor_tuner.verify.verify import Verdict, check_verdict

from .timer import CudaClock, Kernel, Timed, Timer, Times, Watch, ignore_run

#: Which function opens the device, as module:name; tests name a double.
OPENER = "GENSOR_FLEET_DEVICE"
OPENED_BY = "gensor_tuner.measure.board:open_timer"
#: Which GPU of its machine a worker owns, as CUDA counts; `gensor-tune fleet worker` sets it.
NUMBER = "GENSOR_FLEET_GPU"
NO_MEMORY = "out of device memory"
#: Beginnings of the reasons why a kernel has no time.
NOT_LOADED, FAILED = "not loaded: ", "it failed on the device: "
FAILURES = 3  # kernels of a task that fail one after the other before the device is doubted


def open_timer(number: int, memory: int | None = None) -> Timer:
    """Return a timer on the GPU of a number, which compiles nothing and takes `memory` bytes; GpuError without one."""
    os.environ.setdefault("CUPY_TF32", "1")  # see timer.py
    device = open_any_gpu(number)
    device.compiles = False
    limit_memory(device, memory)
    return Timer(device, CudaClock(device, memory), memory)


class BoardGoneError(GensorError):
    """The device cannot be opened any more."""


class Board(DeviceProcess):
    """The process that owns a GPU of this machine, by its number."""

    def __init__(self, number: int = 0, memory: int | None = None, **limits: float) -> None:
        opener: Callable[..., Timer] = resolve_name(os.environ.get(OPENER, OPENED_BY))
        super().__init__(partial(opener, number, memory), answered, **limits)

    def about(self) -> tuple[Arch, int, str]:
        """Return the part, how many GPUs the machine has, and the conditions; GpuError where no kernel can run."""
        arch, count, conditions = self._request("about", None)
        if arch is None:
            raise GpuError(f"no kernel runs on the GPU: {conditions}", worth_telling=True)
        return arch, count, conditions

    def time(self, workload: Workload | None, kernels: Sequence[Kernel], vendor: bool) -> Times:
        """Time kernels and the vendor's call together; a kernel that fails is left out, and the rest timed.

        A kernel fails where the device faults once while it runs, or the child dies or hangs twice. Where kernel after
        kernel fails, the device may be to blame, and no kernel is.
        """

        def ask(left: list[int], say: Say) -> Any:
            asked = [(each.program, each.constants, code) for each, code in map(kernels.__getitem__, left)]
            return self._request("time", (workload, asked, vendor), say)

        return timed_without_failing(len(kernels), ask)

    def verify(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        """Execute a kernel on the device, as `DeviceVerifier.verify` does."""
        return judged(lambda: self._request("verify", (candidate.program, candidate.constants, code, workload)))

    def _request(self, name: str, question: Any, on_note: Say = lambda note: None) -> Any:
        try:
            return self.ask((name, question), on_note)
        except GpuError as error:
            raise BoardGoneError(str(error)) from None


def timed_without_failing(count: int, ask: Callable[[list[int], Say], Any]) -> Times:
    """Time `count` kernels together; one that fails is left out, and the rest timed, as `Board.time` does.

    `ask` has a child time the kernels of these numbers. It returns their Times, a Fault, or the text of an error that
    is no kernel's, raises EndedError, and notes the place of each kernel before it runs.
    """
    left, why, ends = list(range(count)), dict[int, str](), Counter[int | None]()
    while True:
        running: list[int] = []
        killed = False
        try:
            found = ask(left, running.append)
        except EndedError as error:
            found, killed = error, error.killed
        if isinstance(found, Times):
            return _at_positions(found, left, count, why)
        if isinstance(found, str):
            raise RuntimeError(f"the GPU could not time kernels: {found}")
        blamed = not killed and running and running[-1] < len(left)
        guilty = left[running[-1]] if blamed else None
        ends[guilty] += ATTEMPTS if isinstance(found, Fault) and blamed else 1
        if ends[guilty] < ATTEMPTS:
            continue
        if guilty is None:
            raise RuntimeError(f"no kernel is to blame: {found}")
        why[guilty] = f"{FAILED}{found}"
        left.remove(guilty)
        if len(why) == FAILURES:
            return Times.none(count, f"{FAILURES} kernels failed one after the other, the last: {found}")


class Fault(NamedTuple):
    """The device's error at a kernel; its context is lost."""

    text: str

    def __str__(self) -> str:
        return self.text


def _at_positions(found: Times, numbers: Sequence[int], count: int, why: Mapping[int, str]) -> Times:
    """Return the times of some kernels among those of all; `why` has the reasons why the others failed."""
    if found.lost:
        return Times.none(count, found.lost, found.conditions)
    timed: list[Timed | None] = [None] * count
    reasons = [why.get(index, "") for index in range(count)]
    for number, time, reason in zip(numbers, found.timed, found.why, strict=True):
        timed[number], reasons[number] = time, reason
    return replace(found, timed=tuple(timed), why=tuple(reasons), failed=tuple(sorted(why)))


def answered(timer: Timer, question: Any, say: Say) -> tuple[Any, bool]:
    """Answer in the child that owns the device; see `DeviceProcess`."""
    name, asked = question
    if name == "verify":
        return verified(timer.device, asked, say)
    if name == "about":
        arch = timer.device.arch
        text = timer.device.unsupported if arch is None else timer.conditions()
        return (arch, count_gpus(timer.device), text), arch is None
    return attempted(timer, lambda: _time_kernels(timer, asked, say), len(asked[1]))


def attempted(timer: Timer, time: Callable[[], Times], count: int) -> tuple[Any, bool]:
    """Return the times of `count` kernels or why there are none, and whether the device's context may be lost."""
    try:
        found = time()
        free_memory(timer.device)  # not after a fault: the driver refuses everything in a lost context
        return found, False
    except Exception as error:  # driver errors have no common base class
        text = f"{type(error).__name__}: {error}"
        if out_of_memory(error):
            return Times.none(count, f"{NO_MEMORY}: {text}", timer.conditions()), True
        return Fault(text) if isinstance(error, timer.device.faults) else text, True


def _time_kernels(timer: Timer, question: Any, say: Say) -> Times:
    workload, asked, vendor = question
    if workload is None:
        return Times((), None, timer.conditions(), ())
    kernels = [(Candidate(program, constants), code) for program, constants, code in asked]
    why = [timer.objection(*kernel, workload) for kernel in kernels]
    able = [index for index, reason in enumerate(why) if not reason]
    if not able and kernels:
        return Times(tuple(None for _ in why), None, timer.conditions(), tuple(f"{NOT_LOADED}{each}" for each in why))

    timer.watch = lambda index: say(able[index] if index < len(able) else len(kernels))
    found = timer.times(workload, [kernels[index] for index in able], vendor)
    timed = dict(zip(able, found.timed, strict=True))
    reasons = tuple(reason and f"{NOT_LOADED}{reason}" for reason in why)
    return replace(found, timed=tuple(timed.get(index) for index in range(len(kernels))), why=reasons)


@cache
def board() -> Board:
    """Return the GPU of this worker, which runs one task at a time."""
    return Board(int(os.environ.get(NUMBER, "0")))


class Sent(NamedTuple):
    """A kernel on its way: its source stays at home, because every machine has it."""

    program: str
    constants: str
    target: str
    cubin: bytes

    @classmethod
    def of(cls, candidate: Candidate, code: Code) -> Sent:
        """Return what is sent of a kernel."""
        return cls(candidate.program.to_json(), candidate.constants, code.target, code.cubin)

    @property
    def kernel(self) -> Kernel:
        """The kernel where it has arrived."""
        each = Candidate(program_from_json(self.program), self.constants)
        return each, each.code(self.target, self.cubin)


@dataclass(frozen=True)
class OnBoard(Task[Result]):
    """A task for a GPU of a part."""

    part_name: str

    @property
    def part(self) -> str:
        """The part."""
        return self.part_name


@dataclass(frozen=True)
class Time(OnBoard[Times]):
    """Kernels to be timed together with the vendor's call, on a part; without a workload only conditions are read."""

    kind: ClassVar[str] = "time"
    answer: ClassVar[type] = Times

    workload: Workload | None
    kernels: tuple[Kernel, ...]
    vendor: bool

    def run(self) -> Times:
        """Time the kernels on this machine's GPU, in another process."""
        return board().time(self.workload, self.kernels, self.vendor)

    def lost(self, reason: str) -> Times:
        """Return times of no kernel."""
        return Times.none(len(self.kernels), reason)

    def arguments(self) -> dict[str, object]:
        """Return the fields, the workload by its key."""
        key = None if self.workload is None else self.workload.key()
        kernels = [Sent.of(*each) for each in self.kernels]
        return {"part_name": self.part_name, "workload": key, "kernels": kernels, "vendor": self.vendor}

    @classmethod
    def from_arguments(cls, plain: dict[str, Any]) -> Time:
        """Return the task with these fields."""
        kernels = tuple(each.kernel for each in from_plain(list[Sent], plain["kernels"]))
        workload = None if plain["workload"] is None else workload_of(plain["workload"])
        return cls(plain["part_name"], workload, kernels, plain["vendor"])

    def check(self, result: Times) -> None:
        """Raise ValueError unless these can be the times of these kernels: as many, finite and above nothing."""
        timed, why, vendor = result.timed, result.why, result.vendor
        if not len(timed) == len(why) == len(self.kernels) or (vendor is not None and not self.vendor):
            raise ValueError(f"{len(timed)} times for {len(self.kernels)} kernels")
        if result.lost and (any(timed) or any(why) or vendor is not None):
            raise ValueError("times of a task that was lost")
        if not result.lost and any((each is None) != bool(reason) for each, reason in zip(timed, why, strict=True)):
            raise ValueError("a kernel has neither a time nor a reason, or both")
        if not isinstance(json.loads(result.conditions), dict):
            raise ValueError("the conditions are no JSON object")
        if any(not 0 <= each < len(why) or not why[each] for each in result.failed):
            raise ValueError("a kernel that failed has no reason")
        for each in filter(None, (*timed, vendor)):
            if not all(0 < us < math.inf for us in (each.median_us, each.low_us, each.high_us)):
                raise ValueError(f"a time of {each.median_us} microseconds")
            if not min(each.rounds, each.calls):
                raise ValueError(f"{each.rounds} rounds of {each.calls} calls")


@dataclass(frozen=True)
class ExecuteOnDevice(OnBoard[Verdict]):
    """A kernel to execute on a part, at its verification cases."""

    kind: ClassVar[str] = "execute"
    answer: ClassVar[type] = Verdict

    workload: Workload
    kernel: Kernel

    def run(self) -> Verdict:
        """Execute on this machine's GPU, in another process."""
        return board().verify(*self.kernel, self.workload)

    def lost(self, reason: str) -> Verdict:
        """Return a verdict that says nothing about the kernel."""
        return Verdict("timeout", reason, method="device", part=self.part_name)

    def arguments(self) -> dict[str, object]:
        """Return the fields, the workload by its key."""
        return {"part_name": self.part_name, "workload": self.workload.key(), "kernel": Sent.of(*self.kernel)}

    @classmethod
    def from_arguments(cls, plain: dict[str, Any]) -> ExecuteOnDevice:
        """Return the task with these fields."""
        return cls(plain["part_name"], workload_of(plain["workload"]), from_plain(Sent, plain["kernel"]).kernel)

    def unpack(self, answer: Verdict) -> Verdict:
        """Return a verdict of this part: a child that died could not name it."""
        found = replace(answer, part=answer.part or self.part_name)
        check_verdict(found, "device", self.part_name, self.kernel[0], self.workload)
        return found


class RemoteVerifier:
    """Executes kernels on a worker that has a part, as DeviceVerifier does on this machine."""

    def __init__(self, part: str, executor: Executor):
        self.part, self.executor = part, executor

    def verify(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        """Return the verdict on a kernel."""
        return self.executor.map([ExecuteOnDevice(self.part, workload, (candidate, code))])[0]


class RemoteTimer:
    """Times kernels on a worker that has a part, as Timer does on this machine."""

    emulated = False

    def __init__(self, part: str, executor: Executor):
        self.part, self.executor = part, executor

    def on(self, executor: Executor) -> RemoteTimer:
        """Return a timer whose tasks another executor runs."""
        return RemoteTimer(self.part, executor)

    def conditions(self) -> str:
        """Return `Device.conditions` of a worker that has the part; it is asked."""
        (found,) = self.executor.map([Time(self.part, None, (), False)])
        return found.conditions

    def objection(self, candidate: Candidate, code: Code, workload: Workload) -> str:
        """Return nothing: the board says what it does not load when it is to time it."""
        return ""

    def times(
        self, workload: Workload, kernels: Sequence[Kernel], vendor: bool = True, before: Watch = ignore_run
    ) -> Times:
        """Time kernels and the vendor's call; `before` is not called, because nothing runs on this machine."""
        (found,) = self.executor.map([Time(self.part, workload, tuple(kernels), vendor)])
        return found
