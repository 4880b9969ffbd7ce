"""Writers queue for a database: first come, first served.

SQLite pauses for up to 0.1 s between two attempts at a lock, and the last writer often gets it again: of 64 processes
in an endless loop of writes some had no turn within 30 s.  Here they wait in the kernel's queue for a lock on the
database's folder, which costs nothing, leaves no file and ends with its holder.  It is a courtesy: without it,
and after its timeout, SQLite's own lock still separates writers.  Any process that can open the folder can hold the
lock without writing: that is waited for once, and reported.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import StoreWarning

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


#: Callers that wait this many seconds for SQLite's lock also wait longer in the queue while other processes write: a
#: round of 64 busy writers takes half a minute on a busy machine.
PATIENT, QUEUE = 30.0, 600.0

#: Folders whose lock was held without a write for a whole wait: no caller waits there until it is free.
_stalled: set[Path] = set()


@contextmanager
def write_lock(path: Path, timeout: float) -> Iterator[None]:
    """Keep other processes from writing to a database in the folder of `path` within a block, if a turn comes in time.

    `timeout` are the seconds that the caller waits for locks.
    """
    descriptor = _locked(path, timeout)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a child was forked meanwhile
            os.close(descriptor)


def _locked(path: Path, timeout: float) -> int | None:
    """Return a descriptor that holds the lock, or None."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _stalled.discard(path.parent)
        return descriptor
    except BlockingIOError:
        if path.parent not in _stalled:
            return _queue(descriptor, path, timeout)
        os.close(descriptor)
        return None
    except OSError:  # a network's file system, say
        os.close(descriptor)
        return None


def _file_facts(path: Path) -> list[tuple[int, int]]:
    """Return facts that change with every write to a database."""
    found = []
    for suffix in ("", "-wal", "-journal"):
        with suppress(OSError):
            facts = os.stat(f"{path}{suffix}")
            found.append((facts.st_mtime_ns, facts.st_size))
    return found


def _comes(locked: threading.Event, path: Path, timeout: float) -> bool:
    """Return whether the lock comes within `timeout` seconds; if these are many, they restart with every write."""
    deadline, seen = time.monotonic() + QUEUE, _file_facts(path)
    while not locked.wait(timeout):
        now = _file_facts(path)
        if now == seen:
            _stalled.add(path.parent)
            if timeout >= PATIENT:
                text = f"another program has held a lock on {path.parent} for {timeout:.0f} s and written nothing"
                warnings.warn(f"{text} to {path.name}: it is not waited for any more", StoreWarning, stacklevel=2)
            return False
        if timeout < PATIENT or time.monotonic() >= deadline:
            return False
        seen = now
    return True


def _queue(descriptor: int, path: Path, timeout: float) -> int | None:
    """Return the descriptor once it has the lock, for which a thread waits, or None if it does not come in time."""
    decided, locked, given_up = threading.Lock(), threading.Event(), threading.Event()

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with decided:
            locked.set()
            if given_up.is_set():
                os.close(descriptor)

    def give_up() -> None:
        with decided:
            given_up.set()
            if locked.is_set():
                os.close(descriptor)

    try:
        threading.Thread(target=wait, name="gensor-write-lock", daemon=True).start()
    except RuntimeError:  # no more threads, or the program is ending
        os.close(descriptor)
        return None
    try:
        if _comes(locked, path, timeout):
            return descriptor
    except BaseException:  # Ctrl-C
        give_up()
        raise
    give_up()
    return None
