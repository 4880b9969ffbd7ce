"""Errors of database files. Reading through `Layers` turns all of them into warnings."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """Base: this database cannot be used; the message names the file and the reason."""


class LockedStoreError(StoreError):
    """Another process kept the database locked for longer than the timeout."""


class UnreadableStoreError(StoreError):
    """The file cannot be opened, read or written: absent, no permission, disk full."""


class CorruptStoreError(StoreError):
    """The file is not an SQLite database, or a damaged one."""


class ForeignStoreError(StoreError):
    """An SQLite database of another program, or with other tables than this package makes."""


class NewerStoreError(StoreError):
    """Written by a newer version of this package; left unchanged."""


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path, a leading `~` replaced; UnreadableStoreError for the home of an unknown user."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise UnreadableStoreError(f"{os.fspath(path)}: {error}") from None


class StoreWarning(RuntimeWarning):
    """A database, or a row of one, is being ignored."""


_told: set[str] = set()


def first_told(path: Path) -> bool:
    """Return whether this is the process's first report about a database; from now on it is not.

    A failing disk fails at every look: one warning is enough.
    """
    first = str(path) not in _told
    _told.add(str(path))
    return first


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether a later retry can help. By text: error codes came with Python 3.11."""
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and any(
        word in text for word in ("locked", "busy", "locking protocol")
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise errors of SQLite or the file system about `path` as the matching StoreError, within a block."""
    try:
        yield
    except sqlite3.Error as error:
        if is_locked(error):
            raise LockedStoreError(f"{path} is locked by another process") from error
        if "interrupted" in str(error):  # by the progress handler; see connection.py
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
    """Return SQLite's message on one line: it may quote the file, which may hold anything."""
    return "".join(each if each.isprintable() else " " for each in str(error).partition("\n")[0][:200]).strip()
