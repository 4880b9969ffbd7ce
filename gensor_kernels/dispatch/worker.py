"""The tuning process as the runtime sees it: started when there is something to tune, never outliving this process.

It has a CUDA context of its own, which a bad kernel can spoil without harm to the caller's. Requests and answers are
lines of JSON; what the process prints besides goes to its stderr. Before a kernel runs on the device, the process
says which: when it dies or hangs then, that kernel is to blame.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from ..errors import GensorError

COMMAND = (sys.executable, "-m", "gensor_tuner.worker")
#: Seconds one request may take; a new class takes about eight.
PATIENCE = 300.0
LONGEST_LINE = 1 << 20
MOST_CHATTER = 100  # lines that are no messages


class WorkerError(GensorError):
    """The process died, hung or talked nonsense; `trying` is the digest of the kernel that ran meanwhile."""

    def __init__(self, reason: str, trying: str | None = None):
        super().__init__(reason)
        self.trying = trying


class Worker:
    """One process at a time; a new one is started when the last has died. Requests wait for each other."""

    def __init__(self, command: Sequence[str] = COMMAND, patience: float = PATIENCE):
        self.command, self.patience = tuple(command), patience
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._pid = os.getpid()
        _all.add(self)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, {"status": ..., "kernel": ..., "error": ...}; WorkerError without one."""
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
            except WorkerError as error:
                self._end()
                raise WorkerError(str(error), trying) from None
            except BaseException:  # Ctrl-C: the answer must not be taken for the next request's
                self._end()
                raise

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _send(self, request: dict[str, Any]) -> None:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise WorkerError(f"the tuning process cannot be reached: {error.strerror or error}") from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._pid != os.getpid():  # a forked child: the process is the parent's
            self._process, self._pid = None, os.getpid()
        if self._process is not None and self._process.poll() is None:
            return self._process
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that its compilers end with it, and Ctrl-C is ours
                env={**os.environ, "GENSOR_TUNE": "off"},
            )
        except OSError as error:
            raise WorkerError(f"the tuning process cannot be started: {error.strerror or error}") from None
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        return self._process

    def _message(self, deadline: float) -> dict[str, Any]:
        """The next message. What a library prints before it can be kept from it is passed over, if it is not much."""
        line = b""
        for _ in range(MOST_CHATTER):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise WorkerError(f"the tuning process did not answer within {self.patience:g} s") from None
            if not line:
                raise WorkerError(f"the tuning process ended with {self._code()}")
            message = _parsed(line)
            if message is not None:
                return message
        raise WorkerError(f"the tuning process talks nonsense: {line[:60]!r}")

    def _code(self) -> int | None:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0)
        return None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._pid != os.getpid():
            return
        with suppress(OSError):  # it may be gone
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        process.wait()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line as a message; None where it is none."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("trying"), (str, type(None))):
        return None
    return message


def _read(pipe: Any, lines: queue.Queue[bytes]) -> None:
    """Lines as they come, an empty one at the end; a line without an end is cut, and is no JSON then."""
    while True:
        line = pipe.readline(LONGEST_LINE)
        lines.put(line)
        if not line:
            pipe.close()
            return


_all: WeakSet[Worker] = WeakSet()


@atexit.register
def _end_all() -> None:
    for worker in list(_all):
        worker.close()
