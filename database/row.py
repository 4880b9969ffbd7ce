"""Base of all rows: typed fields, a digest over all of them, and their form in SQLite."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from operator import index
from typing import Any, ClassVar, TypeVar

from .digest import Value, row_digest
from .lazy import cached_property

OUTCOMES = ("ok", "not_compiled", "wrong", "failed", "timeout")
METHODS = ("emulator", "device")
LARGEST_BLOB = 8 * 2**20  # bytes; a cubin has kilobytes, so anything larger is damage or malice

RowType = TypeVar("RowType", bound="Row")


@dataclass(frozen=True)
class Row:
    """Base of all rows: typed fields, a digest over all of them, conversion from and to SQLite values."""

    TABLE: ClassVar[str]
    COMPRESSED: ClassVar[frozenset[str]] = frozenset()  # columns zlib-compressed in the file, not in the digest

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _typed(getattr(self, item.name), str(item.type), f"{type(self).__name__}.{item.name}")
            if isinstance(value, bytes) and len(value) > LARGEST_BLOB:
                raise ValueError(f"{type(self).__name__}.{item.name} has more than {LARGEST_BLOB >> 20} MB")
            object.__setattr__(self, item.name, value)
        for name, choices in (("outcome", OUTCOMES), ("method", METHODS)):
            if getattr(self, name, choices[0]) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, none of {', '.join(choices)}")

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the column names behind `digest`, in the order of the table."""
        return _columns(cls)  # type: ignore[arg-type]  # mypy takes the __hash__ of rows for that of their class

    @classmethod
    def digest_of(cls, values: Sequence[Value]) -> str:
        """Return the digest of a row with these field values."""
        return row_digest(cls.TABLE, cls.columns(), values)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the whole row, in hexadecimal."""
        return self.digest_of([getattr(self, name) for name in self.columns()])

    @property
    def size(self) -> int:
        """Bytes of its texts and data in memory, uncompressed."""
        values = (getattr(self, name) for name in self.columns())
        return sum(len(value) for value in values if isinstance(value, (str, bytes)))

    def to_sql(self) -> tuple[Value, ...]:
        """Return digest and columns as SQLite stores them."""
        values = ((name, getattr(self, name)) for name in self.columns())
        return self.digest, *(_pack(value) if name in self.COMPRESSED else value for name, value in values)

    @classmethod
    def from_sql(cls: type[RowType], stored: Sequence[Any]) -> RowType | None:
        """Return the row, or None if it does not match the digest stored with it."""
        columns = cls.columns()
        try:
            values = list(stored[1:])
            if cls.COMPRESSED:
                named = zip(columns, values, strict=True)
                values = [_unpack(value) if name in cls.COMPRESSED else value for name, value in named]
            known = _kinds(cls)  # type: ignore[arg-type]  # as in columns
            if tuple(map(type, values)) not in known or cls.digest_of(values) != stored[0]:
                return None
        except (TypeError, ValueError, zlib.error, struct.error):
            return None
        # The digest covers all other checks of __init__; an attacker could compute a digest, too.
        row = object.__new__(cls)
        row.__dict__.update(zip(columns, values, strict=True))
        row.__dict__["digest"] = stored[0]
        return row


@cache
def _columns(kind: type[Row]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


@cache
def _kinds(kind: type[Row]) -> frozenset[tuple[type, ...]]:
    """Return all combinations of column types of a row: one look-up checks a whole row."""
    known = {"int": int, "float": float, "str": str, "bytes": bytes, "None": type(None)}
    return frozenset(product(*([known[name] for name in str(item.type).split(" | ")] for item in fields(kind))))


def _typed(value: Any, declared: str, name: str) -> Value:
    """Return `value` as the SQLite type of its field, so that digests are equal before and after storage."""
    wanted, _, optional = declared.partition(" | ")
    if value is None and optional == "None":
        return None
    if wanted == "int":
        return index(value)
    if wanted == "float":
        number = float(value) + 0.0  # SQLite stores -0.0 as 0
        if math.isnan(number):
            raise ValueError(f"{name} is NaN, which SQLite stores as NULL")
        return number
    if not isinstance(value, str if wanted == "str" else bytes):
        raise TypeError(f"{name} must be {declared}, not {type(value).__name__}")
    return value


def _pack(data: bytes | str) -> bytes:
    return zlib.compress(data.encode("utf-8") if isinstance(data, str) else data, 9)


def _unpack(blob: Any) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(blob, LARGEST_BLOB)
    if not unpacker.eof:
        raise ValueError("the compressed data is cut short or too long")
    return data
