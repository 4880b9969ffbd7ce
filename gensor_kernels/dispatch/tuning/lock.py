"""At most one process at a time tunes a Workload into a database; the others wait for it and read what it has stored.

A claim is a lock on a file in the folder of the database. The system releases it when its holder ends in any way. A
holder that has finished deletes the file, by which waiting processes recognise it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gensor_database.trust import make_folder

try:
    import fcntl
except ImportError:  # Windows, where nothing is tuned
    fcntl = None  # type: ignore[assignment]

LOOK_SECONDS = 0.05  # between two looks at a claim of somebody else


@contextmanager
def claim(database: Path, key: str, patience: float) -> Iterator[bool]:
    """Whether it is for the caller to do what `key` names: False where another process has done it meanwhile, or is
    not done with it after `patience` seconds.

    Where no file can be made or locked, everybody does it: twice the work, and the same rows.
    """
    descriptor = _open(database, key)
    if descriptor is None:
        yield True
        return
    try:
        mine = _lock(descriptor, time.monotonic() + patience)
        yield mine
        if mine:
            with suppress(OSError):
                _path(database, key).unlink()
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a child was forked meanwhile
        os.close(descriptor)


def _path(database: Path, key: str) -> Path:
    return database.with_name(f"{database.name}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.tuning")


def _open(database: Path, key: str) -> int | None:
    if fcntl is None:
        return None
    try:
        make_folder(database.parent)
        return os.open(_path(database, key), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _lock(descriptor: int, deadline: float) -> bool:
    """Waits for the lock; whether it is ours and nobody has finished meanwhile."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        except OSError:  # this file system has no locks
            return True
        else:
            return os.fstat(descriptor).st_nlink > 0
