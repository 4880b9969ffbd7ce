"""Inspection of a database file by sqlite-utils, on the store's own hardened connection: rows, digests, journal.

Rows themselves come from the Store, which compares each with its digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gensor_database.connection import translated
from gensor_database.record import TABLES, RowType
from gensor_database.store import Store
from gensor_tuner.output import plural

if TYPE_CHECKING:
    import sqlite_utils


def _tables(store: Store) -> sqlite_utils.Database:
    import sqlite_utils  # takes longer to import than most commands take

    return sqlite_utils.Database(store.connection)


def counts(store: Store) -> dict[str, int]:
    """Return the number of rows of each table, packs aside."""
    with translated(store.path):
        tables = _tables(store)
        return {kind.TABLE: tables[kind.TABLE].count for kind in TABLES}


def counts_text(found: Mapping[str, int], empty: bool = False) -> str:
    """Return numbers of rows by table for people, in order; tables without rows only with `empty`."""
    return ", ".join(f"{count} {plural(table, count)}" for table, count in found.items() if count or empty) or "no rows"


def journal(store: Store) -> str:
    """Return the journal mode of the file."""
    with translated(store.path):
        return str(_tables(store).journal_mode)


def beginning(store: Store, kind: type[RowType], prefix: str) -> Iterator[RowType]:
    """Yield the rows of a table whose digest begins with `prefix`, in the order of digests."""
    with translated(store.path):
        table = _tables(store)[kind.TABLE]
        # Digits end with f. LIKE would be a function, which this connection does not allow.
        between = "digest >= :first and digest < :last"
        where = {"first": prefix, "last": f"{prefix}g"}
        digests = [row["digest"] for row in table.rows_where(between, where, select="digest", order_by="digest")]
    yield from (row for digest in digests if (row := store.get(kind, digest)) is not None)
