"""Tuning of calls: at once where `GENSOR_TUNE=now` asks for it, in the background where a kind of call is hot.

Either way the walk, the compiler and the timing run in a process of their own (worker.py), and what comes of it goes
through the user's database. Nothing is tuned inside graph capture, nor where `GENSOR_TUNE=off` or
`GENSOR_DETERMINISTIC=1` forbid it.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from gensor_database import LockedStoreError, Store, StoreError, Verification
from gensor_database.errors import first_told
from gensor_kernels import config, forking
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.selection.tiers import Choice, Request, choose
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.registry import FAMILIES

from .lock import claim
from .runtime import Tuned
from .worker import PATIENCE, Ended, Worker, WorkerError
from .writeback import Notes

WORKER = Worker()
ATTEMPTS = 3  # processes that may die or hang over one Workload, each over a kernel of its own
MOST_FAILURES = 3  # in a row: then something is missing here, the tune extra say, and no more is tried
#: A kernel within this factor of the roofline bound is not worth a walk.
NEAR_BOUND = 1.15


def improve(
    request: Request, choice: Choice, library: Library, tried: set[str], notes: Notes | None = None, device: int = 0
) -> Choice:
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
    done = tune(workload, request.arch, notes, device)
    _say(f"tuning {workload.operator} {dict(workload.sizes)}: {'done' if done else 'no kernel'}\n")
    if not done:
        return choice
    counters.tunes.add()
    library.reload()
    return choose(request, library)


def _say(text: str) -> None:
    """A line of progress for a person who waits."""
    with suppress(OSError, ValueError):  # it is closed, or the terminal gone
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"\r\033[Kgensor-kernels: {text}", end="", file=sys.stderr, flush=True)


def tune(workload: Workload, arch: Arch, notes: Notes | None = None, device: int = 0, background: bool = False) -> bool:
    """Tunes one Workload into the user's database, or waits while another process does; False where there is no kernel.

    It is measured on the GPU of number `device`. In the `background` this program goes on using that GPU, so its times
    are stored as such, and a race decides whether the kernel serves. Why there is none is a warning of the process that
    tuned.
    """
    database = config.own_database()
    if database is None:
        return False
    if not _can_store(database):
        return False
    with claim(database, f"{arch.part} {workload.key()}", ATTEMPTS * PATIENCE) as mine:
        stored = _is_stored(database, workload, arch)
        return stored if stored or not mine else _tuned(database, workload, arch, notes, device, background)


def _can_store(database: Path) -> bool:
    """Whether what is tuned could be stored; where not, that is said once: nobody is to wait for a walk in vain."""
    try:
        with Store.open(database) as store:
            store.add()
    except LockedStoreError:  # by the time there is something to store it may not be any more
        return True
    except StoreError as error:
        say = config.logger().warning if first_told(database) else config.logger().info
        say("nothing is tuned: %s", error)
        return False
    return True


def _is_stored(database: Path, workload: Workload, arch: Arch) -> bool:
    """Whether the database has a kernel for this Workload that serves here."""
    abis = {name: family.abi for name, family in FAMILIES.items()}
    try:
        with Store.open(database, readonly=True) as store:
            entry = store.find(workload.key(), arch.name, arch.part, abis)
    except StoreError:
        return False
    return entry is not None and entry.usable


def _tuned(database: Path, workload: Workload, arch: Arch, notes: Notes | None, device: int, background: bool) -> bool:
    """Whether the tuning process finds a kernel.

    One during which it died or hung is stored as failed, and the rest is tried again without it.
    """
    request = {"workload": json.loads(workload.key()), "arch": arch.part, "db": str(database), "device": device}
    request |= {"background": True} if background else {}
    for _ in range(ATTEMPTS):
        try:
            answer = WORKER.ask(request)
        except Ended as error:
            config.logger().info("tuning was ended: %s", error)
            return False
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

    def __init__(self, runtime: Tuned):
        self.runtime = runtime
        self._failed = 0  # in a row
        self.after_fork()
        forking.renew(self)
        _all.add(self)

    def after_fork(self) -> None:
        """The thread, and what waits for it, is the parent's."""
        self._lock = threading.Lock()
        self._waiting: deque[Workload] = deque()
        self._thread: threading.Thread | None = None

    def consider(self, workload: Workload) -> None:
        """Tunes a hot Workload, unless that was done or cannot gain anything. Raises nothing: a call waits."""
        try:
            if self._allowed() and not self._is_good(workload):
                self._start(workload)
        except Exception as error:
            config.logger().warning("tuning in the background failed: %s", error, exc_info=True)

    def join(self, timeout: float | None = None) -> None:
        """Waits until nothing is left to tune, at most `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def drop(self) -> None:
        """Tunes nothing of what waits."""
        with self._lock:
            self._waiting.clear()

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

    def _start(self, workload: Workload) -> None:
        with self._lock:
            if workload.key() in self.runtime.tuned:
                return
            self.runtime.tuned.add(workload.key())
            self._waiting.append(workload)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._work, name="gensor-tuning", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there may be no more threads, and at a program's end there are none
                self._waiting.clear()
                config.logger().info("nothing is tuned in the background: %s", error)
            else:
                self._thread = thread

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
        if tune(workload, runtime.device.arch, runtime.notes, runtime.device.number, True):
            self._failed = 0
            counters.tunes.add()
            runtime.renew(workload)
        else:
            self._failed += 1


_all: WeakSet[Background] = WeakSet()


@atexit.register
def _stop() -> None:
    """A program that ends does not wait for what it tunes: the process is ended, and the threads come to theirs."""
    running = list(_all)
    for each in running:
        each.drop()
    WORKER.stop()
    for each in running:
        each.join(1.0)
