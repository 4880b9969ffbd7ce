"""What can be wrong with a database file. Reading through `Layers` turns all of these into warnings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """Base: this database cannot be used; the text names the file and the reason."""


class LockedStoreError(StoreError):
    """Another process kept the database locked for longer than the timeout."""


class UnreadableStoreError(StoreError):
    """The file cannot be opened, read or written: absent, no permission, disk full."""


class CorruptStoreError(StoreError):
    """The file is no SQLite database, or a damaged one."""


class ForeignStoreError(StoreError):
    """An SQLite database of something else, or one whose tables are not exactly ours."""


class NewerStoreError(StoreError):
    """Written by a newer version of this package; left as it is."""


class StoreWarning(RuntimeWarning):
    """A database, or a row of one, is being ignored."""


_told: set[str] = set()


def first_told(path: Path) -> bool:
    """Whether this process has said nothing yet of what is wrong with a database; from now on it has.

    A disk that fails does so at every look: one warning is enough.
    """
    first = str(path) not in _told
    _told.add(str(path))
    return first


def is_locked(error: sqlite3.Error) -> bool:
    """Whether trying again later can help. By text: error codes came with Python 3.11."""
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and any(
        word in text for word in ("locked", "busy", "locking protocol")
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raises whatever SQLite or the file system raises about `path` as the matching StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        if is_locked(error):
            raise LockedStoreError(f"{path} is locked by another process") from error
        if "interrupted" in str(error):  # by the progress handler; see sql_limits.py
            raise CorruptStoreError(f"{path} takes too long to read: its pages are damaged") from error
        if "readonly" in str(error):
            raise UnreadableStoreError(f"{path} cannot be written: the file or its folder is read-only") from error
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise UnreadableStoreError(f"{path}: {_one_line(error)}") from error
        raise CorruptStoreError(f"{path}: {_one_line(error)}") from error
    except UnicodeError as error:  # SQLite's own texts about a damaged file are not always UTF-8
        raise CorruptStoreError(f"{path}: {_one_line(error)}") from error
    except OSError as error:
        raise UnreadableStoreError(f"{path} cannot be used: {error.strerror or error}") from error


def _one_line(error: Exception) -> str:
    """What SQLite says, on one line: it may quote the file, which may hold anything."""
    return "".join(each if each.isprintable() else " " for each in str(error).partition("\n")[0][:200]).strip()
