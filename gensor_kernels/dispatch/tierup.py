"""Tuning of calls: at once where `GENSOR_TUNE=now` asks for it, in the background where a kind of call is hot.

Either way the walk, the compiler and the timing run in a process of their own (worker.py), and what comes of it goes
through the user's database. Nothing is tuned inside graph capture, nor where `GENSOR_TUNE=off` or
`GENSOR_DETERMINISTIC=1` forbid it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

from gensor_database import Verification

from .. import config
from ..machine.arch import Arch
from ..machine.roofline import bound_us
from ..operators.workload import Workload
from .library import Library
from .notes import Notes
from .tiers import Choice, Request, choose
from .worker import Worker, WorkerError

if TYPE_CHECKING:
    from .runtime import Runtime

WORKER = Worker()
ATTEMPTS = 3  # processes that may die or hang over one Workload, each over a kernel of its own
MOST_FAILURES = 3  # in a row: then something is missing here, the tune extra say, and no more is tried
#: A kernel within this factor of the roofline bound is not worth a walk.
NEAR_BOUND = 1.15


def improve(request: Request, choice: Choice, library: Library, tried: set[str], notes: Notes | None = None) -> Choice:
    """The choice after whatever `GENSOR_TUNE=now` allows; `tried` remembers the Workloads that were tuned already.

    `GENSOR_DETERMINISTIC` allows nothing: the kernel must follow from call, device and databases alone.
    """
    workload = request.problem.workload
    known = choice.tier in (1, 2) or workload.key() in library.contents.records or library.timings(workload)
    if config.tune_mode() != "now" or config.deterministic() or request.captured or known:
        return choice
    key = workload.key()
    if key in tried:
        return choice
    tried.add(key)
    _say(f"tuning {workload.operator} {dict(workload.sizes)} ...")
    done = tune(workload, request.arch, notes)
    _say(f"tuning {workload.operator} {dict(workload.sizes)}: {'done' if done else 'no kernel'}\n")
    if not done:
        return choice
    library.reload()
    return choose(request, library)


def _say(text: str) -> None:
    """A line of progress for a person who waits."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r\033[Kgensor-kernels: {text}", end="", file=sys.stderr, flush=True)


def tune(workload: Workload, arch: Arch, notes: Notes | None = None) -> bool:
    """Tunes one Workload into the user's database; False, and a warning, where that failed.

    A kernel during which the process died or hung is stored as failed, and the rest is tried again without it.
    """
    database = config.own_database()
    if database is None:
        return False
    request = {"workload": json.loads(workload.key()), "arch": arch.part, "db": str(database)}
    for _ in range(ATTEMPTS):
        try:
            answer = WORKER.ask(request)
        except WorkerError as error:
            config.logger().warning("tuning did not finish: %s", error)
            if error.trying is None:
                return False
            (notes or Notes()).add([Verification(error.trying, "device", "failed", str(error))])
            continue
        if answer.get("status") != "ok":
            config.logger().warning("tuning found no kernel: %s", answer.get("error"))
            return False
        return True
    return False


class Background:
    """Hot kinds of calls of one Runtime, tuned one after the other while the program goes on."""

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self._lock = threading.Lock()
        self._waiting: deque[Workload] = deque()
        self._thread: threading.Thread | None = None
        self._failed = 0  # in a row

    def consider(self, workload: Workload) -> None:
        """Tunes a hot Workload, unless that was done or cannot gain anything."""
        runtime, key = self.runtime, workload.key()
        if key in runtime.tuned or not self._allowed() or self._is_good(workload):
            return
        runtime.tuned.add(key)
        with self._lock:
            self._waiting.append(workload)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="gensor-tuning", daemon=True)
                self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Waits until nothing is left to tune, at most `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _allowed(self) -> bool:
        device, asked = self.runtime.device, config.background()
        wanted = (not device.integrated if asked is None else asked) and self._failed < MOST_FAILURES
        return wanted and not device.emulated and config.tune_mode() != "off" and not config.deterministic()

    def _is_good(self, workload: Workload) -> bool:
        library, arch = self.runtime.library, self.runtime.device.arch
        if arch is None or library.record(workload) is not None:
            return True
        times = [row.median_us for row in library.timings(workload)]
        return bool(times) and min(times) <= NEAR_BOUND * bound_us(workload, arch)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    break
                workload = self._waiting.popleft()
            try:
                self._tune(workload)
            except Exception as error:  # the program goes on with what it has
                config.logger().warning("tuning in the background failed: %s", error, exc_info=True)
        WORKER.close()  # with it the memory of its CUDA context

    def _tune(self, workload: Workload) -> None:
        runtime = self.runtime
        assert runtime.device.arch is not None
        config.logger().info("tuning in the background: %s", workload.key())
        if tune(workload, runtime.device.arch, runtime.notes):
            self._failed = 0
            runtime.renew(workload)
        else:
            self._failed += 1
