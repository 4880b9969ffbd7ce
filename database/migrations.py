"""Migrations from an older schema to the current one: numbered steps, all of them in one transaction.

A step has the exact schema it starts from, and converts one row at a time.  Rows that fail their digest are left
behind; digests of converted rows are computed anew, and every reference follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .connection import SCHEMA, SCHEMA_VERSION, Guarded, check_schema, execute_schema, schema_rows, schema_text
from .errors import ForeignStoreError
from .record import TABLES, Binary, Kernel, Portfolio, Record, Residual, Row, Source, Timing, Verification
from .rows import insert, named

#: Takes a table's name and an old row's values by column; returns the new row's values, or None to drop the row.
Convert = Callable[[str, dict[str, Any]], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Step:
    """From `version` to the next one.

    `schema` is the whole text of the old schema.sql and `tables` its row classes, in the order of their references.
    Both are kept beside the step and never change again.
    """

    version: int
    schema: str
    tables: tuple[type[Row], ...]
    convert: Convert


def _as_it_is(table: str, values: dict[str, Any]) -> Mapping[str, Any]:
    return values


def _old_schema(version: int) -> str:
    return SCHEMA.with_name(f"schema_{version}.sql").read_text(encoding="utf-8")


_FIRST = (Source, Binary, Kernel, Verification, Record, Portfolio, Timing)
#: In order. Version 2 adds the table of residuals, version 3 compresses by xz, not by zlib, version 4 adds packs.
STEPS: tuple[Step, ...] = (
    Step(1, _old_schema(1), _FIRST, _as_it_is),
    Step(2, _old_schema(2), (*_FIRST, Residual), _as_it_is),
    Step(3, _old_schema(3), (*_FIRST, Residual), _as_it_is),
)


def migrate(connection: Guarded, path: Path, version: int, steps: Sequence[Step] | None = None) -> int:
    """Bring a file of an older `version` to SCHEMA_VERSION, inside the caller's transaction.

    Returns the number of damaged rows left behind.  Raises ForeignStoreError if no step starts at this version, or the
    tables differ from those of the step.
    """
    chosen = [step for step in (STEPS if steps is None else steps) if step.version >= version]
    wanted = range(version, SCHEMA_VERSION)  # a damaged header can make it two thousand million versions long
    if len(chosen) != len(wanted) or any(step.version != each for step, each in zip(chosen, wanted, strict=True)):
        raise ForeignStoreError(f"{path} has schema {version}, which this version cannot convert")
    dropped = 0
    for step, following in zip(chosen, [*chosen[1:], None], strict=True):
        check_schema(connection, path, step.schema)
        schema = following.schema if following else schema_text()
        dropped += _apply(connection, step, schema, following.tables if following else TABLES)
    return dropped


def _apply(connection: Guarded, step: Step, schema: str, tables: tuple[type[Row], ...]) -> int:
    # Rows as stored: decompressed they can be a thousand times as large.
    old_rows: dict[type[Row], list[Sequence[Any]]] = {kind: [] for kind in step.tables}
    dropped = 0
    for kind, rows in old_rows.items():
        for stored, row in named(connection, kind, {}):
            if row is None:
                dropped += 1
            else:
                rows.append(stored)
    for what, name, *_ in schema_rows(connection):
        if what == "table":
            connection.execute(f'DROP TABLE "{name}"')
    execute_schema(connection, schema, step.version + 1)
    new = {kind.TABLE: kind for kind in tables}
    digests: dict[str, str] = {}  # before -> after
    for kind, rows in old_rows.items():
        for stored in rows:
            row = kind.from_sql(stored)
            assert row is not None  # as it was a moment ago
            converted = step.convert(kind.TABLE, _with_new_references(row, digests))
            if converted is not None:
                fresh = new[kind.TABLE](**converted)
                digests[row.digest] = fresh.digest
                insert(connection, row if fresh == row else fresh)  # the row is compressed already
    return dropped


def _with_new_references(row: Row, digests: Mapping[str, str]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.columns()}
    references = {name: value for name, value in values.items() if name.endswith("_digest") and value}
    return values | {name: digests.get(value, value) for name, value in references.items()}
