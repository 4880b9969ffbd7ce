"""Rows of the store as frozen values: their digest, their form in SQLite, and one class per table.

A class has one field per column, in the order of schema.sql.  A row's `digest` is computed from its fields, never
stored in them.  Workloads, Programs and other objects of the packages above appear here only as canonical JSON text.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import os
import struct
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import product
from operator import index
from typing import Any, ClassVar, TypeVar

from .errors import StoreWarning
from .lazy import cached_property
from .text import duration, table

Value = None | int | float | str | bytes

OUTCOMES = ("ok", "not_compiled", "wrong", "failed", "timeout")
METHODS = ("emulator", "device")
LONGEST_DRAWN = 500  # characters of a text that a notebook shows
LAST_SECOND = 253402300799  # of the year 9999, the last one that Python's calendar has
LARGEST_BLOB = 8 * 2**20  # bytes; a cubin has kilobytes, so anything larger is damage or malice
_MEMORY = 16 * 2**20  # bytes that reading may take in addition to the data: far more than a window and tables

RowType = TypeVar("RowType", bound="Row")


class Plain(bytes):
    """Data of a compressed column that was read from a pack, and is plain already."""


_HEAD = struct.Struct(">cQ").pack
_FLOAT = struct.Struct(">d").pack
_INTEGER = struct.Struct(">q").pack
_BARE, _TEXT, _REAL, _WHOLE, _NOTHING = range(5)  # indices of the prefixes that _names has per column
_SHORT = 1024
_SIZES = [size.to_bytes(8, "big") for size in range(_SHORT)]


def canonical(value: object) -> str:
    """Return canonical JSON: sorted keys, no spaces, no NaN. Equal values give equal texts, so texts can be keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def row_digest(table: str, columns: tuple[str, ...], values: Sequence[Value]) -> str:
    """Return the hexadecimal SHA-256 over table, column names and values; each is written as type tag, length, bytes.

    A hash of the cubin alone accepts a wrong launch after one flipped bit elsewhere in the row; a hash without type
    tags accepts a text that became a blob.
    """
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
    """Return the constant bytes before a table's items.

    That is the table's name, then each column's name, bare and with the tags of a text, a float, an integer and NULL.
    """
    table_name, *names = [b"".join(_encode(name)) for name in (table, *columns)]
    real, whole, nothing = _HEAD(b"F", 8), _HEAD(b"I", 8), _HEAD(b"N", 0)
    return table_name, tuple([(name, name + b"T", name + real, name + whole, name + nothing) for name in names])


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


@dataclass(frozen=True)
class Row:
    """Base of all rows: typed fields, a digest over all of them, conversion from and to SQLite values."""

    TABLE: ClassVar[str]
    COMPRESSED: ClassVar[frozenset[str]] = frozenset()  # columns xz-compressed in the file, not in the digest
    PACKED: ClassVar[frozenset[str]] = frozenset()  # columns that an export puts into packs

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _convert(getattr(self, item.name), str(item.type), f"{type(self).__name__}.{item.name}")
            if isinstance(value, bytes) and len(value) > LARGEST_BLOB:
                raise ValueError(f"{type(self).__name__}.{item.name} has more than {LARGEST_BLOB >> 20} MB")
            object.__setattr__(self, item.name, value)
        for name, choices in (("outcome", OUTCOMES), ("method", METHODS)):
            if getattr(self, name, choices[0]) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, none of {', '.join(choices)}")

    @classmethod
    @cache
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns that `digest` covers, in the order of the table."""
        return tuple([item.name for item in fields(cls)])

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
        size = 0
        for name in self.columns():
            value = self.__dict__[name]
            size += len(value) if isinstance(value, (str, bytes)) else 0
        return size

    def _repr_html_(self) -> str:
        """Draw the row in a notebook: names and values, times in their units, data by its size."""
        named = ((name, getattr(self, name)) for name in self.columns())
        rows = [
            (name.removesuffix("_us"), _draw(name, value)) for name, value in named if value not in (None, "{}", "[]")
        ]
        return table([(type(self).__name__.lower(), self.digest[:12]), *rows])

    def to_sql(self) -> tuple[Value, ...]:
        """Return digest and columns as SQLite stores them: compressed as they were read, if not from a pack."""
        stored: tuple[Value, ...] | None = self.__dict__.get("stored")
        if stored is not None:  # compressing takes a hundred times as long as reading
            return stored
        values = ((name, getattr(self, name)) for name in self.columns())
        return self.digest, *(compressed(value) if name in self.COMPRESSED else value for name, value in values)

    @classmethod
    def from_sql(cls: type[RowType], stored: Sequence[Value]) -> RowType | None:
        """Return the row, or None if it does not match the digest stored with it."""
        columns = cls.columns()
        try:
            values = list(stored[1:])
            if cls.COMPRESSED:
                named = zip(columns, values, strict=True)
                values = [decompressed(value) if name in cls.COMPRESSED else value for name, value in named]
            known = _kinds(cls)  # type: ignore[arg-type]  # mypy takes the __hash__ of rows for that of their class
            if tuple(map(type, values)) not in known or _digester(cls)(values) != stored[0]:  # type: ignore[arg-type]
                return None
        except (TypeError, ValueError, EOFError, lzma.LZMAError, struct.error):
            return None
        # The digest covers all other checks of __init__; an attacker could also compute a digest.
        row = object.__new__(cls)
        row.__dict__.update(zip(columns, values, strict=True))
        row.__dict__["digest"] = stored[0]
        if cls.COMPRESSED and not any(isinstance(value, Plain) for value in stored):
            row.__dict__["stored"] = tuple(stored)
        return row


@cache
def _digester(kind: type[Row]) -> Callable[[Sequence[Value]], str]:
    """Return the digest_of of a table, as a function that makes one call: a file has very many rows."""
    own = "digest_of" in kind.__dict__
    return kind.digest_of if own else partial(row_digest, kind.TABLE, kind.columns())


@cache
def _kinds(kind: type[Row]) -> frozenset[tuple[type, ...]]:
    """Return all combinations of column types of a row: one look-up checks a whole row."""
    known = {"int": int, "float": float, "str": str, "bytes": bytes, "None": type(None)}
    return frozenset(product(*([known[name] for name in str(item.type).split(" | ")] for item in fields(kind))))


def _draw(name: str, value: Value) -> str:
    """Return a value as a notebook shows it."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if name.endswith("_us") and isinstance(value, (int, float)):
        return duration(value)
    if name == "created":
        seconds = int(str(value))
        if not 0 <= seconds <= LAST_SECOND:  # of a foreign database
            return str(value)
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    text = str(value)
    return text if len(text) <= LONGEST_DRAWN else f"{text[:LONGEST_DRAWN]}... ({len(text)} characters)"


def _convert(value: Any, declared: str, name: str) -> Value:
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


def compressed(data: bytes | str, window: int = 2**18) -> bytes:
    """Return data, or the UTF-8 bytes of a text, as xz; `window`: bytes in which it looks for repetitions."""
    plain = data.encode("utf-8") if isinstance(data, str) else data
    # Instructions have 16 bytes: bytes are predicted by their places in 2**pb = 16 bytes.
    filters = ({"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": window, "pb": 4},)
    return lzma.compress(plain, check=lzma.CHECK_NONE, filters=filters)  # the digest checks the data


def decompressed(blob: Any) -> bytes:
    """Return the plain data of what `compressed` made."""
    if isinstance(blob, Plain):
        return bytes(blob)
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    data = unpacker.decompress(blob, LARGEST_BLOB)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the compressed data is cut short or too long")
    return data


def now() -> int:
    """Return seconds since 1970; SOURCE_DATE_EPOCH overrides the clock for reproducible builds."""
    fixed = _parse_epoch(os.environ.get("SOURCE_DATE_EPOCH", ""))
    return int(time.time()) if fixed is None else fixed


@cache
def _parse_epoch(text: str) -> int | None:
    """Return the seconds that SOURCE_DATE_EPOCH gives; None, with one warning, where no calendar has them."""
    if text.isascii() and text.isdecimal() and len(text) < 18 and int(text) <= LAST_SECOND:
        return int(text)
    if text:
        said = f"SOURCE_DATE_EPOCH={text[:40]!r} is no number of seconds since 1970 and is ignored"
        warnings.warn(said, StoreWarning, stacklevel=4)
    return None


@dataclass(frozen=True)
class Source(Row):
    """A family's flattened CUDA source, without constants."""

    TABLE: ClassVar[str] = "source"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"text"})
    PACKED: ClassVar[frozenset[str]] = frozenset({"text"})
    text: bytes

    @classmethod
    def of(cls, text: str) -> Source:
        """Return the row of a source text."""
        return cls(text.encode("utf-8"))

    @classmethod
    def digest_of(cls, values: Sequence[Value]) -> str:
        """Return the SHA-256 of the text itself, which is also its key in the builder's caches."""
        (text,) = values
        if not isinstance(text, bytes):
            raise TypeError("a source is stored as bytes")
        return text_digest(text.decode("utf-8"))


@dataclass(frozen=True)
class Binary(Row):
    """A cubin, its source and constants, and the compiler's report (sizes in bytes)."""

    TABLE: ClassVar[str] = "binary"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"cubin"})
    PACKED: ClassVar[frozenset[str]] = frozenset({"cubin", "constants", "facts"})
    source_digest: str
    constants: str
    target: str
    cubin: bytes
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    facts: str
    toolchain: str


@dataclass(frozen=True)
class Kernel(Row):
    """One Program of one family for one class on one architecture, and its binary."""

    TABLE: ClassVar[str] = "kernel"
    family: str
    abi: int
    class_key: str
    program: str
    arch: str
    binary_digest: str


@dataclass(frozen=True)
class Verification(Row):
    """One execution of a kernel against the float64 reference."""

    TABLE: ClassVar[str] = "verification"
    PACKED: ClassVar[frozenset[str]] = frozenset({"cases", "counters"})
    kernel_digest: str
    method: str
    outcome: str
    error: str | None = None
    worst: float | None = None
    cases: str = "[]"
    counters: str = "{}"
    provenance: str = "{}"


@dataclass(frozen=True)
class Record(Row):
    """Result of tuning one Workload for one part; times in microseconds."""

    TABLE: ClassVar[str] = "record"
    key: str
    arch: str
    part: str
    abi: int
    kernel_digest: str | None
    predicted_us: float | None
    bound_us: float | None
    outcome: str
    error: str | None = None
    walk: str = "{}"
    provenance: str = "{}"
    created: int = field(default_factory=now)


@dataclass(frozen=True)
class Portfolio(Row):
    """One kernel of a class's portfolio."""

    TABLE: ClassVar[str] = "portfolio"
    arch: str
    part: str
    class_key: str
    rank: int
    kernel_digest: str


@dataclass(frozen=True)
class Timing(Row):
    """One measurement of a kernel, or of the vendor's call, on one Workload; microseconds."""

    TABLE: ClassVar[str] = "timing"
    key: str
    arch: str
    part: str
    kernel_digest: str | None
    vendor: str | None
    median_us: float
    samples: str = "{}"
    device: str = "{}"
    created: int = field(default_factory=now)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.kernel_digest is None) == (self.vendor is None):
            raise ValueError("a timing is of a kernel or of a vendor call, never of both")


#: In the order of their references: a prefix of a copy never refers to a missing row.
TABLES: tuple[type[Row], ...] = (Source, Binary, Kernel, Verification, Record, Portfolio, Timing)
