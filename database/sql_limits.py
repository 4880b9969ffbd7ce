"""What a statement may do, how long it may compute, and how large its values are, whatever the file says.

The tables of a file are compared with the schema before they are queried, so none of this is reached by a file of
ours. It holds where that comparison is what a hostile file attacks, and where damaged pages refer to each other
without end.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

#: Seconds of this thread's CPU between two looks at the clock by our own code; of time spent waiting for locks or for
#: a slow disk no more than half as much counts.
STEP_SECONDS = 0.25
#: Bytes that the slowest machine we know of reads per second of CPU: a larger file may take longer.
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
_FUNCTIONS = frozenset("coalesce count length max min quote sum total".split())  # noqa: SIM905
_PRAGMAS = frozenset(
    "application_id cell_size_check foreign_keys freelist_count integrity_check journal_mode journal_size_limit "  # noqa: SIM905
    "max_page_count mmap_size page_count page_size query_only quick_check recursive_triggers synchronous "
    "table_info trusted_schema user_version wal_autocheckpoint wal_checkpoint".split()
)
_ALLOWED = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in "CREATE_INDEX CREATE_TABLE DELETE DROP_INDEX DROP_TABLE INSERT READ REINDEX SELECT TRANSACTION".split()  # noqa: SIM905
)
#: Switches of a connection, and how they are to stand; Python knows them from 3.12 on.
_SWITCHES = {
    "DEFENSIVE": True,
    "ENABLE_FTS3_TOKENIZER": False,
    "ENABLE_LOAD_EXTENSION": False,
    "ENABLE_TRIGGER": False,
    "ENABLE_VIEW": False,
    "TRUSTED_SCHEMA": False,
}

#: What sqlite3 says where a callback ended a statement, and what the callback notes if it meant to. Whole texts: others
#: quote names that a hostile file may choose.
_REFUSALS = (
    (re.compile(r"interrupted"), "overdue"),
    (re.compile(r"not authorized( to use function: .*)?|access to .* is prohibited", re.DOTALL), "denied"),
)


class Cursor(sqlite3.Cursor):
    """Where a statement of a Guarded connection ended because of a signal, the signal's exception is raised.

    sqlite3 drops what a callback raises, and while a statement computes, the callbacks are the only code of Python's
    that runs: Ctrl-C would be taken for a damaged file.
    """

    connection: Guarded

    def execute(self, *arguments: Any) -> Cursor:
        """As always."""
        return self._tried(super().execute, *arguments)

    def executemany(self, *arguments: Any) -> Cursor:
        """As always."""
        return self._tried(super().executemany, *arguments)

    def fetchone(self) -> Any:
        """As always."""
        return self._tried(super().fetchone)

    def fetchmany(self, *arguments: Any) -> list[Any]:
        """As always."""
        return self._tried(super().fetchmany, *arguments)

    def fetchall(self) -> list[Any]:
        """As always."""
        return self._tried(super().fetchall)

    def __next__(self) -> Any:
        return self._tried(super().__next__)

    def _tried(self, action: Callable[..., Any], *arguments: Any) -> Any:
        verdicts = self.connection.verdicts
        verdicts.clear()
        try:
            return action(*arguments)
        except sqlite3.DatabaseError as error:
            if any(text.fullmatch(str(error)) and verdict not in verdicts for text, verdict in _REFUSALS):
                raise KeyboardInterrupt from error  # what it was in truth, sqlite3 does not tell
            raise


class Guarded(sqlite3.Connection):
    """A connection whose statements end with OperationalError ("interrupted") where they compute for too long."""

    _began = 0.0  # of a step, by the clock on the wall
    _spent: float | None = None  # of this thread's CPU when half a step was over
    #: whether its tables are known to be ours: before that a large file is given no more time than a small one
    pinned = False
    _path: str | None = None
    #: what its callbacks said of the statement at hand
    verdicts: set[str]

    def guard(self, path: str | None) -> None:
        """Takes up authorizer, limits and progress handler; `path` is the file, None for a new
        database in memory."""
        self._path, self.verdicts = path, set()
        self.set_authorizer(self._authorized)
        self.set_progress_handler(self._overdue, _INSTRUCTIONS)
        if sys.version_info >= (3, 11):
            for name, limit in _LIMITS.items():
                self.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), limit)
        if sys.version_info >= (3, 12):
            for name, switch in _SWITCHES.items():
                self.setconfig(getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), switch)

    def execute(self, *arguments: Any) -> Cursor:
        """As always; the time of a step begins anew."""
        self.renew()
        return self.cursor(Cursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> Cursor:
        """As always; the time of a step begins anew."""
        self.renew()
        return self.cursor(Cursor).executemany(*arguments)

    def renew(self) -> None:
        """The time of a step begins anew: for the next rows of a long result."""
        self._began, self._spent = time.monotonic(), None

    def _overdue(self) -> bool:
        # A thread's CPU time is a system call, of milliseconds in some containers: it is asked for only where half of
        # the time can have been spent already.
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

    def _authorized(self, *request: Any) -> int:
        if _is_ours(*request):
            return sqlite3.SQLITE_OK
        self.verdicts.add("denied")
        return sqlite3.SQLITE_DENY

    def bytes(self) -> float:
        """Bytes of the file and of the log beside it; infinite for a new database in memory."""
        if self._path is None:
            return float("inf")
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += os.stat(f"{self._path}{suffix}").st_size
            except OSError:
                continue
        return total


def _is_ours(action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> bool:
    """Whether this package's own statements do this; nothing is ours inside a view or a trigger."""
    return inside is None and (
        action in _ALLOWED
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
        or (action == sqlite3.SQLITE_UPDATE and first == "sqlite_master")  # as part of CREATE and DROP
        or (action == sqlite3.SQLITE_ATTACH and first == "")  # as part of VACUUM
    )
