"""Trust in database files: their code runs on the GPU as the user, so that no other user may be able to write to them.

On systems other than POSIX, access is controlled by lists that `os.stat` does not show; every file is trusted there.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Flags for opening a folder; folders above it need only be passed through.
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_ABOVE = _FOLDER | getattr(os, "O_PATH", 0)


def is_trusted(path: Path) -> bool:
    """Return whether cubins may be loaded from this file."""
    return objection(path) is None


def objection(path: Path) -> str | None:
    """Return the reason why other users can have written to a database file, with the command that prevents it, or
    None.

    File and folder must belong to root or to the user, and neither the group nor others may write to them.  Links are
    followed: the real location counts.
    """
    if os.name != "posix":
        return None
    real = Path(os.path.realpath(path))
    try:
        return _writable_by_others(os.stat(real), real) or _writable_by_others(os.stat(real.parent), real.parent)
    except OSError as error:
        return f"{real}: {error.strerror or error}"


def folder_objection(folder: Path, setting: str) -> str | None:
    """Return the reason why `folder` cannot hold the user's own code, with advice, or None.

    It must not be a link, must belong to root or to the user, and neither group nor others may write to it.  Other
    users must not be able to replace it either: folders and links above it belong to root or to the user, and others
    may not write to such a folder, unless it is sticky as /tmp is.  A folder that does not exist yet is judged by the
    folders above it.  `setting` is the variable that can name another folder.
    """
    if os.name != "posix":
        return None
    folder = Path(os.path.abspath(folder))
    try:
        if folder.is_symlink():
            return f"{folder} is a symbolic link: set {setting} to what it leads to, {os.path.realpath(folder)}"
        if folder.exists():
            found = _writable_by_others(os.stat(folder), folder)
            if found is not None:
                return f"{found}, or set {setting} to a place of your own"
        replaceable = next(_replaceable(folder), None)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return replaceable and f"{replaceable}: set {setting} to a place of your own"


def file_objection(path: Path, setting: str) -> str | None:
    """Return folder_objection for a file of the user's in such a folder; the file need not exist yet."""
    if os.name != "posix":
        return None
    try:
        if path.is_symlink():
            return f"{path} is a symbolic link: set {setting} to what it leads to, {os.path.realpath(path)}"
        found = _writable_by_others(os.stat(path), path) if path.exists() else None
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return found or folder_objection(path.parent, setting)


def make_folder(folder: Path) -> None:
    """Make a folder, and missing folders above it, which other users cannot enter under any umask; it may exist."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_folder(folder: Path) -> int:
    """Open a folder that code is loaded from, by the rules of `folder_objection`, on POSIX; the caller closes it.

    That function checks names, whose targets may change meanwhile. Here each folder is opened from the open folder
    above it, which was checked, without following a link; links above ``folder``, an absolute path, are followed
    before. Thus no other user can replace a folder in between. Raises PermissionError, with advice, if other users can
    write to the folder or replace it, and OSError if it cannot be opened, or is a link.
    """
    path = Path(os.path.realpath(folder.parent), folder.name)
    opened, above = os.open(path.anchor, _ABOVE), Path(path.anchor)
    try:
        for name in path.parts[1:]:
            found = _lets_replace(os.fstat(opened), above)
            if found is not None:
                raise PermissionError(found)
            above /= name
            below = os.open(name, _FOLDER if above == path else _ABOVE, dir_fd=opened)
            os.close(opened)
            opened = below
        found = _writable_by_others(os.fstat(opened), path)
        if found is not None:
            raise PermissionError(found)
    except BaseException:
        os.close(opened)
        raise
    return opened


def is_own(facts: os.stat_result) -> bool:
    """Return whether only root and the user can have written a file, and it is a regular file."""
    return stat.S_ISREG(facts.st_mode) and _writable_by_others(facts, Path()) is None


def _writable_by_others(facts: os.stat_result, path: Path) -> str | None:
    name = shlex.quote(str(path))
    if facts.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user ({_user(facts.st_uid)}): run chown {_user(os.geteuid())} {name}"
    if facts.st_mode & stat.S_ISVTX and facts.st_mode & _OTHERS:
        return f"{path} is a folder that everybody shares: use a folder of your own in it"  # no chmod of /tmp
    if facts.st_mode & _OTHERS:
        who = "everybody" if facts.st_mode & stat.S_IWOTH else "its group"
        return f"{path} can be written by {who}: run chmod go-w {name}"
    return None


def _replaceable(folder: Path) -> Iterator[str]:
    """Return the folders and links above `folder` that let other users replace it."""
    owners = (0, os.geteuid())
    for above in folder.parents:
        if above.is_symlink() and os.lstat(above).st_uid not in owners:
            yield f"{above} is a link of another user"
    for above in Path(os.path.realpath(folder)).parents:
        found = _lets_replace(os.stat(above), above) if above.exists() else None
        if found is not None:
            yield found


def _lets_replace(facts: os.stat_result, above: Path) -> str | None:
    """Return the reason why other users can replace the contents of this folder, or None."""
    if facts.st_uid not in (0, os.geteuid(), _unknown_users()):
        return f"{above} belongs to another user ({_user(facts.st_uid)})"
    if facts.st_mode & stat.S_ISVTX:
        return None
    if facts.st_mode & stat.S_IWOTH:
        return f"everybody can write to {above}"
    if facts.st_mode & stat.S_IWGRP and not _is_personal(facts.st_gid):
        return f"its group can write to {above} (run chmod g-w {shlex.quote(str(above))})"
    return None


@cache
def _is_personal(number: int) -> bool:
    """Return whether a group has the user as its only member, and the user's name.

    Most systems make such a group for every user; folders made under a umask of 002 can be written by it.
    """
    try:
        import grp
        import pwd

        group, own = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
        others = (each.pw_name for each in pwd.getpwall() if each.pw_gid == number and each.pw_uid != own.pw_uid)
        return group.gr_name == own.pw_name and not {*group.gr_mem, *others} - {own.pw_name}
    except (ImportError, KeyError):
        return False


@cache
def _unknown_users() -> int | None:
    """Return the user number that stands for users unknown in this process's container, such as root of the machine.

    None if all users are known.
    """
    try:
        mapped = sum(int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text().splitlines())
        return None if mapped >= 2**32 - 1 else int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError, IndexError):
        return None


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)
