"""Writing of files named by a user: whole or not at all, and never in place of a device.

A regular file, or one that does not exist yet, is written in the same folder under an unpredictable name, synced, and
renamed.  Anything else with that name (a device, a pipe, a socket, a symbolic link) stays and is written through, as
with the shell's `>`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

#: Errors of making a file in the folder of another: the folder is not writable, although the file may be.
_NOT_BESIDE = (errno.EACCES, errno.EPERM, errno.EROFS)
_EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def is_replaceable(path: Path) -> bool:
    """Return whether another file may take the place of `path`: it is a regular file, or does not exist."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """Write the text file at `path`, UTF-8, which has the new text once the block ends without an error.

    After an error a regular file is unchanged, and no temporary file is left. A file that is replaced keeps its mode
    and owner; a new file has the mode of the umask. A file is written in place if its folder is not writable, or if it
    is a separate mount; anything but a regular file is opened and written through. Raises OSError if it cannot be
    written.
    """
    if not is_replaceable(path):
        with _in_place(path) as file:
            yield file
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    partial = path.with_name(f".gensor-{secrets.token_hex(8)}.partial")
    try:
        descriptor = os.open(partial, _EXCLUSIVE, 0o666)
    except OSError as error:
        if error.errno not in _NOT_BESIDE:
            raise
        descriptor = None
    if descriptor is None:
        with _in_place(path) as file:
            yield file
        return
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
        _put(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Yield the name of a file in a new private folder; it takes the place of `path` when the block ends.

    For programs that open a file by its name and make other files next to it, such as SQLite. Raises OSError if `path`
    is no regular file, or cannot be replaced; then it is unchanged.
    """
    if not is_replaceable(path):
        what = "a symbolic link" if path.is_symlink() else "a folder" if path.is_dir() else "a device, pipe or socket"
        raise OSError(errno.EINVAL, f"it is {what}, where only a regular file can be replaced")
    folder = Path(tempfile.mkdtemp(prefix=".gensor-", suffix=".partial", dir=path.parent))
    try:
        yield folder / "file"
        _put(folder / "file", path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _in_place(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")


def _put(partial: Path, path: Path) -> None:
    """Rename a whole file, once it is on disk."""
    with partial.open("rb+") as file:
        if path.exists():
            old = path.stat()
            with suppress(PermissionError):
                if os.name == "posix" and (old.st_uid, old.st_gid) != (os.geteuid(), partial.stat().st_gid):
                    os.chown(partial, old.st_uid, old.st_gid)
            os.chmod(partial, old.st_mode & 0o777)
        os.fsync(file.fileno())
    try:
        os.replace(partial, path)
    except OSError as error:
        if error.errno != errno.EBUSY:  # a file that is mounted by itself, as into a container
            raise
        shutil.copyfile(partial, path)
