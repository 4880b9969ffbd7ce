"""The digest of a row: SHA-256 over table, column names, and every value with its type.

A hash of the cubin alone accepts a wrong launch after one flipped bit elsewhere in the row; a hash without type tags
accepts a text that became a blob.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from typing import Any

Value = None | int | float | str | bytes


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, no NaN. Two equal values give one text, so texts can be keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def row_digest(table: str, columns: Sequence[str], values: Sequence[Value]) -> str:
    """Hexadecimal SHA-256 of one row; every item is written as type tag, length, bytes."""
    parts = [_encode(table)]
    for column, value in zip(columns, values, strict=True):
        parts += (_encode(column), _encode(value))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def text_digest(text: str) -> str:
    """Hexadecimal SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _encode(value: Value) -> bytes:
    if isinstance(value, str):
        tag, data = b"T", value.encode("utf-8", "surrogateescape")
    elif isinstance(value, bytes):
        tag, data = b"B", value
    elif value is None:
        tag, data = b"N", b""
    elif isinstance(value, float):
        tag, data = b"F", struct.pack(">d", value)
    else:
        tag, data = b"I", struct.pack(">q", value)
    return tag + struct.pack(">Q", len(data)) + data
