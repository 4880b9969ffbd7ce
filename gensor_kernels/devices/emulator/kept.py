"""The folder of what the emulator has built: who can have written a file, and whether it is whole.

Files are code that is loaded into this process. They are taken from an open folder that nobody else can have put there
(database/trust.py) if they belong to root or to the user, nobody else can write to them, and they end in the SHA-256 of
all bytes before: ELF files may be longer than they say. What is none of that is not there, and is built again.
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
#: Begins the names of files that are being built.
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
        Where somebody else could write to the folder or put another in its place.
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
        """A path of a file in this very folder, for this process and those that inherit the descriptor."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, of the user's own and whole."""
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
        """The name of a new, empty file, which only the user can read and write."""
        name = UNFINISHED + secrets.token_hex(8)
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FLAGS, 0o600, dir_fd=self.descriptor))
        return name

    def keep(self, unfinished: str, name: str) -> None:
        """Gives a finished file its digest and its name, behind which all of it is on the disk."""
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
        """Deletes a file where there is one."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)
