"""Verification on the GPU in a separate process.

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

from gensor_kernels.devices.device import Code, Device
from gensor_kernels.errors import GensorError
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError

from .on_device import verify_on
from .verify import Verdict

START_SECONDS = 120.0  # to import CuPy and create a context, even from a cold disk on a small board
KERNEL_SECONDS = 60.0  # for all cases of a kernel, which take milliseconds on the device
ATTEMPTS = 2  # before a kernel is blamed for a process that died or did not answer


class DeviceVerifier:
    """Executes kernels in a child process, on the device that `open_device` returns; a context manager.

    `open_device` is called in the child, so it must be picklable: a module's function, or a partial of one.
    """

    def __init__(self, open_device: Callable[[], Device], seconds: float = KERNEL_SECONDS):
        self.open_device, self.seconds = open_device, seconds
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> DeviceVerifier:
        """Open the device; raise GpuError with the message of a GensorError from `open_device`."""
        self._start()
        return self

    def __enter__(self) -> DeviceVerifier:
        return self if self._process is not None else self.start()

    def __exit__(self, *reason: object) -> None:
        self._stop(5.0)

    def verify(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        """Return the verdict on a kernel; raise GpuError for a failure that says nothing about the kernel."""
        for _ in range(ATTEMPTS):
            verdict = self._ask(candidate, code, workload)
            if verdict.outcome != "timeout":
                return verdict
        # A busy machine does not explain two failures.
        return replace(verdict, outcome="failed", detail=f"{verdict.detail}, {ATTEMPTS} times")

    def _ask(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        pipe = self._pipe or self._start()
        try:
            pipe.send((candidate.program, candidate.constants, code, workload))
            if not pipe.poll(self.seconds):
                self._stop(0.0)
                return Verdict("timeout", f"did not end within {self.seconds:g} s", method="device")
            answer = pipe.recv()
        except (EOFError, OSError):
            ended = self._stop(5.0)
            return Verdict("timeout", f"the process that ran it ended with {ended}", method="device")
        if isinstance(answer, str):
            self._stop(5.0)
            raise GpuError(f"the GPU could not verify a kernel: {answer}")
        if answer.outcome == "failed":
            self._stop(5.0)
        return answer

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")  # CUDA cannot be used in a forked child
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.open_device), daemon=True)
        self._process.start()
        theirs.close()
        try:
            answer = self._pipe.recv() if self._pipe.poll(START_SECONDS) else "the GPU did not answer"
        except (EOFError, OSError):
            answer = f"the process that opens the GPU ended with {self._stop(5.0)}"
        if answer:
            self._stop(0.0)
            raise GpuError(answer, worth_telling=True)
        assert self._pipe is not None
        return self._pipe

    def _stop(self, patience: float) -> int | None:
        """End the process, by force after `patience` seconds; return its exit code if it ended by itself."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()  # tells the process to end
        if process is None:
            return None
        process.join(patience)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        return code


def _serve(pipe: Connection, open_device: Callable[[], Device]) -> None:
    """Serve in the child: open the device, send "" or an error message, then answer requests one by one.

    An answer is a Verdict, or a message about an error that is not the kernel's. The context is not used again after
    such an error or a fault.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and then closes the pipe
    os.dup2(2, 1)  # stdout belongs to the parent's data
    try:
        device = open_device()
    except GensorError as error:
        return pipe.send(str(error))
    pipe.send("")
    while True:
        try:
            program, constants, code, workload = pipe.recv()
        except EOFError:
            return None
        answer: Verdict | str
        try:
            answer = verify_on(device, Candidate(program, FAMILIES[program.family], constants), code, workload)
        except Exception as error:  # driver errors have no common base class
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
        if not isinstance(answer, Verdict) or answer.outcome == "failed":
            os._exit(0)  # freeing arrays of a lost context would print errors
