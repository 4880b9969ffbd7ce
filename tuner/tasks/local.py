"""Tasks on this machine: processes for work in Python, threads for compilers and the emulator."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from operator import methodcaller
from typing import Any

from gensor_kernels.build.compilers import COMPILERS
from gensor_kernels.build.parallel import ordered_map
from gensor_kernels.devices.emulator.build import prepare
from gensor_tuner.output import note
from gensor_tuner.parent_watch import follow

from .task import Executor, Result, Task, ignore

PARALLEL_FROM = 6  # with fewer tasks in Python, starting processes costs more than it saves
RUN = methodcaller("run")
AHEAD = 8  # tasks per process that may run ahead of their request: tasks requested meanwhile wait for them


class Local(Executor):
    """Runs tasks in this process and its children; results do not depend on their number."""

    def __init__(self, jobs: int):
        super().__init__(jobs)
        self._pool: ProcessPoolExecutor | None = None
        self._expected: Sequence[Task[Any]] = ()
        self._ahead: dict[Hashable, Future[Any]] = {}
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def __exit__(self, *reason: object) -> None:
        if reason[0] is not None:  # their results are not needed
            for process in self._processes:
                process.kill()
        if self._pool is not None:
            self._pool.shutdown()  # without cancel_futures: Python 3.11 hangs if a worker was killed then

    def expect(self, tasks: Sequence[Task[Any]]) -> None:
        """Let processes that have nothing else to do run some of these tasks."""
        self._expected = tasks[: AHEAD * self.jobs]

    def prepare(self) -> None:
        """Begin to compile what all executions on the emulator share."""
        prepare()

    def map(self, tasks: Sequence[Task[Result]], done: Callable[[int, Result], None] = ignore) -> list[Result]:
        """Return the results of tasks, in their order."""
        if tasks and tasks[0].in_python:
            results = []
            for result in self._in_processes(tasks):
                results.append(result)
                done(len(results) - 1, result)
            return results
        # NVRTC, g++ and the emulator release Python's lock; NVRTC has its own, so processes also compile.
        with COMPILERS.allow(self.jobs - 1):
            return ordered_map(RUN, tasks, self.jobs, done)

    def _in_processes(self, tasks: Sequence[Task[Result]]) -> Iterator[Result]:
        """Yield results; if processes cannot be started or one is killed, this process runs the remaining tasks."""
        if self.jobs == 1 or (self._pool is None and len(tasks) < PARALLEL_FROM):
            yield from (task.run() for task in tasks)
            return
        count = 0
        try:
            for future in self._submitted(tasks):
                yield future.result()
                count += 1
        except (OSError, ImportError, BrokenProcessPool) as error:
            note(f"walks go on in one process: {error}")
            self.jobs = 1
            self._ahead.clear()
            yield from (task.run() for task in tasks[count:])

    def _submitted(self, tasks: Sequence[Task[Result]]) -> list[Future[Result]]:
        if self._pool is None:
            # spawn: forking a process with NVRTC's threads is undefined.
            context = multiprocessing.get_context("spawn")
            with _without_interrupts():
                resource_tracker.ensure_running()  # or the pool starts it, which unblocks SIGINT in this thread
            self._pool = ProcessPoolExecutor(self.jobs, context, follow, (os.getpid(),))
        before = multiprocessing.active_children()
        with _without_interrupts():  # inherited by processes started now: this process handles Ctrl-C
            ahead, submit = self._ahead, self._pool.submit
            futures = [ahead.pop(task.key) if task.key in ahead else submit(RUN, task) for task in tasks]
            self._ahead |= {task.key: self._pool.submit(RUN, task) for task in self._expected}
            self._expected = ()
            self._processes += [each for each in multiprocessing.active_children() if each not in before]
        return futures


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Defer SIGINT within the block, also in processes started there; without signal masks, do nothing."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    # Children inherit the mask. Other threads of this process have their own masks, so a handler defers as well.
    handler = signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])
