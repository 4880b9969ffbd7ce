"""Processes that compile in parallel with this one.

NVRTC compiles one source at a time per process: on two idle cores, two threads need 5.2 s for ten kernels that one
thread compiles in 5.4 s, two processes 2.7 s. While a thread of this process compiles, others therefore
send their sources to processes (compile_process.py). A process that dies, or cannot be started, costs time but no
result: its source is compiled here.

Processes are started only inside `Compilers.allow`, wait for requests until this process ends, and take about 140 MB.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gensor_kernels import forking
from gensor_kernels.errors import GensorError

from .compile_process import HEADER

PROGRAM = Path(__file__).resolve().parent / "compile_process.py"
_LONGEST = 1 << 30  # bytes of an answer


class Lost(GensorError):
    """A process died, or its answer makes no sense."""


class CompileProcess:
    """One process that compiles. Raises Lost if it cannot be started, or has another NVRTC than `version`."""

    def __init__(self, version: str):
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                bufsize=0,  # buffers have locks, which a forked child could find locked
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError, TypeError) as error:  # no memory or processes are left; no sys.executable
            raise Lost(str(error)) from None
        try:
            self._send(json.dumps([each for each in sys.path if isinstance(each, str)]).encode())
            answered = self._receive(len(version) + 1)
            if answered != f"{version}\n".encode():
                raise Lost(f"the process has NVRTC {answered!r}")
        except Lost:
            self.close()
            raise

    def compile(self, text: bytes, target: str) -> tuple[str | None, str, bytes]:
        """Return what `compile_text` returns; raise Lost if the process dies."""
        self._send(target.encode())
        self._send(text)
        try:
            report = json.loads(self._block())
            return report["error"], report["log"], self._block()
        except (ValueError, KeyError, TypeError):
            raise Lost("the answer is not JSON") from None

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._process.kill()
        self.forget()
        self._process.wait()

    def forget(self) -> None:
        """Close this process's ends of the pipes; the process ends when every copy is closed."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()

    def _send(self, block: bytes) -> None:
        assert self._process.stdin is not None
        data = memoryview(HEADER.pack(len(block)) + block)
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except (OSError, ValueError) as error:
            raise Lost(str(error)) from None

    def _block(self) -> bytes:
        (size,) = HEADER.unpack(self._receive(HEADER.size))
        if size > _LONGEST:
            raise Lost(f"an answer of {size} bytes")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None
        parts, left = [], size
        while left:
            try:
                part = self._process.stdout.read(left)
            except (OSError, ValueError) as error:
                raise Lost(str(error)) from None
            if not part:
                raise Lost("the process ended")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


class Compilers:
    """The compile processes of this process, of which some wait for work."""

    def __init__(self) -> None:
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """Start without processes: those of the parent stay its own."""
        self._lock = threading.Lock()
        for process in getattr(self, "_all", ()):
            process.forget()
        self._all: list[CompileProcess] = []
        self._idle: list[CompileProcess] = []
        self._starting = 0
        self._allowed: list[int] = []  # by every block of `allow` that is under way
        self._here = 0  # threads that compile in this process

    @contextmanager
    def allow(self, most: int) -> Iterator[None]:
        """Let up to `most` processes compile in addition to this one within the block."""
        with self._lock:
            self._allowed.append(most)
        try:
            yield
        finally:
            with self._lock, suppress(ValueError):  # not there in a child that was forked within the block
                self._allowed.remove(most)

    @contextmanager
    def lend(self, version: str) -> Iterator[CompileProcess | None]:
        """Give the thread a process for one compilation; None: it compiles in this process."""
        process = self._take(version)
        whole = False
        try:
            yield process
            whole = True
        finally:
            with self._lock:
                if process is None:
                    self._here = max(self._here - 1, 0)
                elif process in self._all:  # not in a child that was forked within the block
                    if whole:
                        self._idle.append(process)
                    else:  # its next bytes may belong to this answer
                        self._all.remove(process)
                        process.close()

    def _take(self, version: str) -> CompileProcess | None:
        with self._lock:
            most = max(self._allowed, default=0)
            if not self._here or not most:
                self._here += 1
                return None
            if self._idle:
                return self._idle.pop()
            room = len(self._all) + self._starting < most
            self._starting += room
        found = self._start(version) if room else None
        if found is None:
            with self._lock:
                self._here += 1
        return found

    def _start(self, version: str) -> CompileProcess | None:
        """Return a new process, counted in `_starting` until now, or None if it cannot be started."""
        process: CompileProcess | None = None
        with suppress(Lost):
            process = CompileProcess(version)
        with self._lock:
            self._starting -= 1
            if process is not None:
                self._all.append(process)
        return process

    def close(self) -> None:
        """End the processes that wait."""
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                self._all.remove(process)
                process.close()


COMPILERS = Compilers()
atexit.register(COMPILERS.close)
