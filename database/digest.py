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
_TEXT = b"T"


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, no NaN. Two equal values give one text, so texts can be keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def row_digest(table: str, columns: tuple[str, ...], values: Sequence[Value]) -> str:
    """Hexadecimal SHA-256 of one row; every item is written as type tag, length, bytes."""
    table_name, *names = _names(table, columns)
    parts = [table_name]
    for name, value in zip(names, values, strict=True):
        if type(value) is str:  # most are, and a file has very many: nothing is called for them but what must be
            data = value.encode("utf-8", "surrogateescape")
            parts += (name, _TEXT + len(data).to_bytes(8, "big"), data)
        else:
            parts += (name, *_encode(value))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def text_digest(text: str) -> str:
    """Hexadecimal SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _names(table: str, columns: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(b"".join(_encode(name)) for name in (table, *columns))


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
