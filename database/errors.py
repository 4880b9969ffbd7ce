"""Errors of database files. Reading through `Layers` turns all of them into warnings."""

from __future__ import annotations

import os
from pathlib import Path


class GensorError(Exception):
    """Base of all errors of gensor-kernels, those of databases included."""


class StoreError(GensorError):
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


_reported: set[str] = set()


def is_first_report(path: Path) -> bool:
    """Whether this is the first report of this process about a database; from now on it is not.

    A failing disk fails at every look: one warning is enough.
    """
    first = str(path) not in _reported
    _reported.add(str(path))
    return first
