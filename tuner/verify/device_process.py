"""Verification on the GPU from a process of its own.

A kernel that faults takes its CUDA context with it, and one that hangs never gives it back. Then a fresh process goes
on with the next kernel, and the process that tunes and times is not touched.
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

START_SECONDS = 120.0  # to import CuPy and make a context: a cold disk on a small board
KERNEL_SECONDS = 60.0  # for all cases of a kernel, which take milliseconds of the device's time
ATTEMPTS = 2  # before a kernel is to blame for a process that died or did not answer


class DeviceVerifier:
    """Executes kernels on the device that `open_device` gives, in a child process; a context manager.

    `open_device` is called there, so it must be a function of a module, or a partial of one.
    """

    def __init__(self, open_device: Callable[[], Device], seconds: float = KERNEL_SECONDS):
        self.open_device, self.seconds = open_device, seconds
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> DeviceVerifier:
        """Open the device. Raises GpuError with the sentence of the GensorError that `open_device` raised."""
        self._start()
        return self

    def __enter__(self) -> DeviceVerifier:
        return self if self._process is not None else self.start()

    def __exit__(self, *reason: object) -> None:
        self._stop(5.0)

    def verify(self, candidate: Candidate, code: Code, workload: Workload) -> Verdict:
        """What executing a kernel showed. Raises GpuError where that says nothing about the kernel."""
        for _ in range(ATTEMPTS):
            verdict = self._ask(candidate, code, workload)
            if verdict.outcome != "timeout":
                return verdict
        # Busy machines do not explain that it went wrong twice.
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
        context = multiprocessing.get_context("spawn")  # a forked child cannot use CUDA
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
        """End the process, by force after `patience` seconds; its exit code where it ended by itself."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()  # which the process takes for its end
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
    """The child: opens the device, says "" or why it could not, then answers one request after the other.

    It answers with a Verdict, or with a sentence about an error that is no kernel's. After that, and after a fault,
    the context is not used any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the pipe
    os.dup2(2, 1)  # stdout is the parent's, for data
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
        except Exception as error:  # the driver's errors have no common base
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
        if not isinstance(answer, Verdict) or answer.outcome == "failed":
            os._exit(0)  # a lost context makes noise when its arrays are freed
