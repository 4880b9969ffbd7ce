"""Opening of a database file: create, check, set the journal mode, or raise the reason."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from pathlib import Path

from . import connection as sql
from .errors import UnreadableStoreError
from .trust import make_folder
from .write_queue import write_lock

# WAL needs shared memory between all processes, which these cannot give; 9p is how WSL2 shows Windows drives, the last
# three are folders of a virtual machine's host.
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "lustre", "beegfs", "gpfs", "ceph", "glusterfs"}
    | {"ocfs2", "gfs2", "orangefs", "panfs", "coda", "ncpfs", "virtiofs", "vboxsf", "prl_fs"}
)

#: Seconds for which an empty file may be one that another process is about to fill.
NEW_SECONDS = 5.0


def open_writable(path: Path, timeout: float) -> sql.Guarded:
    """Return a connection to the database at `path`, created (folder too, mode 0700) if absent."""
    _refuse_what_is_no_file(path)
    make_folder(path.parent)
    if not path.exists():
        # SQLite would follow the umask, and cubins of a group-writable database are not trusted.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o644))
    connection = sql.connect(path, "rw", timeout)
    try:
        sql.retry(lambda: _prepare(connection, path, timeout), timeout)
        set_journal(connection, path, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sql.Guarded, path: Path, timeout: float) -> None:
    """Check the file, and create its tables if it is empty.

    A file with tables is only read, so that many processes can open it at once; otherwise all checks are repeated under
    the write lock.
    """
    if not sql.is_empty(connection):
        return sql.check_schema(connection, path)
    with write_lock(path, timeout):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if sql.is_empty(connection):
                sql.create_tables(connection)
            sql.check_schema(connection, path)
            connection.execute("COMMIT")
        except BaseException:
            rollback(connection)
            raise


def rollback(connection: sqlite3.Connection) -> None:
    """End a failed transaction; SQLite may have ended it already."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def open_readonly(path: Path, timeout: float, immutable: bool = False) -> sql.Guarded:
    """Return a connection that never writes to the file; `immutable` promises that no other process writes either.

    An empty file that is seconds old is waited for.  A database in
    WAL mode cannot be read in a folder where its index cannot be created, unless it is opened as immutable, which
    ignores the log: that is done only if the log is absent or empty.  Raises UnreadableStoreError and the other
    StoreErrors.
    """
    _refuse_what_is_no_file(path)
    if not path.is_file():
        raise UnreadableStoreError(f"{path} does not exist")
    immutable = immutable and not sql.has_log(path)
    try:
        return _open_checked(path, "immutable" if immutable else "ro", timeout)
    except sqlite3.OperationalError:
        if immutable or sql.has_log(path) or os.access(path.parent, os.W_OK):
            raise
    return _open_checked(path, "immutable", timeout)


def _refuse_what_is_no_file(path: Path) -> None:
    """Refuse pipes, which wait for a writer, and devices, which may not end, also in place of SQLite's log files."""
    if path.is_dir():
        raise UnreadableStoreError(f"{path} is a folder, not a database file")
    if path.exists() and not path.is_file():
        raise UnreadableStoreError(f"{path} is a device, a pipe or a socket, not a database file")
    for suffix in ("-journal", "-wal", "-shm"):
        try:
            mode = os.lstat(f"{path}{suffix}").st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise UnreadableStoreError(f"{path}{suffix} is no ordinary file: delete it")


def _await_tables(path: Path, timeout: float) -> None:
    """Wait while a file is empty and new: the process that has made it is about to make its tables."""
    deadline = time.monotonic() + timeout
    while not (file := os.stat(path)).st_size and time.time() - file.st_mtime < NEW_SECONDS:
        if time.monotonic() >= deadline:
            return
        time.sleep(0.01)


def _open_checked(path: Path, mode: str, timeout: float) -> sql.Guarded:
    _await_tables(path, timeout)
    connection = sql.connect(path, mode, timeout)
    try:
        sql.retry(lambda: sql.check_schema(connection, path), timeout)
        return connection
    except BaseException:
        connection.close()
        raise


def set_journal(connection: sqlite3.Connection, path: Path, timeout: float) -> str:
    """Set WAL on a local file system, a rollback journal on a network one; return the mode in force."""
    wanted = "delete" if is_remote(path) else "wal"

    def switch() -> str:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode == wanted:
            return mode
        return connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0]

    return sql.retry(switch, timeout)


def is_remote(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether `path` is on a file system that several machines can write to; False if unknown."""
    real = os.path.realpath(path)
    if os.name == "nt":
        return real.startswith("\\\\")
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    kind, longest = "", -1
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        prefix = point.rstrip("/") + "/"
        if (real + "/").startswith(prefix) and len(prefix) >= longest:  # of two mounts in one place, the later
            kind, longest = words[2], len(prefix)
    return kind in _REMOTE or (kind.startswith("fuse.") and kind != "fuse.overlayfs") or kind == "fuse"
