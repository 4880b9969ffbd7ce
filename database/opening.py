"""Opening of a database file: create, check, set the journal mode, or raise the reason; and the queue of its writers.

SQLite pauses for up to 0.1 s between two attempts at a lock, and the last writer often gets it again: of 64 processes
in an endless loop of writes some had no turn within 30 s.  Here they wait in the kernel's queue for a lock on the
database's folder, which costs nothing, leaves no file and ends with its holder.  It is a courtesy: without it,
and after its timeout, SQLite's own lock still separates writers.  Any process that can open the folder can hold the
lock without writing: that is waited for once, and reported.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import connection as sql
from .errors import StoreWarning, UnreadableStoreError
from .trust import make_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


#: Callers that wait this many seconds for SQLite's lock also wait longer in the queue while other processes write: a
#: round of 64 busy writers takes half a minute on a busy machine.
PATIENT, QUEUE = 30.0, 600.0

#: Folders whose lock was held without a write for a whole wait: no caller waits there until it is free.
_stalled: set[Path] = set()


@contextmanager
def write_lock(path: Path, timeout: float) -> Iterator[None]:
    """Keep other processes from writing to a database in the folder of `path` within a block, if a turn comes in time.

    `timeout` are the seconds that the caller waits for locks.
    """
    descriptor = _locked(path, timeout)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a child was forked meanwhile
            os.close(descriptor)


def _locked(path: Path, timeout: float) -> int | None:
    """Return a descriptor that holds the lock, or None."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _stalled.discard(path.parent)
        return descriptor
    except BlockingIOError:
        if path.parent not in _stalled:
            return _queue(descriptor, path, timeout)
        os.close(descriptor)
        return None
    except OSError:  # a network's file system, say
        os.close(descriptor)
        return None


def _file_facts(path: Path) -> list[tuple[int, int]]:
    """Return facts that change with every write to a database."""
    found = []
    for suffix in ("", "-wal", "-journal"):
        with suppress(OSError):
            facts = os.stat(f"{path}{suffix}")
            found.append((facts.st_mtime_ns, facts.st_size))
    return found


def _comes(locked: threading.Event, path: Path, timeout: float) -> bool:
    """Return whether the lock comes within `timeout` seconds; if these are many, they restart with every write."""
    deadline, seen = time.monotonic() + QUEUE, _file_facts(path)
    while not locked.wait(timeout):
        now = _file_facts(path)
        if now == seen:
            _stalled.add(path.parent)
            if timeout >= PATIENT:
                text = f"another program has held a lock on {path.parent} for {timeout:.0f} s and written nothing"
                warnings.warn(f"{text} to {path.name}: it is not waited for any more", StoreWarning, stacklevel=2)
            return False
        if timeout < PATIENT or time.monotonic() >= deadline:
            return False
        seen = now
    return True


def _queue(descriptor: int, path: Path, timeout: float) -> int | None:
    """Return the descriptor once it has the lock, for which a thread waits, or None if it does not come in time."""
    decided, locked, given_up = threading.Lock(), threading.Event(), threading.Event()

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with decided:
            locked.set()
            if given_up.is_set():
                os.close(descriptor)

    def give_up() -> None:
        with decided:
            given_up.set()
            if locked.is_set():
                os.close(descriptor)

    try:
        threading.Thread(target=wait, name="gensor-write-lock", daemon=True).start()
    except RuntimeError:  # no more threads, or the program is ending
        os.close(descriptor)
        return None
    try:
        if _comes(locked, path, timeout):
            return descriptor
    except BaseException:  # Ctrl-C
        give_up()
        raise
    give_up()
    return None


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
