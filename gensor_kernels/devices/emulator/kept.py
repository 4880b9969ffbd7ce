"""Cache folder of the emulator's libraries: checks that no other user can have written a file, and that it is whole.

Files are code that is loaded into this process.  They come from an open folder that no other user can have replaced
(database/trust.py), belong to root or to the user, are writable by no other user, and end in the SHA-256 of all
preceding bytes (ELF files may be longer than they declare).  Other files count as missing, and are built again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gensor_database import trust
from gensor_kernels.errors import ConfigError

DIGEST_BYTES = hashlib.sha256().digest_size
#: Prefix of the names of unfinished files.
UNFINISHED = ".building-"
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class Kept:
    """An open folder of built files.

    Parameters
    ----------
    path : Path
        An absolute path.

    Raises
    ------
    ConfigError
        If another user could write to the folder or replace it.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            self.descriptor = trust.open_folder(path)
        except PermissionError as error:
            raise ConfigError(f"the folder of built files is not used: {error.strerror or error}") from error
        except OSError as error:
            raise ConfigError(f"the folder of built files {path} cannot be used: {error.strerror or error}") from error

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def where(self, name: str) -> str:
        """Return a path of a file in this open folder, for this process and children that inherit the descriptor."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def has(self, name: str) -> bool:
        """Return whether there is a whole file of this name that belongs to the user."""
        try:
            opened = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=self.descriptor)
        except OSError:
            return False
        with open(opened, "rb") as file:
            try:
                content = file.read() if trust.is_own(os.fstat(opened)) else b""
            except OSError:
                return False
        return hashlib.sha256(content[:-DIGEST_BYTES]).digest() == content[-DIGEST_BYTES:]

    def begin(self) -> str:
        """Return the name of a new, empty file that only the user can read and write."""
        name = UNFINISHED + secrets.token_hex(8)
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FLAGS, 0o600, dir_fd=self.descriptor))
        return name

    def keep(self, unfinished: str, name: str) -> None:
        """Append a finished file's digest, rename it, and sync it to disk."""
        with open(os.open(unfinished, os.O_RDWR | _FLAGS, dir_fd=self.descriptor), "r+b") as file:
            os.fchmod(file.fileno(), 0o600)
            content = file.read()
            file.write(hashlib.sha256(content).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        with suppress(OSError):  # not every file system can
            os.fsync(self.descriptor)

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)
