"""Connections to SQLite, made only here: limits, pragmas, errors in words, and the checks of a file before its use.

Statements are limited for any file: allowed actions, computing time, and size of values.  The tables of a file are
compared with the schema before they are queried, so that files of this package never reach these limits.  They hold
where a hostile file attacks that comparison, and where damaged pages refer to each other in circles.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from .errors import (
    CorruptStoreError,
    ForeignStoreError,
    LockedStoreError,
    NewerStoreError,
    UnreadableStoreError,
)

APPLICATION_ID = 0x47454E53  # "GENS" in the file header
SCHEMA_VERSION = 5  # user_version in the file header
SCHEMA = Path(__file__).with_name("schema.sql")

#: CPU seconds of this thread between two checks of the clock; waiting for locks or for a slow disk counts for at most
#: half of it.
STEP_SECONDS = 0.25
#: Bytes per CPU second on the slowest known machine: a larger file may take longer.
SLOWEST_SCAN = 20e6

_LARGEST_VALUE = 10 * 2**20  # bytes of a value, compressed: more than record.LARGEST_BLOB has
_INSTRUCTIONS = 2000  # of SQLite's virtual machine between two calls of the progress handler
_LIMITS = {
    "LENGTH": _LARGEST_VALUE,
    "SQL_LENGTH": 100_000,
    "COLUMN": 64,
    "EXPR_DEPTH": 100,
    "COMPOUND_SELECT": 4,
    "FUNCTION_ARG": 16,
    "ATTACHED": 1,  # which VACUUM needs
    "LIKE_PATTERN_LENGTH": 100,
    "VARIABLE_NUMBER": 1000,
    "TRIGGER_DEPTH": 1,
    "WORKER_THREADS": 0,
}
_FUNCTIONS = frozenset("coalesce count instr length max min quote sum total".split())  # noqa: SIM905
_PRAGMAS = frozenset(
    "application_id cell_size_check foreign_keys freelist_count integrity_check journal_mode journal_size_limit "  # noqa: SIM905
    "max_page_count mmap_size page_count page_size query_only quick_check recursive_triggers synchronous "
    "table_info trusted_schema user_version wal_autocheckpoint wal_checkpoint".split()
)
_ALLOWED = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in "CREATE_INDEX CREATE_TABLE DELETE DROP_INDEX DROP_TABLE INSERT READ REINDEX SELECT TRANSACTION".split()  # noqa: SIM905
)
#: Switches of a connection and their values; Python has them from 3.12 on.
_SWITCHES = {
    "DEFENSIVE": True,
    "ENABLE_FTS3_TOKENIZER": False,
    "ENABLE_LOAD_EXTENSION": False,
    "ENABLE_TRIGGER": False,
    "ENABLE_VIEW": False,
    "TRUSTED_SCHEMA": False,
}

#: Messages of sqlite3 after a callback ended a statement, and the callback's own reason. Whole texts: other messages
#: quote names that a hostile file may choose.
_REFUSALS = (
    (re.compile(r"interrupted"), "overdue"),
    (re.compile(r"not authorized( to use function: .*)?|access to .* is prohibited", re.DOTALL), "denied"),
)

Result = TypeVar("Result")
SchemaRows = list[tuple[str, str, str, str | None]]


class Cursor(sqlite3.Cursor):
    """Cursor of a Guarded connection, which raises the exception of a signal that ended its statement.

    sqlite3 drops exceptions of callbacks, and while a statement computes, only callbacks run Python code: Ctrl-C would
    look like a damaged file.
    """

    connection: Guarded

    def execute(self, *arguments: Any) -> Cursor:
        """See sqlite3.Cursor.execute."""
        return self._attempt(super().execute, *arguments)

    def executemany(self, *arguments: Any) -> Cursor:
        """See sqlite3.Cursor.executemany."""
        return self._attempt(super().executemany, *arguments)

    def fetchone(self) -> Any:
        """See sqlite3.Cursor.fetchone."""
        return self._attempt(super().fetchone)

    def fetchmany(self, *arguments: Any) -> list[Any]:
        """See sqlite3.Cursor.fetchmany."""
        return self._attempt(super().fetchmany, *arguments)

    def fetchall(self) -> list[Any]:
        """See sqlite3.Cursor.fetchall."""
        return self._attempt(super().fetchall)

    def __next__(self) -> Any:
        return self._attempt(super().__next__)

    def _attempt(self, action: Callable[..., Any], *arguments: Any) -> Any:
        verdicts = self.connection.verdicts
        verdicts.clear()
        try:
            return action(*arguments)
        except sqlite3.DatabaseError as error:
            if any(text.fullmatch(str(error)) and verdict not in verdicts for text, verdict in _REFUSALS):
                raise KeyboardInterrupt from error  # sqlite3 hides the signal's own exception
            raise


class Guarded(sqlite3.Connection):
    """A connection whose statements end with OperationalError ("interrupted") if they compute for too long."""

    _began = 0.0  # of a step, by the clock on the wall
    _spent: float | None = None  # of this thread's CPU when half a step was over
    #: Whether its tables passed the comparison: before that, a large file gets no more time than a small one.
    pinned = False
    _path: str | None = None
    #: Reasons for which callbacks ended the current statement.
    verdicts: set[str]
    #: Data of packs that were read last, by digest; see rows.py.
    packs: dict[str, bytes]

    def guard(self, path: str | None) -> None:
        """Set authorizer, limits and progress handler; `path` is the file, None for a new database in memory."""
        self._path, self.verdicts, self.packs = path, set(), {}
        self.set_authorizer(self._authorize)
        self.set_progress_handler(self._overdue, _INSTRUCTIONS)
        if sys.version_info >= (3, 11):
            for name, limit in _LIMITS.items():
                self.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), limit)
        if sys.version_info >= (3, 12):
            for name, switch in _SWITCHES.items():
                self.setconfig(getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), switch)

    def execute(self, *arguments: Any) -> Cursor:
        """Execute a statement with a new time limit."""
        self.renew()
        return self.cursor(Cursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> Cursor:
        """Execute a statement for each row with a new time limit."""
        self.renew()
        return self.cursor(Cursor).executemany(*arguments)

    def renew(self) -> None:
        """Restart the time limit: for the next rows of a long result."""
        self._began, self._spent = time.monotonic(), None

    def _overdue(self) -> bool:
        # A thread's CPU time is a system call, of milliseconds in some containers: it is read only if half of the time
        # can be over.
        if time.monotonic() - self._began <= STEP_SECONDS / 2:
            return False
        now = time.thread_time()
        if self._spent is None:
            self._spent = now
        spent = STEP_SECONDS / 2 + now - self._spent
        over = spent > STEP_SECONDS and (not self.pinned or spent > STEP_SECONDS + self.bytes() / SLOWEST_SCAN)
        if over:
            self.verdicts.add("overdue")
        return over

    def _authorize(self, action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> int:
        """Allow the actions of this package's own statements; views and triggers have none."""
        if inside is None and (
            action in _ALLOWED
            or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
            or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
            or (action == sqlite3.SQLITE_UPDATE and first == "sqlite_master")  # as part of CREATE and DROP
            or (action == sqlite3.SQLITE_ATTACH and first == "")  # as part of VACUUM
        ):
            return sqlite3.SQLITE_OK
        self.verdicts.add("denied")
        return sqlite3.SQLITE_DENY

    def bytes(self) -> float:
        """Return the bytes of the file and its log."""
        if self._path is None:
            return float("inf")
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += os.stat(f"{self._path}{suffix}").st_size
            except OSError:
                continue
        return total


def connect(path: Path, mode: str, timeout: float) -> Guarded:
    """Return a hardened autocommit connection.

    `mode` is "rwc", "rw", "ro", or "immutable" for a file that no process will change.  SQLite waits up to `timeout`
    seconds for other processes' locks.  Text arrives with undecodable bytes escaped, so that one damaged row does not
    end a query.
    """
    query = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    name = path.absolute().as_posix()
    # Path.as_uri would turn a Windows share's server into the authority, which SQLite refuses.
    return _harden(f"file://{'' if name.startswith('/') else '/'}{quote(name)}?{query}", name, timeout)


def _harden(uri: str, path: str | None, timeout: float) -> Guarded:
    connection = sqlite3.connect(
        uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, factory=Guarded
    )
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    connection.guard(path)
    for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "synchronous=EXTRA"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


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
        if "interrupted" in str(error):  # by the progress handler
            raise CorruptStoreError(f"{path} takes too long to read: its pages are damaged") from error
        closed = "unable to open" in str(error) and path.exists() and not os.access(path.parent, os.W_OK)
        if closed and has_log(path):
            raise UnreadableStoreError(
                f"{path} cannot be read in a read-only folder: its newest rows are in {path.name}-wal; copy both files "
                "to a folder that can be written"
            ) from error
        if closed or "readonly" in str(error):
            raise UnreadableStoreError(f"{path} cannot be written: the file or its folder is read-only") from error
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise UnreadableStoreError(f"{path}: {_one_line(error)}") from error
        raise CorruptStoreError(f"{path}: {_one_line(error)}") from error
    except UnicodeError as error:  # SQLite's own texts about a damaged file are not always UTF-8
        raise CorruptStoreError(f"{path}: {_one_line(error)}") from error
    except OSError as error:
        raise UnreadableStoreError(f"{path} cannot be used: {error.strerror or error}") from error


def has_log(path: Path) -> bool:
    """Return whether committed rows may still be in a write-ahead log or a hot journal next to the file."""
    for suffix in ("-wal", "-journal"):
        try:
            if os.stat(f"{path}{suffix}").st_size:
                return True
        except OSError:
            continue
    return False


def _one_line(error: Exception) -> str:
    """Return SQLite's message on one line: it may quote the file, which may hold anything."""
    return "".join(each if each.isprintable() else " " for each in str(error).partition("\n")[0][:200]).strip()


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
def _expected_rows() -> SchemaRows:
    """Return `schema_rows` of a new database."""
    memory = sqlite3.connect(":memory:")
    try:
        memory.executescript(SCHEMA.read_text(encoding="utf-8"))
        return schema_rows(memory)
    finally:
        memory.close()


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables and stamp the header, inside the caller's transaction."""
    statement = ""
    for line in SCHEMA.read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)  # not executescript, which would commit
            statement = ""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether the file has never held a row or table."""
    unmarked = header(connection, "application_id") == 0 == header(connection, "user_version")
    return unmarked and not schema_rows(connection)


def check_schema(connection: Guarded, path: Path) -> None:
    """Raise ForeignStoreError or NewerStoreError unless header and tables equal those of schema.sql, letter by letter.

    This rejects views in place of tables, triggers and altered columns before any of them is queried.
    """
    if header(connection, "application_id") != APPLICATION_ID:
        raise ForeignStoreError(f"{path} is not a database of gensor-kernels")
    version = header(connection, "user_version")
    if version > SCHEMA_VERSION:
        raise NewerStoreError(
            f"{path} was written by a newer gensor-kernels (schema {version}, this one reads {SCHEMA_VERSION})"
        )
    if version < SCHEMA_VERSION:
        raise ForeignStoreError(
            f"{path} was written by an older gensor-kernels (schema {version}, this one reads {SCHEMA_VERSION})"
        )
    if schema_rows(connection) != _expected_rows():
        raise ForeignStoreError(f"{path} has other tables than gensor-kernels makes")
    connection.pinned = True
