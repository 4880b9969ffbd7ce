"""Writers take turns, first come, first served.

Between two looks at a lock SQLite pauses for up to 0.1 s, and whoever has just written comes first again and again: of
64 processes that wrote without end some got no turn within 30 s. Here they wait in the kernel's queue for a lock on the
database's folder, which costs nothing, leaves no file behind and ends with its holder. It is a courtesy: without it,
and where it takes too long, it is still SQLite's own lock that keeps writers apart. Whoever can open the folder can
hold the lock without writing: that is waited for once, and told.
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


#: Who waits this many seconds for SQLite's lock is patient, and waits longer in the queue while somebody writes: a
#: round of 64 that write without end takes half a minute where the machine is busy.
PATIENT, QUEUE = 30.0, 600.0

#: Folders whose lock was held without a write for as long as somebody waited: nobody waits there until it is free.
_stalled: set[Path] = set()


@contextmanager
def turn(path: Path, timeout: float) -> Iterator[None]:
    """Within it no other process is writing to a database in the folder of `path`, if that can be had in time.

    `timeout` are the seconds that the caller waits for locks.
    """
    descriptor = _in_turn(path, timeout)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a child was forked meanwhile
            os.close(descriptor)


def _in_turn(path: Path, timeout: float) -> int | None:
    """A descriptor that holds the lock; None where there is none."""
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
            return _queued(descriptor, path, timeout)
        os.close(descriptor)
        return None
    except OSError:  # a network's file system, say
        os.close(descriptor)
        return None


def _written(path: Path) -> list[tuple[int, int]]:
    """What changes whenever somebody writes to a database."""
    found = []
    for suffix in ("", "-wal", "-journal"):
        with suppress(OSError):
            facts = os.stat(f"{path}{suffix}")
            found.append((facts.st_mtime_ns, facts.st_size))
    return found


def _comes(locked: threading.Event, path: Path, timeout: float) -> bool:
    """Whether the lock comes within `timeout` seconds; where these are many, they begin anew with every write."""
    deadline, seen = time.monotonic() + QUEUE, _written(path)
    while not locked.wait(timeout):
        now = _written(path)
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


def _queued(descriptor: int, path: Path, timeout: float) -> int | None:
    """The descriptor once it has the lock; None where it does not come in time, which only a thread can wait for."""
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
        threading.Thread(target=wait, name="gensor-turn", daemon=True).start()
    except RuntimeError:  # there are no more threads, or no more for a program that ends
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
