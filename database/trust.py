"""Whose a database is: code from it runs on the GPU as the user, so nobody else may have been able to write to it.

Elsewhere than on POSIX access is by lists that `os.stat` does not show; there nothing is objected to.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_trusted(path: Path) -> bool:
    """Whether cubins may be loaded from this file."""
    return objection(path) is None


def objection(path: Path) -> str | None:
    """Why others can have written to a database file, and the command that ends it; None where only its owner can.

    File and folder must belong to root or to the user, and neither the group nor others may write to them. Links are
    followed: what counts is where the file really is.
    """
    if os.name != "posix":
        return None
    real = Path(os.path.realpath(path))
    try:
        return _writable_by_others(real) or _writable_by_others(real.parent)
    except OSError as error:
        return f"{real}: {error.strerror or error}"


def folder_objection(folder: Path, setting: str) -> str | None:
    """Why `folder` cannot be the one that the user's own code is kept in, and what to do; None where it can.

    It must not be a link, must belong to root or to the user, and neither group nor others may write to it. Nobody
    else may be able to put another in its place, either: no folder above it is writable by everybody, unless sticky as
    /tmp is, and links above it belong to root or to the user. A folder that does not exist yet is judged by those
    above it. `setting` is the variable that names another one.
    """
    if os.name != "posix":
        return None
    folder = Path(os.path.abspath(folder))
    try:
        if folder.is_symlink():
            return f"{folder} is a symbolic link: set {setting} to what it leads to, {os.path.realpath(folder)}"
        if folder.exists():
            found = _writable_by_others(folder)
            if found is not None:
                return f"{found}, or set {setting} to a place of your own"
        replaceable = next(_replaceable(folder), None)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return replaceable and f"{replaceable}: set {setting} to a place of your own"


def file_objection(path: Path, setting: str) -> str | None:
    """The same for a file of the user's in such a folder, which need not exist yet."""
    if os.name != "posix":
        return None
    try:
        if path.is_symlink():
            return f"{path} is a symbolic link: set {setting} to what it leads to, {os.path.realpath(path)}"
        found = _writable_by_others(path) if path.exists() else None
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return found or folder_objection(path.parent, setting)


def _writable_by_others(path: Path) -> str | None:
    facts, name = os.stat(path), shlex.quote(str(path))
    if facts.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user ({_user(facts.st_uid)}): run chown {_user(os.geteuid())} {name}"
    if facts.st_mode & stat.S_ISVTX and facts.st_mode & _OTHERS:
        return f"{path} is a folder that everybody shares: use a folder of your own in it"  # no chmod of /tmp
    if facts.st_mode & _OTHERS:
        who = "everybody" if facts.st_mode & stat.S_IWOTH else "its group"
        return f"{path} can be written by {who}: run chmod go-w {name}"
    return None


def _replaceable(folder: Path) -> Iterator[str]:
    """Folders and links above `folder` that let others put something else in its place."""
    owners = (0, os.geteuid())
    for above in folder.parents:
        if above.is_symlink() and os.lstat(above).st_uid not in owners:
            yield f"{above} is a link of another user"
    for above in Path(os.path.realpath(folder)).parents:
        facts = os.stat(above) if above.exists() else None
        if facts is not None and facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX:
            yield f"everybody can write to {above}"


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)
