"""Timing as a task: kernels that other machines compiled are timed where their part is."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from gensor_kernels.devices.device import Code
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.validation import workload_of
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.tasks.task import Executor, Result, Task, from_plain
from gensor_tuner.verify.verify import Verdict, check_verdict

from .board import board
from .timer import Kernel, Times, Watch, ignore_run


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
        program = program_from_json(self.program)
        each = Candidate(program, FAMILIES[program.family], self.constants)
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
