"""Work on the GPU in a separate process: kernels are verified there, and timed for other machines.

A kernel that faults destroys its CUDA context, and a kernel that hangs never returns it. A fresh process then continues
with the next kernel; the process that tunes and times is not affected.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from gensor_kernels.devices.device import Code, Device
from gensor_kernels.errors import GensorError
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError
from gensor_tuner.parent_watch import follow

from .on_device import verify_on
from .verify import Verdict

START_SECONDS = 120.0  # to import CuPy and create a context, even from a cold disk on a small board
KERNEL_SECONDS = 60.0  # for all cases of a kernel, which take milliseconds on the device
ATTEMPTS = 2  # before a kernel is blamed for a process that died or did not answer
KILLED = (-9, -15)  # exit codes of a process that SIGKILL or SIGTERM ended

#: Sends a note to the process that has asked, before the answer.
Say = Callable[[Any], None]


class EndedError(GensorError):
    """The process died, or did not answer; `killed`: by a signal that no kernel sends, as without memory."""

    def __init__(self, reason: str, killed: bool = False):
        super().__init__(reason)
        self.killed = killed


class DeviceProcess:
    """A child process with a device, which answers questions; a context manager.

    `open_device` and `answer` are called in the child, so they must be picklable: functions of a module, or partials. A
    GensorError of the first becomes the parent's GpuError. ``answer(device, question, say)`` returns the answer, and
    whether the device's context may be lost, so that the child ends. `seconds` is the longest time between two messages
    of the child.
    """

    def __init__(
        self,
        open_device: Callable[[], Any],
        answer: Callable[[Any, Any, Say], tuple[Any, bool]],
        seconds: float = KERNEL_SECONDS,
    ):
        self.open_device, self.answer, self.seconds = open_device, answer, seconds
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Any:
        if self._process is None:
            self._start()
        return self

    def __exit__(self, *reason: object) -> None:
        self.stop(5.0)

    def ask(self, question: Any, on_note: Say = lambda note: None) -> Any:
        """Return the answer, after a note each to `on_note`; EndedError where the child ends, GpuError without one."""
        pipe = self._pipe or self._start()
        try:
            pipe.send(question)
            while True:
                if not pipe.poll(self.seconds):
                    self.stop(0.0)
                    raise EndedError(f"did not end within {self.seconds:g} s")
                kind, found, last = pipe.recv()
                if kind == "answer":
                    if last:
                        self.stop(5.0)
                    return found
                on_note(found)
        except (EOFError, OSError):
            code = self.stop(5.0)
            raise EndedError(f"the process that ran it ended with {code}", code in KILLED) from None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")  # CUDA cannot be used in a forked child
        pipe, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.open_device, self.answer), daemon=True)
        process.start()
        theirs.close()
        self._pipe, self._process = pipe, process
        error: GpuError | None = GpuError("the GPU did not answer", worth_telling=True)
        try:
            if pipe.poll(START_SECONDS):
                error = pipe.recv()
        except (EOFError, OSError):
            error = GpuError(f"the process that opens the GPU ended with {self.stop(5.0)}", worth_telling=True)
        if error is not None:
            self.stop(0.0)
            raise error
        assert self._pipe is not None
        return self._pipe

    def stop(self, patience: float) -> int | None:
        """End the process, by force after `patience` seconds; return its exit code if it ended by itself."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()  # ends the process
        if process is None:
            return None
        process.join(patience)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        return code


def _serve(pipe: Connection, open_device: Callable[[], Any], answer: Callable[[Any, Any, Say], Any]) -> None:
    """Serve in the child: open the device, send None or a GpuError, then answer questions one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and then closes the pipe
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        follow(parent.pid)  # a kernel that hangs never looks at the pipe
    os.dup2(2, 1)  # stdout belongs to the parent's data
    try:
        device = open_device()
    except GensorError as error:
        return pipe.send(GpuError(str(error), getattr(error, "worth_telling", True)))
    pipe.send(None)
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return None
        found, last = answer(device, question, lambda note: pipe.send(("note", note, False)))
        pipe.send(("answer", found, last))
        if last:
            os._exit(0)  # freeing arrays of a lost context would print errors


class DeviceVerifier(DeviceProcess):
    """Executes kernels in a child process, on the device that `open_device` returns."""

    def __init__(self, open_device: Callable[[], Device], seconds: float = KERNEL_SECONDS):
        super().__init__(open_device, verified, seconds)

    def verify(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        """Return the verdict on a kernel; raise GpuError for a failure that says nothing about the kernel."""
        return judged(lambda: self.ask((candidate.program, candidate.constants, code, workload)))


def judged(ask: Callable[[], Any]) -> Verdict:
    """Return the verdict that `ask` brings from a child; GpuError for a failure that says nothing about the kernel."""
    for _ in range(ATTEMPTS):
        try:
            answer = ask()
        except EndedError as error:
            if error.killed:
                raise GpuError(f"the GPU could not verify a kernel: {error}") from None
            verdict = Verdict("timeout", str(error), method="device")
            continue
        if isinstance(answer, str):
            raise GpuError(f"the GPU could not verify a kernel: {answer}")
        found: Verdict = answer
        return found
    # A busy machine does not explain two failures.
    return replace(verdict, outcome="failed", detail=f"{verdict.detail}, {ATTEMPTS} times")


def verified(device: Device, question: Any, say: Say) -> tuple[Verdict | str, bool]:
    """Answer with a Verdict, or a message about an error that is not the kernel's."""
    program, constants, code, workload = question
    answer: Verdict | str
    try:
        answer = verify_on(device, Candidate(program, constants), code, workload)
    except Exception as error:  # driver errors have no common base class
        return f"{type(error).__name__}: {error}", True
    return answer, answer.outcome == "failed"
