"""Tuning of calls: at once with `GENSOR_TUNE=now`, else in the background for hot kinds of calls.

The walk, the compiler and the timing run in another process (worker.py), and results go through the user's database.
Nothing is tuned inside graph capture, nor where `GENSOR_TUNE=off` or `GENSOR_DETERMINISTIC=1` forbid it.

A call that waits is served by the first verified kernel; the rest of its tuning follows in the background, unless
`GENSOR_BACKGROUND=0`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from gensor_database import LockedStoreError, Store, StoreError, Verification
from gensor_database.errors import is_first_report
from gensor_database.trust import make_folder
from gensor_kernels import config, forking
from gensor_kernels.dispatch.file_lock import State, file_lock
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.selection.tiers import Choice, Request, choose
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload

from .tuned_calls import TunedCalls
from .worker import PATIENCE, Ended, Worker, WorkerError
from .writeback import Notes

WORKER = Worker()
BACKGROUND_WORKER = Worker()  # a call that waits must not wait for the tuning of earlier ones
ATTEMPTS = 3  # processes that may die or hang on one Workload, each on another kernel
MOST_FAILURES = 3  # in a row: then something is missing here, the tune extra say, and no more is tried
#: A kernel within this factor of the roofline bound is not worth a walk.
NEAR_BOUND = 1.15


def improve(runtime: TunedCalls, request: Request, choice: Choice) -> Choice:
    """Return the choice after whatever `GENSOR_TUNE=now` allows, once per Workload.

    The call waits for its first kernel only, unless `GENSOR_BACKGROUND=0` keeps the rest from following later.
    `GENSOR_DETERMINISTIC` allows nothing: the kernel must follow from call, device and databases alone.
    """
    if config.tune_mode() != "now" or config.deterministic() or request.captured:
        return choice
    epoch = runtime.library.epoch
    with runtime.tunings.at(request.problem.workload.key()):
        # Another kind of call of this Workload may have been tuned while this one waited.
        found = choice if runtime.library.epoch is epoch else choose(request, runtime.library)
        return _tuned(runtime, request, found)


def _tuned(runtime: TunedCalls, request: Request, choice: Choice) -> Choice:
    """Return the choice after its Workload was tuned, if it was not before."""
    workload, library = request.problem.workload, runtime.library
    key, contents = workload.key(), library.contents
    known = choice.tier in (1, 2) or key in contents.records or library.timings(workload)
    if key in runtime.tuned:
        return choice
    if known:
        if key in contents.unsettled:
            runtime.refine(workload)
        return choice
    runtime.tuned.add(key)
    _say(f"tuning {workload.operator} {dict(workload.sizes)} ...")
    first = config.background() is not False
    done = tune(workload, request.arch, runtime.notes, runtime.device.number, first=first)
    _say(f"tuning {workload.operator} {dict(workload.sizes)}: {'done' if done else 'no kernel'}\n")
    if not done:
        return choice
    counters.tunes.add()
    library.reload()
    if first:
        runtime.refine(workload)
    return choose(request, library)


def _say(text: str) -> None:
    """Print a line of progress for a person who waits."""
    with suppress(OSError, ValueError):  # it is closed, or the terminal gone
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"\r\033[Kgensor-kernels: {text}", end="", file=sys.stderr, flush=True)


def tune(
    workload: Workload,
    arch: Arch,
    notes: Notes | None = None,
    device: int = 0,
    background: bool = False,
    *,
    first: bool = False,
    again: bool = False,
) -> bool:
    """Tune one Workload into the user's database, or waits while another process does; False where there is no kernel.

    It is measured on the GPU of number `device`. In the `background` this program keeps using that GPU, so its times
    are stored as such, and a race decides whether the kernel serves. Why there is none is a warning of the process that
    tuned.  With `first` it ends with the first verified kernel; with `again` a stored kernel does not end it.
    """
    database = config.own_database()
    if database is None:
        return False
    if not _can_store(database):
        return False
    request = {"workload": json.loads(workload.key()), "arch": arch.part, "db": str(database), "device": device}
    request |= {"background": True} if background else {}
    request |= {"first": True} if first else {}
    if not again and _is_stored(database, workload, arch):  # another process may be refining it
        return True
    with claim(database, f"{arch.part} {workload.key()}", ATTEMPTS * PATIENCE) as mine:
        stored = not (again and mine) and _is_stored(database, workload, arch)
        return stored if stored or not mine else _request(request, BACKGROUND_WORKER if background else WORKER, notes)


@contextmanager
def claim(database: Path, key: str, patience: float) -> Iterator[bool]:
    """Return whether the caller is to do what `key` names: False where another process has done it meanwhile, or is
    not done with it after `patience` seconds. Waiting processes then read what has been stored.

    Where no file can be made or locked, everybody does it: twice the work, and the same rows.
    """
    with suppress(OSError):
        make_folder(database.parent)
    path = database.with_name(f"{database.name}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.tuning")
    with file_lock(path, patience, hand_over=True) as state:
        yield state in (State.HELD, State.ABSENT)


def _can_store(database: Path) -> bool:
    """Return whether what is tuned could be stored; where not, say so once: nobody is to wait for a walk in vain."""
    try:
        with Store.open(database) as store:
            store.add()
    except LockedStoreError:  # it may be unlocked by the time a result is stored
        return True
    except StoreError as error:
        say = config.logger().warning if is_first_report(database) else config.logger().info
        say("nothing is tuned: %s", error)
        return False
    return True


def _is_stored(database: Path, workload: Workload, arch: Arch) -> bool:
    """Return whether the database has a kernel for this Workload that serves here."""
    abis = {name: family.abi for name, family in FAMILIES.items()}
    try:
        with Store.open(database, readonly=True) as store:
            entry = store.find(workload.key(), arch.name, arch.part, abis)
    except StoreError:
        return False
    return entry is not None and entry.usable


def _request(request: dict[str, Any], worker: Worker, notes: Notes | None) -> bool:
    """Return whether the tuning process finds a kernel.

    One during which it died or hung is stored as failed, and the rest is tried again without it.
    """
    for _ in range(ATTEMPTS):
        try:
            answer = worker.ask(request)
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
    """Hot kinds of calls of one Runtime, tuned one after the other while the program runs."""

    def __init__(self, runtime: TunedCalls):
        self.runtime = runtime
        self._failed = 0  # in a row
        self._refined: set[str] = set()
        self.after_fork()
        forking.renew(self)
        _all.add(self)

    def after_fork(self) -> None:
        """Forget the thread and what waits for it: they are the parent's."""
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Workload, bool]] = deque()  # and whether a kernel serves it already
        self._thread: threading.Thread | None = None

    def consider(self, workload: Workload) -> None:
        """Tune a hot Workload, unless that was done or cannot gain anything. Nothing is raised: a call waits."""
        try:
            if self._may_tune() and not self._is_good(workload):
                self._start(workload)
            elif self._may_tune() and workload.key() in self.runtime.library.contents.unsettled:
                self.refine(workload)
        except Exception as error:
            config.logger().warning("tuning in the background failed: %s", error, exc_info=True)

    def refine(self, workload: Workload) -> None:
        """Tune a Workload to the end that has its first kernel, unless that is not allowed, or done already.

        Raises nothing.
        """
        try:
            allowed = config.background() is not False and not config.deterministic() and config.tune_mode() != "off"
            if allowed:
                self._start(workload, True)
        except Exception as error:
            config.logger().warning("tuning in the background failed: %s", error, exc_info=True)

    def join(self, timeout: float | None = None) -> None:
        """Wait until nothing is left to tune, at most `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def drop(self) -> None:
        """Drop what waits to be tuned."""
        with self._lock:
            self._waiting.clear()

    def _may_tune(self) -> bool:
        device, asked = self.runtime.device, config.background()
        wanted = (not device.integrated if asked is None else asked) and self._failed < MOST_FAILURES
        return wanted and not device.emulated and config.tune_mode() != "off" and not config.deterministic()

    def _is_good(self, workload: Workload) -> bool:
        library, arch = self.runtime.library, self.runtime.device.arch
        if arch is None or library.record(workload) is not None:
            return True
        times = [row.median_us for row in library.timings(workload)]
        return bool(times) and min(times) <= NEAR_BOUND * bound_us(workload, arch)

    def _start(self, workload: Workload, again: bool = False) -> None:
        with self._lock:
            known = self._refined if again else self.runtime.tuned
            if workload.key() in known:
                return
            known.add(workload.key())
            self.runtime.tuned.add(workload.key())
            self._waiting.append((workload, again))
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
                workload, again = self._waiting.popleft()
            try:
                self._tune(workload, again)
            except Exception as error:  # the program keeps the kernels it has
                config.logger().warning("tuning in the background failed: %s", error, exc_info=True)
        BACKGROUND_WORKER.close()  # with it the memory of its CUDA context

    def _tune(self, workload: Workload, again: bool = False) -> None:
        runtime = self.runtime
        assert runtime.device.arch is not None
        config.logger().info("tuning in the background: %s", workload.key())
        more = {"again": True} if again else {}
        if tune(workload, runtime.device.arch, runtime.notes, runtime.device.number, True, **more):
            self._failed = 0
            counters.tunes.add()
            runtime.renew(workload)
        else:
            self._failed += 1


_all: WeakSet[Background] = WeakSet()


@atexit.register
def _stop() -> None:
    """End the process, and with it the threads: a program that ends does not wait for what it tunes."""
    running = list(_all)
    for each in running:
        each.drop()
    WORKER.stop()
    BACKGROUND_WORKER.stop()
    for each in running:
        each.join(1.0)
