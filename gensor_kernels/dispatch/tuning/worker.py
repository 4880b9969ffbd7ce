"""The tuning process as the runtime sees it: started when there is something to tune, never outliving this process.

It has its own CUDA context, which a bad kernel can ruin without harm to the caller's. Requests and answers are
lines of JSON; what the process prints besides goes to its stderr. Before a kernel runs on the device, the process
says which: when it dies or hangs then, that kernel is to blame.

No thread reads for us, and the pipes have no buffers with locks: both would be in the way of forks and at exit.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from gensor_kernels import forking
from gensor_kernels.errors import GensorError

COMMAND = (sys.executable or "python3", "-m", "gensor_tuner.run.worker")
#: Seconds one request may take; a new class takes a few.
PATIENCE = 300.0
LONGEST_LINE = 1 << 20
MOST_CHATTER = 100  # lines that are no messages
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Seconds a killed process may take to be gone: one that hangs in the driver may take for ever.
LAST_SECONDS = 5.0


class WorkerError(GensorError):
    """The process died, hung or talked nonsense; `trying` is the digest of the kernel that ran meanwhile."""

    def __init__(self, reason: str, trying: str | None = None):
        super().__init__(reason)
        self.trying = trying


class Ended(WorkerError):
    """The process was ended by the system, out of memory, or by this program at its end, not by a kernel."""


class Worker:
    """One process at a time; a new one is started when the last has died. Requests wait for each other."""

    def __init__(self, command: Sequence[str] = COMMAND, patience: float = PATIENCE):
        self.command, self.patience = tuple(command), patience
        self.stopped = False
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""  # and not a whole line yet
        _all.add(self)
        forking.renew(self)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, {"status": ..., "kernel": ..., "error": ...}; WorkerError without one."""
        with self._lock:
            trying: str | None = None
            try:
                self._send(request)
                deadline = time.monotonic() + self.patience
                while True:
                    message = self._message(deadline)
                    if "status" in message:
                        return message
                    trying = message.get("trying")
            except Ended:
                self._end()
                raise
            except WorkerError as error:
                self._end()
                raise WorkerError(str(error), trying) from None
            except BaseException:  # Ctrl-C: the answer must not be taken for the next request's
                self._end()
                raise

    def close(self) -> None:
        """End the process when it has answered; the next request starts another."""
        with self._lock:
            self._end()

    def stop(self) -> None:
        """End the process at once and for good, even if a thread waits for it: this program is about to end."""
        self.stopped = True
        process = self._process
        if process is not None:
            _kill(process)
        if self._lock.acquire(timeout=1.0):  # who waits for its answer sees that there is none
            try:
                self._end()
            finally:
                self._lock.release()

    def after_fork(self) -> None:
        """Close the pipes of the parent's process, which would keep it waiting."""
        self._lock = threading.Lock()
        process, self._process, self._read = self._process, None, b""
        if process is not None:
            _close(process)
            _abandoned.append(process)

    def _send(self, request: dict[str, Any]) -> None:
        process = self._running()
        assert process.stdin is not None
        data = json.dumps(request).encode() + b"\n"
        try:
            while data:
                data = data[process.stdin.write(data) :]
        except OSError as error:
            raise WorkerError(f"the tuning process cannot be reached: {error.strerror or error}") from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        if self.stopped:
            raise Ended("this program ends")
        if not hasattr(select, "poll"):
            raise WorkerError("tuning while the program runs needs a POSIX system")
        try:
            self._process = subprocess.Popen(
                self.command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that its compilers end with it, and Ctrl-C is ours
                # The process uses every core itself: threads of BLAS would only wait for work, at full speed.
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ, "GENSOR_TUNE": "off", "GENSOR_ACCELERATE": "0"},
            )
        except (OSError, RuntimeError, ValueError) as error:  # no memory, files or processes are left
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise WorkerError(f"the tuning process cannot be started: {reason}") from None
        if self.stopped:  # meanwhile
            raise Ended("this program ends")
        return self._process

    def _message(self, deadline: float) -> dict[str, Any]:
        """Return the next message. A limited number of lines that libraries print before it are skipped."""
        line = b""
        for _ in range(MOST_CHATTER):
            line = self._line(deadline)
            if not line:
                raise self._end_error()
            message = _parse(line)
            if message is not None:
                return message
        raise WorkerError(f"the tuning process talks nonsense: {line[:60]!r}")

    def _line(self, deadline: float) -> bytes:
        """Return the next line, empty at the end; one that has no end is cut, and is no JSON then."""
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        while b"\n" not in self._read and len(self._read) < LONGEST_LINE:
            left = math.ceil(1000 * (deadline - time.monotonic()))
            if left <= 0 or not waiting.poll(left):
                raise WorkerError(f"the tuning process did not answer within {self.patience:g} s")
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            self._read += data
        line, end, self._read = self._read.partition(b"\n")
        return line + end

    def _end_error(self) -> WorkerError:
        """Return the error of a process that has closed its output."""
        assert self._process is not None
        if self.stopped:
            return Ended("this program ends")
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return WorkerError("the tuning process closed its output")
        if code in (-signal.SIGKILL, -signal.SIGTERM):  # which no kernel sends
            return Ended(f"the tuning process was ended by {signal.Signals(-code).name}: is there enough memory?")
        return WorkerError(f"the tuning process ended with {code}")

    def _end(self) -> None:
        process, self._process, self._read = self._process, None, b""
        if process is None:
            return
        _kill(process)
        _close(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_SECONDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those it has started."""
    with suppress(OSError):  # it may be gone
        os.killpg(process.pid, signal.SIGKILL)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as a message, or None if it is not one."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not ("status" in message or "trying" in message):
        return None
    trying = message.get("trying")
    return message if trying is None or (isinstance(trying, str) and _DIGEST.fullmatch(trying)) else None


_all: WeakSet[Worker] = WeakSet()
_abandoned: list[subprocess.Popen[bytes]] = []  # of a parent: what waits for a process's end is not ours


@atexit.register
def _stop_all() -> None:
    for worker in list(_all):
        worker.stop()
