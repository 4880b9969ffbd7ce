"""The digest of a row: SHA-256 over table, column names, and every value with its type.

A hash of the cubin alone accepts a wrong launch after one flipped bit elsewhere in the row; a hash without type tags
accepts a text that became a blob.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

Value = None | int | float | str | bytes

_HEAD = struct.Struct(">cQ").pack
_FLOAT = struct.Struct(">d").pack
_INTEGER = struct.Struct(">q").pack
_BARE, _TEXT, _REAL, _WHOLE, _NOTHING = range(5)  # indices of the prefixes that _names has per column
_SHORT = 1024
_SIZES = [size.to_bytes(8, "big") for size in range(_SHORT)]


def canonical(value: Any) -> str:
    """Return canonical JSON: sorted keys, no spaces, no NaN. Equal values give equal texts, so texts can be keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def row_digest(table: str, columns: tuple[str, ...], values: Sequence[Value]) -> str:
    """Return the hexadecimal SHA-256 of one row; every item is written as type tag, length, bytes."""
    table_name, names = _names(table, columns)
    parts = [table_name]
    # A file has very many rows: the usual types are encoded inline, with as few calls as possible.
    for name, value in zip(names, values, strict=True):
        kind = type(value)
        if kind is str:
            data = value.encode("utf-8", "surrogateescape")  # type: ignore[union-attr]
            size = len(data)
            parts += (name[_TEXT], _SIZES[size] if size < _SHORT else size.to_bytes(8, "big"), data)
        elif kind is float:
            parts += (name[_REAL], _FLOAT(value))
        elif kind is int:
            parts += (name[_WHOLE], _INTEGER(value))
        elif value is None:
            parts.append(name[_NOTHING])
        else:
            parts += (name[_BARE], *_encode(value))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def text_digest(text: str) -> str:
    """Return the hexadecimal SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _names(table: str, columns: tuple[str, ...]) -> tuple[bytes, tuple[tuple[bytes, ...], ...]]:
    """Return the constant bytes in front of a table's items.

    That is the table's name, then each column's name, bare and with the tags of a text, a float, an integer and NULL.
    """
    table_name, *names = (b"".join(_encode(name)) for name in (table, *columns))
    tags = b"T", _HEAD(b"F", 8), _HEAD(b"I", 8), _HEAD(b"N", 0)
    return table_name, tuple((name, *(name + tag for tag in tags)) for name in names)


def _encode(value: Value) -> tuple[bytes, bytes]:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return _HEAD(b"T", len(data)), data
    if isinstance(value, bytes):
        return _HEAD(b"B", len(value)), value
    if value is None:
        return _HEAD(b"N", 0), b""
    if isinstance(value, float):
        return _HEAD(b"F", 8), _FLOAT(value)
    return _HEAD(b"I", 8), _INTEGER(value)
