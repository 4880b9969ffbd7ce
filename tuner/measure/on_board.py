"""Timing as a task: kernels that other machines compiled are timed where their part is."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gensor_kernels.build.source import digest, flatten
from gensor_kernels.devices.device import Code
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.validation import workload_of
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.tasks.checked import checked
from gensor_tuner.tasks.task import Executor, Task
from gensor_tuner.verify.verify import OUTCOMES, Verdict, describe_case, verified_epilogue

from .board import board
from .timer import Kernel, Timed, Times


@dataclass(frozen=True)
class Time(Task[Times]):
    """Kernels of a workload to be timed together with the vendor's call, on a part.

    A task without a workload requests only the conditions.
    """

    kind: ClassVar[str] = "time"

    part_name: str
    workload: Workload | None
    kernels: tuple[Kernel, ...]
    vendor: bool

    @property
    def part(self) -> str:
        """The part."""
        return self.part_name

    def run(self) -> Times:
        """Time the kernels on this machine's GPU, in another process."""
        return board().time(self.workload, self.kernels, self.vendor)

    def lost(self, reason: str) -> Times:
        """Return times of no kernel."""
        return Times.none(len(self.kernels), reason)

    def to_json(self) -> dict[str, Any]:
        """Return the arguments; sources stay at home, because every machine has them."""
        kernels = [_times_of(*each) for each in self.kernels]
        key = None if self.workload is None else self.workload.key()
        return {"part": self.part_name, "workload": key, "kernels": kernels, "vendor": self.vendor}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Time:
        """Return the task with these arguments."""
        kernels = tuple(_kernel(*each) for each in told["kernels"])
        workload = None if told["workload"] is None else workload_of(told["workload"])
        return cls(told["part"], workload, kernels, bool(told["vendor"]))

    def unpack(self, packed: dict[str, Any]) -> Times:
        """Return times that can be these kernels': as many, finite and above nothing."""
        timed = tuple(None if each is None else _timing_of(each) for each in packed["timed"])
        why = tuple(str(each) for each in packed["why"])
        vendor = None if packed["vendor"] is None else _timing_of(packed["vendor"])
        if not len(timed) == len(why) == len(self.kernels) or (vendor is not None and not self.vendor):
            raise ValueError(f"{len(timed)} times for {len(self.kernels)} kernels")
        lost = packed["lost"]
        if not isinstance(lost, str) or (lost and (any(timed) or any(why) or vendor is not None)):
            raise ValueError("times of a task that was lost")
        if not lost and any((each is None) != bool(reason) for each, reason in zip(timed, why, strict=True)):
            raise ValueError("a kernel has neither a time nor a reason, or both")
        if not isinstance(json.loads(packed["conditions"]), dict):
            raise ValueError("the conditions are no JSON object")
        failed = tuple(packed["failed"])
        if any(type(each) is not int or not 0 <= each < len(why) or not why[each] for each in failed):
            raise ValueError("a kernel that failed has no reason")
        return Times(timed, vendor, packed["conditions"], why, failed, lost)


def _times_of(each: Candidate, code: Code) -> list[str]:
    return [each.program.to_json(), each.constants, code.target, base64.b64encode(code.cubin or b"").decode()]


def _kernel(program: str, constants: str, target: str, cubin: str) -> Kernel:
    found = program_from_json(program)
    family = FAMILIES[found.family]
    pairs = tuple(sorted(json.loads(constants).items()))
    name = digest(f"{constants} {target} {family.source}")
    code = Code(name, flatten(family.source), pairs, target, base64.b64decode(cubin, validate=True))
    return Candidate(found, family, constants), code


def _timing_of(told: dict[str, Any]) -> Timed:
    found = checked(Timed(**told))
    if not min(found.median_us, found.low_us, found.high_us) > 0:
        raise ValueError(f"a time of {found.median_us} microseconds")
    if not min(found.rounds, found.calls):
        raise ValueError(f"{found.rounds} rounds of {found.calls} calls")
    return found


@dataclass(frozen=True)
class ExecuteOnDevice(Task[Verdict]):
    """A kernel to execute on a part, at its verification cases."""

    kind: ClassVar[str] = "execute"

    part_name: str
    workload: Workload
    kernel: Kernel

    @property
    def part(self) -> str:
        """The part."""
        return self.part_name

    def run(self) -> Verdict:
        """Execute on this machine's GPU, in another process."""
        return board().verify(*self.kernel, self.workload)

    def lost(self, reason: str) -> Verdict:
        """Return a verdict that says nothing about the kernel."""
        return Verdict("timeout", reason, method="device", part=self.part_name)

    def to_json(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"part": self.part_name, "workload": self.workload.key(), "kernel": _times_of(*self.kernel)}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> ExecuteOnDevice:
        """Return the task with these arguments."""
        return cls(told["part"], workload_of(told["workload"]), _kernel(*told["kernel"]))

    def unpack(self, packed: dict[str, Any]) -> Verdict:
        """Return a verdict of this part; ValueError where a good one lacks cases."""
        found = Verdict.from_json(packed)
        found = replace(found, part=found.part or self.part_name)  # a child that died could not name its part
        candidate, _ = self.kernel
        if found.outcome not in OUTCOMES or (found.method, found.part) != ("device", self.part_name):
            raise ValueError(f"a verdict {found.outcome!r} by {found.method!r} of {found.part!r}")
        if found.outcome == "ok":
            epilogue = verified_epilogue(candidate, self.workload)
            cases = candidate.family.cases(candidate.program, self.workload, epilogue)
            if found.sizes != [describe_case(case) for case in cases] or found.worst > 1 or not found.runs:
                raise ValueError("a good verdict without all cases")
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
        self,
        workload: Workload,
        kernels: Sequence[Kernel],
        vendor: bool = True,
        before: Callable[[int], None] = lambda index: None,
    ) -> Times:
        """Time kernels and the vendor's call; `before` is not called, because nothing runs on this machine."""
        (found,) = self.executor.map([Time(self.part, workload, tuple(kernels), vendor)])
        return found
