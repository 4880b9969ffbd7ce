"""Inspection of a database file by sqlite-utils, on the store's own hardened connection.

Rows themselves come from the Store, which compares each with its digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gensor_database.connection import translated
from gensor_database.record import RowType
from gensor_database.store import Store
from gensor_tuner.output import plural


def counts_text(found: Mapping[str, int], empty: bool = False) -> str:
    """Return numbers of rows by table for people, in order; tables without rows only with `empty`."""
    return ", ".join(f"{count} {plural(table, count)}" for table, count in found.items() if count or empty) or "no rows"


def beginning(store: Store, kind: type[RowType], prefix: str) -> Iterator[RowType]:
    """Yield the rows of a table whose digest begins with `prefix`, in the order of digests."""
    import sqlite_utils  # takes longer to import than most commands take

    with translated(store.path):
        table = sqlite_utils.Database(store.connection)[kind.TABLE]
        # Digits end with f. LIKE would be a function, which this connection does not allow.
        between = "digest >= :first and digest < :last"
        where = {"first": prefix, "last": f"{prefix}g"}
        digests = [row["digest"] for row in table.rows_where(between, where, select="digest", order_by="digest")]
    yield from (row for digest in digests if (row := store.get(kind, digest)) is not None)
