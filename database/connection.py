"""Connections to SQLite, made only here: pragmas, journal mode, and the checks of a file before its use."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from .errors import ForeignStoreError, NewerStoreError, is_locked
from .sql_limits import Guarded

APPLICATION_ID = 0x47454E53  # "GENS" in the file header
SCHEMA_VERSION = 2  # user_version in the file header
SCHEMA = Path(__file__).with_name("schema.sql")

# WAL needs shared memory between all processes, which these cannot give; 9p is how WSL2 shows Windows drives, the last
# three are folders of a virtual machine's host.
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "lustre", "beegfs", "gpfs", "ceph", "glusterfs"}
    | {"ocfs2", "gfs2", "orangefs", "panfs", "coda", "ncpfs", "virtiofs", "vboxsf", "prl_fs"}
)

Result = TypeVar("Result")
SchemaRows = list[tuple[str, str, str, str | None]]


def connect(path: Path, mode: str, timeout: float) -> Guarded:
    """Return a hardened autocommit connection.

    `mode` is "rwc", "rw", "ro", or "immutable" for a file that no process will change.  SQLite waits up to `timeout`
    seconds for other processes' locks.  Text arrives with undecodable bytes escaped, so that one damaged row does not
    end a query.
    """
    query = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    name = path.absolute().as_posix()
    # Path.as_uri would turn a Windows share's server into the authority, which SQLite refuses.
    return _hardened(f"file://{'' if name.startswith('/') else '/'}{quote(name)}?{query}", name, timeout)


def connect_memory(copied: Path | None = None) -> Guarded:
    """Return a hardened connection to a database in memory, for a copy of the file at `copied`."""
    return _hardened("file::memory:", None if copied is None else str(copied), 0.0)


def _hardened(uri: str, path: str | None, timeout: float) -> Guarded:
    connection = sqlite3.connect(
        uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, factory=Guarded
    )
    connection.text_factory = _decode
    connection.guard(path)
    for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "synchronous=EXTRA"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def retry(action: Callable[[], Result], timeout: float) -> Result:
    """Return `action()`, repeated while another process holds a lock, for up to `timeout` seconds.

    SQLite's own waiting does not cover everything: switching to WAL and recovering a log fail at once.
    """
    deadline, pause = time.monotonic() + timeout, 0.001
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() >= deadline:
                raise
        time.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, 0.1)


def header(connection: sqlite3.Connection, name: str) -> int:
    """Return `application_id` or `user_version` from the file header, without parsing the schema."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def schema_rows(connection: sqlite3.Connection) -> SchemaRows:
    """Return the file's own description of its tables, in a stable order."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    return connection.execute(query).fetchall()


@cache
def pinned_rows(schema: str) -> tuple[tuple[str, str, str, str | None], ...]:
    """Return `schema_rows` of a new database with this schema text."""
    memory = sqlite3.connect(":memory:")
    try:
        memory.executescript(schema)
        return tuple(schema_rows(memory))
    finally:
        memory.close()


def schema_text() -> str:
    """Return the current schema."""
    return SCHEMA.read_text(encoding="utf-8")


def execute_schema(connection: sqlite3.Connection, schema: str, version: int) -> None:
    """Create the tables and stamp the header, inside the caller's transaction."""
    statement = ""
    for line in schema.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)  # not executescript, which would commit
            statement = ""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={version}")


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether the file has never held a row or table."""
    unmarked = header(connection, "application_id") == 0 == header(connection, "user_version")
    return unmarked and not schema_rows(connection)


def check_version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    """Return the file's schema version, at most `newest`; only the header is read.

    Raises ForeignStoreError or NewerStoreError.
    """
    if header(connection, "application_id") != APPLICATION_ID:
        raise ForeignStoreError(f"{path} is not a database of gensor-kernels")
    version = header(connection, "user_version")
    if version > newest:
        raise NewerStoreError(
            f"{path} was written by a newer gensor-kernels (schema {version}, this one knows {newest})"
        )
    return version


def check_schema(connection: Guarded, path: Path, schema: str) -> None:
    """Raise ForeignStoreError unless the tables equal those of `schema`, letter by letter.

    This rejects views in place of tables, triggers and altered columns before any of them is queried.
    """
    if tuple(schema_rows(connection)) != pinned_rows(schema):
        raise ForeignStoreError(f"{path} has other tables than gensor-kernels makes")
    connection.pinned = True


def set_journal(connection: sqlite3.Connection, path: Path, timeout: float) -> str:
    """Set WAL on a local file system, a rollback journal on a network one; return the mode in force."""
    wanted = "delete" if is_remote(path) else "wal"

    def switch() -> str:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode == wanted:
            return mode
        return connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0]

    return retry(switch, timeout)


def is_remote(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether `path` lies on a file system that several machines can write to; False if unknown."""
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
