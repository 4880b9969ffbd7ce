"""Reading and writing of rows: all SQL on rows is in this file, but for their data in packs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic

from .connection import Guarded
from .packs import whole
from .record import Row, RowType, Value

#: Most damaged rows of a table beyond the number of good rows; a flipped bit damages few. Compressed rows can be made
#: to take long.
MOST_DAMAGED, MOST_DAMAGED_COMPRESSED = 1000, 8
#: Most bytes of a table's values in memory per byte of the file, and an allowance: code compresses to a fifth, a bomb
#: to a thousandth.
MOST_INFLATED, INFLATED_BESIDE = 64, 2**26
#: Most rows, and their bytes, that are held at once, or written in one transaction, so that other writers get a turn.
BATCH, BATCH_BYTES = 200, 2**24
_CHUNK = 64  # rows fetched at once
_LITTLE = 2**14  # bytes of a result below which the file's size is not checked
_WIDEST_GAP = 2**20  # rows; a page has hundreds at most
_LAST = 2**63 - 2**22  # larger row numbers, and gaps after them, are not made by SQLite


class Among(frozenset[str]):
    """A condition of `select`: the column is one of these, at most 999 in older versions of SQLite."""


class Containing(tuple[str, ...]):
    """A condition of `select`: the column contains all of these texts."""

    __slots__ = ()


def _condition(name: str, wanted: object) -> tuple[str, Iterable[object]]:
    """Return the SQL of one condition and its parameters."""
    if isinstance(wanted, Among):
        return f'"{name}" IN ({", ".join("?" * len(wanted))})', sorted(wanted)
    if isinstance(wanted, Containing):
        return " AND ".join([f'instr("{name}", ?)'] * len(wanted)) or "1", wanted
    return f'"{name}" IS ?', (wanted,)


def insert(connection: sqlite3.Connection, row: Row) -> bool:
    """Add a row unless it exists; True if it was added. A damaged row under its digest is replaced."""
    names = ", ".join(f'"{name}"' for name in ("digest", *row.columns()))
    # Compressing a kernel takes far longer than finding it, and it exists for most workloads of a class.
    there = connection.execute(f'SELECT {names} FROM "{row.TABLE}" WHERE digest = ?', (row.digest,)).fetchone()
    if there is not None and type(row).from_sql(whole(connection, type(row), there)) == row:
        return False
    values = row.to_sql()
    places = ", ".join("?" * len(values))
    connection.execute(f'INSERT OR REPLACE INTO "{row.TABLE}" ({names}) VALUES ({places})', values)
    return True


def batches(rows: Iterable[RowType]) -> Iterator[list[RowType]]:
    """Return the rows in groups of at most BATCH rows and about BATCH_BYTES: a small file can hold very large rows."""
    batch: list[RowType] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.size
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def select(connection: Guarded, kind: type[RowType], where: Mapping[str, object]) -> Iterator[list[RowType | None]]:
    """Return rows whose columns equal `where`, or meet its Among and Containing, in lists, in the order of digests.

    None stands for each damaged row.

    A row must match its own digest and the values of `where`: a damaged index leads to good rows of other keys.  If
    pages are damaged, the rows of all other pages are read; then sqlite3's error is raised.
    The error is also raised if most of a table is damaged, or if pages refer to each other in circles.
    """
    if kind.COMPRESSED:
        yield from ([row for _, row in pairs] for pairs in named(connection, kind, where))
        return
    # Rows are sorted here, so that a table of damaged rows is given up before SQLite has sorted all of them.
    rows: list[RowType | None] = []
    damage: sqlite3.DatabaseError | None = None
    try:
        for pairs in named(connection, kind, where):
            rows += [row for _, row in pairs]
    except sqlite3.DatabaseError as error:  # an OperationalError, too
        damage = error
    sound = [row for row in rows if row is not None]
    yield [*sorted(sound, key=attrgetter("digest")), *[None] * (len(rows) - len(sound))]
    if damage is not None:
        raise damage


def named(
    connection: Guarded, kind: type[RowType], where: Mapping[str, object], indexed: bool = True
) -> Iterator[list[tuple[Sequence[Value], RowType | None]]]:
    """Return pairs of a row's stored values, its digest first, and the row, None if it is damaged, in lists.

    Data from packs is in the place of its place there. Rows that are not `indexed` come in the order of the table, past
    its indexes, which may lack rows; compressed rows otherwise in the order of digests.
    """
    unknown = where.keys() - {"digest", *kind.columns()}
    if unknown:
        raise ValueError(f"{kind.TABLE} has no column {', '.join(sorted(unknown))}")
    names = ", ".join(f'"{name}"' for name in ("digest", *kind.columns()))
    conditions = [_condition(name, wanted) for name, wanted in where.items()]
    condition = " AND ".join(text for text, _ in conditions) or "1"
    values = [value for _, given in conditions for value in given]
    equal = {name: wanted for name, wanted in where.items() if not isinstance(wanted, (Among, Containing))}
    reader = _Reader(connection, kind, equal)
    order = " ORDER BY digest" if kind.COMPRESSED and indexed else ""
    query = f'SELECT {names} FROM "{kind.TABLE}"{"" if indexed else " NOT INDEXED"} WHERE {condition}{order}'
    try:
        # Compressed values can be large: one at a time.
        for chunk in _fetch(connection, connection.execute(query, values), 1 if kind.COMPRESSED else _CHUNK):
            yield reader.read(chunk)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        query = f'SELECT rowid, {names} FROM "{kind.TABLE}" NOT INDEXED WHERE {condition} AND rowid > ? ORDER BY rowid'
        for stored in _salvage(connection, query, values):
            if stored[0] not in reader.seen:
                yield reader.read([stored])
        raise


class _Reader(Generic[RowType]):
    """Reader of the rows of one table, whose result must be no larger than the file, and mostly intact."""

    def __init__(self, connection: Guarded, kind: type[RowType], equal: Mapping[str, object]):
        self.connection, self.kind, self.equal = connection, kind, equal
        self.seen: set[object] = set()
        self.most_damaged = MOST_DAMAGED_COMPRESSED if kind.COMPRESSED else MOST_DAMAGED
        self.bytes, self.inflated, self.good, self.damaged = 0, 0, 0, 0
        self.most: float = _LITTLE

    def read(self, chunk: Iterable[Sequence[Value]]) -> list[tuple[Sequence[Value], RowType | None]]:
        """Return whole stored values and their rows, None for what is damaged, or has not the values that are wanted.

        sqlite3.OperationalError where they cannot have come from a sound file.
        """
        pairs: list[tuple[Sequence[Value], RowType | None]] = []
        sized = self.kind.COMPRESSED or self.kind.PACKED
        for stored in chunk:  # a file has very many rows: as few calls as possible for each
            self.seen.add(stored[0])
            values = whole(self.connection, self.kind, stored) if self.kind.PACKED else stored
            row = self.kind.from_sql(values)
            if row is not None:
                for name, wanted in self.equal.items():
                    if getattr(row, name) != wanted:
                        row = None
                        break
            self.good, self.damaged = self.good + (row is not None), self.damaged + (row is None)
            for value in stored:
                if value.__class__ is str or value.__class__ is bytes:
                    self.bytes += len(value)
            if self.bytes > self.most:
                self.most = self.connection.bytes()  # it may have grown meanwhile
                if self.bytes > self.most:
                    raise sqlite3.OperationalError("malformed: it has more rows than bytes to hold them")
            if row is not None and sized:
                self.inflated += row.size
                if self.inflated > INFLATED_BESIDE and self.inflated > self.connection.bytes() * MOST_INFLATED:
                    raise sqlite3.OperationalError("malformed: its values fill far more memory than code does")
            if self.damaged > self.most_damaged + self.good:
                raise sqlite3.OperationalError("malformed: most of its rows do not match their digests")
            pairs.append((values, row))
        return pairs


def _fetch(connection: Guarded, cursor: sqlite3.Cursor, count: int) -> Iterator[list[tuple[Any, ...]]]:
    """Return the rows of a result, `count` at a time; an error loses the rows of its fetch."""
    connection.renew()
    while chunk := cursor.fetchmany(count):
        yield chunk
        connection.renew()


def _salvage(connection: Guarded, query: str, values: list[object]) -> Iterator[tuple[Value, ...]]:
    """Return the readable rows in the order of the table, past unreadable pages.

    `query` selects the rowid first and ends with a condition on it, above a value.  The number of rows of a damaged
    page is unknown: the next readable row is searched at growing distances, then between the last two.  Pages that
    refer to each other in circles lead back to earlier rows: results that do not advance count as damage.
    """
    done = 0
    while done < _LAST:
        try:
            for ((rowid, *stored),) in _fetch(connection, connection.execute(query, [*values, done]), 1):
                if rowid <= done:
                    break
                done = rowid
                yield tuple(stored)
            else:
                return
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            pass
        gap = _gap(partial(_readable, connection, query, values, done))
        if gap is None:
            return
        done += gap


def _gap(readable: Callable[[int], bool]) -> int | None:
    """Return the smallest distance found at which reading continues, or None."""
    low, high = 0, 1
    while not readable(high):
        low, high = high, 2 * high
        if high > _WIDEST_GAP:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if readable(middle) else (middle, high)
    return high


def _readable(connection: Guarded, query: str, values: list[object], done: int, gap: int) -> bool:
    try:
        row = connection.execute(query, [*values, done + gap]).fetchone()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        return False
    return row is None or row[0] > done + gap
