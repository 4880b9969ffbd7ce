"""Locks on files, which the system releases when their holder ends in any way.

A holder that has finished deletes the file, by which waiting processes recognise it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOOK_SECONDS = 0.01  # between two looks at a lock of another process


class State(Enum):
    """State of a lock: it is ours, its holder has finished, it is held for too long, or there are no locks."""

    HELD, FINISHED, BUSY, ABSENT = range(4)


@contextmanager
def file_lock(path: Path, patience: float, hand_over: bool = False) -> Iterator[State]:
    """Wait for the lock of a file, made where it is absent, and delete the file after a block that had it.

    ABSENT where no file can be made. With `hand_over` a waiting process takes over from a block that has failed.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600) if fcntl is not None else None
    except OSError:  # a link, or another user's file
        descriptor = None
    if descriptor is None:
        yield State.ABSENT
        return
    state, failed = State.BUSY, True
    try:
        state = _wait(descriptor, time.monotonic() + patience)
        yield state
        failed = False
    finally:
        with suppress(OSError):
            if state is State.HELD and not (failed and hand_over):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a child was forked meanwhile
        os.close(descriptor)


def _wait(descriptor: int, deadline: float) -> State:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return State.BUSY
            time.sleep(LOOK_SECONDS)
        except OSError:  # this file system has no locks
            return State.HELD
        else:
            return State.HELD if os.fstat(descriptor).st_nlink > 0 else State.FINISHED
