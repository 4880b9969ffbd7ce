"""A worker's GPU: a child process owns it, so that a kernel that faults or hangs costs that process alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from gensor_kernels.devices.device import Code
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError, open_any_gpu
from gensor_tuner.verify.device_process import DeviceProcess, EndedError, Say, verified
from gensor_tuner.verify.verify import Verdict

from .timer import CudaClock, Kernel, Timed, Timer, Times

#: Which function opens the device, as module:name; tests name a double.
OPENER = "GENSOR_FLEET_DEVICE"
OPENED_BY = "gensor_tuner.measure.board:open_timer"


def open_timer() -> Timer:
    """Return a timer on this process's GPU, which compiles nothing; GpuError without one."""
    os.environ.setdefault("CUPY_TF32", "1")  # see timer.py
    device = open_any_gpu()
    device.compiles = False
    return Timer(device, CudaClock(device))


def opener() -> Callable[[], Timer]:
    """Return the function that opens the device."""
    module, _, name = os.environ.get(OPENER, OPENED_BY).partition(":")
    found: Callable[[], Timer] = getattr(import_module(module), name)
    return found


class BoardGoneError(Exception):
    """The device cannot be opened any more."""


class Board(DeviceProcess):
    """The process that owns the GPU."""

    def __init__(self) -> None:
        super().__init__(opener(), answered)

    def part(self) -> str:
        """Return the part of the GPU."""
        return str(self._asked("about", None))

    def time(self, workload: Workload, kernels: Sequence[Kernel], vendor: bool) -> Times:
        """Time kernels beside each other and the vendor's call; a kernel that fails is left out, and the rest timed."""
        left, why, failed = dict(enumerate(kernels)), dict[int, str](), list[int]()
        while True:
            running: list[int] = []
            asked = [(each.program, each.constants, code) for each, code in left.values()]
            try:
                found = self._asked("time", (workload, asked, vendor), running.append)
            except EndedError as error:
                found = str(error)
            if isinstance(found, Times):
                return _placed(found, list(left), len(kernels), why, failed)
            if not running or running[-1] >= len(left):
                raise RuntimeError(f"no kernel is to blame: {found}")
            guilty = list(left)[running[-1]]
            why[guilty] = f"it failed on the device: {found}"
            failed.append(guilty)
            del left[guilty]

    def verify(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        """Execute a kernel on the device, as `DeviceVerifier.verify` does."""
        try:
            found = self._asked("verify", (candidate.program, candidate.constants, code, workload))
        except EndedError as error:
            return Verdict("failed", str(error), method="device")
        if isinstance(found, str):
            raise RuntimeError(f"the GPU could not verify a kernel: {found}")
        verdict: Verdict = found
        return verdict

    def _asked(self, name: str, question: Any, told: Say = lambda note: None) -> Any:
        try:
            return self.ask((name, question), told)
        except GpuError as error:
            raise BoardGoneError(str(error)) from None


def _placed(found: Times, numbers: Sequence[int], count: int, why: dict[int, str], failed: Sequence[int]) -> Times:
    """Return the times of some kernels among those of all."""
    timed: list[Timed | None] = [None] * count
    reasons = [why.get(index, "") for index in range(count)]
    for number, time, reason in zip(numbers, found.timed, found.why, strict=True):
        timed[number], reasons[number] = time, reason
    return replace(found, timed=tuple(timed), why=tuple(reasons), failed=tuple(sorted(failed)))


def answered(timer: Timer, question: Any, say: Say) -> tuple[Any, bool]:
    """Answer in the child that owns the device; see `DeviceProcess`."""
    name, asked = question
    if name == "verify":
        return verified(timer.device, asked, say)
    if name == "about":
        arch = timer.device.arch
        return ("" if arch is None else arch.part), False
    try:
        return _timed(timer, asked, say), False
    except Exception as error:  # driver errors have no common base class
        return f"{type(error).__name__}: {error}", True


def _timed(timer: Timer, question: Any, say: Say) -> Times:
    workload, asked, vendor = question
    kernels = [(Candidate(program, FAMILIES[program.family], constants), code) for program, constants, code in asked]
    why = [timer.objection(*kernel, workload) for kernel in kernels]
    able = [index for index, reason in enumerate(why) if not reason]
    if not able and kernels:
        return Times(tuple(None for _ in why), None, timer.conditions(), tuple(f"not loaded: {each}" for each in why))

    timer.watch = lambda index: say(able[index] if index < len(able) else len(kernels))
    found = timer.times(workload, [kernels[index] for index in able], vendor)
    timed = dict(zip(able, found.timed, strict=True))
    reasons = tuple(reason and f"not loaded: {reason}" for reason in why)
    return replace(found, timed=tuple(timed.get(index) for index in range(len(kernels))), why=reasons)


@cache
def board() -> Board:
    """Return the GPU of this worker, which runs one task at a time."""
    return Board()
