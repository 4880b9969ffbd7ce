"""Rows in and out of a connection: the only place where their SQL is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from .record import Row, RowType

_CHUNK = 64  # rows fetched at once: binaries are large


def insert(connection: sqlite3.Connection, row: Row) -> bool:
    """Adds a row unless it is there; True where it was added. A damaged row under its digest is replaced."""
    names = ", ".join(f'"{name}"' for name in ("digest", *row.columns()))
    values = row.to_sql()
    text = f'INTO "{row.TABLE}" ({names}) VALUES ({", ".join("?" * len(values))})'
    if connection.execute(f"INSERT OR IGNORE {text}", values).rowcount == 1:
        return True
    there = connection.execute(f'SELECT {names} FROM "{row.TABLE}" WHERE digest = ?', values[:1]).fetchone()
    if there is not None and type(row).from_sql(there) == row:
        return False
    connection.execute(f"INSERT OR REPLACE {text}", values)
    return True


def select(connection: sqlite3.Connection, kind: type[RowType], where: Mapping[str, Any]) -> Iterator[RowType | None]:
    """Rows whose columns equal `where`, in the order of their digests; None for each that is not to be believed.

    A row is believed when it matches its own digest and what was asked for: a damaged index leads to good rows of
    other keys.
    """
    unknown = where.keys() - {"digest", *kind.columns()}
    if unknown:
        raise ValueError(f"{kind.TABLE} has no column {', '.join(sorted(unknown))}")
    names = ", ".join(f'"{name}"' for name in ("digest", *kind.columns()))
    condition = " AND ".join(f'"{name}" IS ?' for name in where) or "1"
    query = f'SELECT {names} FROM "{kind.TABLE}" WHERE {condition} ORDER BY +digest'
    cursor = connection.execute(query, list(where.values()))
    while chunk := cursor.fetchmany(_CHUNK):
        for stored in chunk:
            row = kind.from_sql(stored)
            matches = row is not None and all(getattr(row, name) == value for name, value in where.items())
            yield row if matches else None
