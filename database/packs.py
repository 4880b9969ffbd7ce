"""Packs: data of many rows in one xz stream, because similar data is smaller together.

An export has packs, and no other file.  The column of a row whose data is in a pack holds its place there, the text
"digest:start:stop".  Digests of rows are over their data: a damaged pack damages the rows that need it.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import sqlite3
from collections.abc import Iterable, Sequence

from .connection import Guarded
from .record import TABLES, Plain, Row, Value, compressed, decompressed

#: Most rows of a pack, with cubins and without, and their bytes: reading a row reads all of its pack.
MOST, MOST_TEXTS, MOST_BYTES = 64, 256, 2**21
#: Bytes in which a pack's compression looks for repetitions, and bytes of packs that a connection holds.
WINDOW, HELD_BYTES = 2**21, 2**25
_PLACE = re.compile(r"([0-9a-f]{64}):(\d{1,8}):(\d{1,8})")


def pack(connection: Guarded, kind: type[Row], rows: Iterable[Row]) -> None:
    """Move the packed columns of a table's rows into packs; neighbours should be similar."""
    group: list[Row] = []
    most, size = MOST if kind.COMPRESSED else MOST_TEXTS, 0
    for row in rows:
        if len(group) == most or (group and size + row.size > MOST_BYTES):
            _pack(connection, group)
            group, size = [], 0
        group.append(row)
        size += row.size
    _pack(connection, group)


def _pack(connection: Guarded, rows: Sequence[Row]) -> None:
    if len(rows) < 2:
        return
    parts = [{name: _data(getattr(row, name)) for name in sorted(row.PACKED)} for row in rows]
    data = b"".join(part for each in parts for part in each.values())
    digest, stop = hashlib.sha256(data).hexdigest(), 0
    made = (digest, compressed(data, WINDOW))
    connection.execute("INSERT OR REPLACE INTO pack (digest, data) VALUES (?, ?)", made)
    for row, each in zip(rows, parts, strict=True):
        stored = dict(zip(("digest", *row.columns()), row.to_sql(), strict=True))
        for name, part in each.items():
            start, stop = stop, stop + len(part)
            stored[name] = f"{digest}:{start}:{stop}"
        names, places = ", ".join(f'"{name}"' for name in stored), ", ".join("?" * len(stored))
        connection.execute(f'INSERT OR REPLACE INTO "{row.TABLE}" ({names}) VALUES ({places})', [*stored.values()])


def _data(value: bytes | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def whole(connection: sqlite3.Connection, kind: type[Row], stored: Sequence[Value]) -> Sequence[Value]:
    """Return a row's stored values, its digest first, with data in place of its places in packs."""
    if not kind.PACKED:
        return stored
    found, held = list(stored), getattr(connection, "packs", {})
    for index, name in enumerate(kind.columns(), 1):
        text = found[index]
        if name in kind.PACKED and isinstance(text, str) and (place := _PLACE.fullmatch(text)):
            data = (held.get(place[1]) or _from_pack(connection, place[1]))[int(place[2]) : int(place[3])]
            found[index] = Plain(data) if name in kind.COMPRESSED else data.decode("utf-8", "surrogateescape")
    return found


def _from_pack(connection: sqlite3.Connection, digest: str) -> bytes:
    """Return a pack's data, nothing where it cannot be read."""
    held: dict[str, bytes] = getattr(connection, "packs", {})
    if digest not in held:
        held[digest] = _read(connection, digest)
        while sum(map(len, held.values())) > HELD_BYTES and len(held) > 1:
            del held[next(iter(held))]
    return held[digest]


def _read(connection: sqlite3.Connection, digest: str) -> bytes:
    try:
        found = connection.execute("SELECT data FROM pack WHERE digest = ?", (digest,)).fetchone()
        return decompressed(found[0]) if found is not None else b""
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):  # a file of an older version has none
            raise
    except (TypeError, ValueError, EOFError, lzma.LZMAError):
        pass
    return b""


def loose(connection: Guarded) -> set[str]:
    """Return digests of packs in which no row has its data."""
    every = {digest for (digest,) in connection.execute("SELECT digest FROM pack")}
    for kind in TABLES if every else ():
        for name in kind.PACKED:  # of SQLite's values, texts are less than data
            texts = connection.execute(f'SELECT "{name}" FROM "{kind.TABLE}" WHERE "{name}" < x\'\'')
            every -= {text[:64] for (text,) in texts if isinstance(text, str) and _PLACE.fullmatch(text)}
    return every
