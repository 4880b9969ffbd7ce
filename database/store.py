"""One database file: rows in, rows out; a row is used only if it matches its digest.

with Store.open("kernels.db") as store:
    store.add(source, binary, kernel, verification, record)
    entry = store.find(workload_key, "sm_87", "orin-nano-8gb")
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

from . import connection as sql
from .errors import StoreError, StoreWarning, UnreadableStoreError, absolute, is_first_report
from .lazy import cached_property
from .opening import open_readonly, open_writable, rollback, write_lock
from .record import TABLES, Binary, Kernel, Portfolio, Record, Row, RowType, Source, Timing, Verification
from .rows import insert, select
from .timings import newest_first, serves, verdict
from .trust import is_trusted

Result = TypeVar("Result")

#: Seconds to wait for other processes' locks; commits take milliseconds.
TIMEOUT = 30.0

_abandoned: list[sql.Guarded] = []  # connections of a parent process: closing them here would drop its locks


class Store:
    """An open database file. Safe to share between threads; a forked child gets its own connection.

    Reading never raises for damage in the file: rows that fail their digest are left out with one warning.

    Attributes
    ----------
    path : Path
        The file.
    readonly : bool
        Whether it is open for reading only.
    trusted : bool
        Whether its cubins may be loaded.
    timeout : float
        Seconds to wait for locks.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder, "kernels.db")) as store:
    ...     store.add(Source.of("int x;")), store.add(Source.of("int x;")), store.counts()["source"]
    (1, 0, 1)
    """

    def __init__(self, path: Path, readonly: bool, immutable: bool, trusted: bool, timeout: float):
        self.path, self.readonly, self.trusted, self.timeout = path, readonly, trusted, timeout
        self._immutable = immutable
        self._lock = threading.RLock()
        self._connection: sql.Guarded | None = None
        self._pid = 0
        self._file: tuple[int, int] | None = None
        self._warned = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        readonly: bool = False,
        *,
        immutable: bool = False,
        trusted: bool | None = None,
        timeout: float = TIMEOUT,
    ) -> Store:
        """Open a database, which is created if absent, unless `readonly`.

        `immutable` promises that no process changes the file, as for shipped files. Cubins of a `trusted` file may be
        loaded; by default, if no other user can write to it (trust.py). `timeout` is in seconds, for locks. Raises
        StoreError with the reason.
        """
        file = absolute(path)
        store = cls(file, readonly, immutable, False, timeout)
        with sql.translated(file):
            store._connect()
        store.trusted = is_trusted(file) if trusted is None else trusted
        return store

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, readonly={self.readonly}, trusted={self.trusted})"

    @property
    def connection(self) -> sql.Guarded:
        """The hardened connection, in autocommit mode, for tools that format tables.

        It is renewed after a fork, and after another file has taken the place of the opened one.
        """
        with self._guard:
            if self._connection is None:
                self._connect()
            elif not self.readonly and self._file != _identity(self.path):
                self._connection.close()
                self._connect()
            assert self._connection is not None
            return self._connection

    @property
    def _guard(self) -> threading.RLock:
        """The lock of this process."""
        if self._pid != os.getpid() and self._connection is not None:
            _abandoned.append(self._connection)
            self._connection = None
            self._lock = threading.RLock()  # the parent's may have been held by a thread that does not exist here
        return self._lock

    def _connect(self) -> None:
        self._connection = None
        if self.readonly:
            self._connection = open_readonly(self.path, self.timeout, self._immutable)
        else:
            self._connection = open_writable(self.path, self.timeout)
        self._pid, self._file = os.getpid(), _identity(self.path)

    # Writing: one short transaction per call.

    def add(self, *rows: Row) -> int:
        """Add rows in one transaction and return the number of new rows. Raises a StoreError; then none is added."""
        return self._write(lambda connection: sum(insert(connection, row) for row in rows))

    def replace_portfolio(self, arch: str, part: str, class_key: str, kernels: Iterable[str | Portfolio]) -> None:
        """Replace the portfolio of a class by kernels given by digest, best first, or by rows with their ranks."""
        ranked = enumerate(kernels)
        rows = [each if isinstance(each, Row) else Portfolio(arch, part, class_key, r, each) for r, each in ranked]

        def replace(connection: sql.Guarded) -> None:
            condition = "arch = ? AND part = ? AND class_key = ?"
            connection.execute(f"DELETE FROM portfolio WHERE {condition}", (arch, part, class_key))
            for row in rows:
                insert(connection, row)

        self._write(replace)

    def _write(self, action: Callable[[sql.Guarded], Result]) -> Result:
        if self.readonly:
            raise UnreadableStoreError(f"{self.path} is open for reading only")
        with self._guard, sql.translated(self.path):
            connection = self.connection  # before the lock, which making a new file takes, too
            with write_lock(self.path, self.timeout):
                return self._transaction(connection, action)

    def _transaction(self, connection: sql.Guarded, action: Callable[[sql.Guarded], Result]) -> Result:
        sql.retry(lambda: connection.execute("BEGIN IMMEDIATE"), self.timeout)
        try:
            result = action(connection)
            sql.retry(lambda: connection.execute("COMMIT"), self.timeout)
            return result
        except BaseException:
            rollback(connection)
            raise

    # Reading.

    def rows(self, kind: type[RowType], **where: object) -> Iterator[RowType]:
        """Return rows of one table whose columns have these values, in the order of their digests.

        Ends early, with a warning, if the file is damaged or stays locked.
        """
        return chain.from_iterable(self._sound(kind, where))

    def _sound(self, kind: type[RowType], where: Mapping[str, object]) -> Iterator[list[RowType]]:
        """Yield the rows in lists, without damaged ones."""
        try:
            with sql.translated(self.path):
                found = select(self.connection, kind, where)
                while True:
                    with self._guard:
                        some = next(found, None)
                    if some is None:
                        return
                    sound = [row for row in some if row is not None]
                    yield sound
                    if len(sound) < len(some):
                        self._warn(f"a row of {kind.TABLE} does not match its digest and is ignored")
        except StoreError as error:
            self._warn(str(error))

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            is_first_report(self.path)
            text = text if str(self.path) in text else f"{self.path}: {text}"
            warnings.warn(text, StoreWarning, stacklevel=4)

    def get(self, kind: type[RowType], digest: str) -> RowType | None:
        """Return the row with this digest."""
        return next(self.rows(kind, digest=digest), None)

    def find(self, key: str, arch: str, part: str | None = None, abis: Mapping[str, int] | None = None) -> Entry | None:
        """Return the newest record with a kernel for the Workload of a key, and the kernel, or None.

        Without `part`, any part is valid. Kernels of families and versions other than `abis` are skipped.
        """
        for record in self.records(key, arch, part):
            stored = self.kernel(record.kernel_digest) if record.kernel_digest else None
            if stored is not None and serves(record, stored.kernel, arch, abis):
                return Entry(record, stored)
        return None

    def records(self, key: str, arch: str, part: str | None = None) -> list[Record]:
        """Return all records of a Workload, failed tunings included, newest first."""
        where = {"key": key, "arch": arch} | ({"part": part} if part is not None else {})
        return newest_first(self.rows(Record, **where))

    def kernel(self, digest: str) -> StoredKernel | None:
        """Return the kernel with this digest and its verdict."""
        kernel = self.get(Kernel, digest)
        if kernel is None:
            return None
        return StoredKernel(kernel, verdict(self.rows(Verification, kernel_digest=digest)), (self,))

    def binary(self, kernel: Kernel) -> Binary | None:
        """Return the binary of a kernel."""
        return self.get(Binary, kernel.binary_digest)

    def source(self, binary: Binary) -> Source | None:
        """Return the source of a binary."""
        return self.get(Source, binary.source_digest)

    def kernels_for_class(self, class_key: str, arch: str) -> list[StoredKernel]:
        """Return every kernel of a class, with any verdict."""
        digests = [kernel.digest for kernel in self.rows(Kernel, class_key=class_key, arch=arch)]
        return [kernel for kernel in map(self.kernel, digests) if kernel is not None]

    def portfolio(self, arch: str, part: str, class_key: str) -> list[StoredKernel]:
        """Return the kernels of a class's portfolio, best first."""
        rows = self.rows(Portfolio, arch=arch, part=part, class_key=class_key)
        found = [self.kernel(row.kernel_digest) for row in sorted(rows, key=lambda row: row.rank)]
        return [kernel for kernel in found if kernel is not None]

    def timings(self, key: str, part: str) -> list[Timing]:
        """Return every timing of a Workload on a part, vendor calls included, oldest first."""
        return sorted(self.rows(Timing, key=key, part=part), key=lambda row: (row.created, row.digest))

    def counts(self) -> Counter[str]:
        """Return the number of rows of each table."""
        with self._guard, sql.translated(self.path):
            query = 'SELECT count(*) FROM "{}"'
            run = self.connection.execute
            return Counter({kind.TABLE: run(query.format(kind.TABLE)).fetchone()[0] for kind in TABLES})


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


@dataclass(frozen=True)
class StoredKernel:
    """A kernel and its verdict: "device", "emulator", "none", or "rejected" after any wrong or failed execution."""

    kernel: Kernel
    verified: str
    stores: tuple[Store, ...] = field(repr=False, compare=False, default=())

    @cached_property
    def usable(self) -> bool:
        """Whether executions gave right results, and never wrong ones."""
        return self.verified in ("device", "emulator")

    def binary(self, trusted: bool = True) -> Binary | None:
        """Return the binary, verified against the kernel, from the first store that has it.

        With `trusted` only from stores whose cubins may be loaded; without it the cubin is data and must not be loaded.
        """
        found = (store.get(Binary, self.kernel.binary_digest) for store in self.stores if store.trusted or not trusted)
        return next((binary for binary in found if binary is not None), None)

    def source(self) -> Source | None:
        """Return the flattened source text, from the first store that has it."""
        binary = self.binary(trusted=False)
        if binary is None:
            return None
        found = (store.get(Source, binary.source_digest) for store in self.stores)
        return next((source for source in found if source is not None), None)


@dataclass(frozen=True)
class Entry:
    """A record and the kernel it names."""

    record: Record
    stored: StoredKernel

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.stored.kernel

    @property
    def verified(self) -> str:
        """The kernel's verdict; see StoredKernel."""
        return self.stored.verified

    @property
    def usable(self) -> bool:
        """Whether the kernel's executions gave right results, and never wrong ones."""
        return self.stored.usable

    def binary(self, trusted: bool = True) -> Binary | None:
        """Return the kernel's binary; see StoredKernel."""
        return self.stored.binary(trusted)
