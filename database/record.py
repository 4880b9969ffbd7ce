"""The rows of the store as frozen values: one class per table, one field per column in the order of schema.sql.

A row's `digest` is computed from its fields, never stored in them. The database knows Workloads, Programs and
everything else of the packages above only as canonical JSON text.
"""

from __future__ import annotations

import math
import os
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from operator import index
from typing import Any, ClassVar, TypeVar

from .digest import Value, row_digest, text_digest

OUTCOMES = ("ok", "not_compiled", "wrong", "failed", "timeout")
METHODS = ("emulator", "device")
LARGEST_BLOB = 8 * 2**20  # bytes; a cubin has kilobytes, so anything larger is damage or malice

RowType = TypeVar("RowType", bound="Row")


def now() -> int:
    """Seconds since 1970; SOURCE_DATE_EPOCH overrides the clock for reproducible builds."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())


@dataclass(frozen=True)
class Row:
    """Base of all rows: typed fields, a digest over all of them, conversion from and to SQLite values."""

    TABLE: ClassVar[str]
    COMPRESSED: ClassVar[frozenset[str]] = frozenset()  # columns zlib-compressed in the file, not in the digest

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _typed(getattr(self, item.name), str(item.type), f"{type(self).__name__}.{item.name}")
            object.__setattr__(self, item.name, value)
        for name, choices in (("outcome", OUTCOMES), ("method", METHODS)):
            if getattr(self, name, choices[0]) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, none of {', '.join(choices)}")

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Column names behind `digest`, in the order of the table."""
        return _columns(cls)  # type: ignore[arg-type]  # mypy takes the __hash__ of rows for that of their class

    @classmethod
    def digest_of(cls, values: Sequence[Value]) -> str:
        """Digest of a row with these field values."""
        return row_digest(cls.TABLE, cls.columns(), values)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the whole row, in hexadecimal."""
        return self.digest_of([getattr(self, name) for name in self.columns()])

    def to_sql(self) -> tuple[Value, ...]:
        """Digest and columns as SQLite stores them."""
        values = ((name, getattr(self, name)) for name in self.columns())
        return self.digest, *(_pack(value) if name in self.COMPRESSED else value for name, value in values)

    @classmethod
    def from_sql(cls: type[RowType], stored: Sequence[Any]) -> RowType | None:
        """The row, or None where it does not match the digest stored with it."""
        columns = cls.columns()
        try:
            values = list(stored[1:])
            if cls.COMPRESSED:
                named = zip(columns, values, strict=True)
                values = [_unpack(value) if name in cls.COMPRESSED else value for name, value in named]
            if cls.digest_of(values) != stored[0]:
                return None
        except (TypeError, ValueError, zlib.error, struct.error):
            return None
        # The digest vouches for what __init__ checked before it was computed.
        row = object.__new__(cls)
        row.__dict__.update(zip(columns, values, strict=True))
        row.__dict__["digest"] = stored[0]
        return row


@cache
def _columns(kind: type[Row]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def _typed(value: Any, declared: str, name: str) -> Value:
    """`value` as the one SQLite type its field declares, so that it digests alike before and after storage."""
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


@dataclass(frozen=True)
class Source(Row):
    """A family's flattened CUDA source, without constants."""

    TABLE: ClassVar[str] = "source"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"text"})
    text: bytes

    @classmethod
    def of(cls, text: str) -> Source:
        """The row of a source text."""
        return cls(text.encode("utf-8"))

    @classmethod
    def digest_of(cls, values: Sequence[Value]) -> str:
        """SHA-256 of the text itself: what the caches of the builder call it, too."""
        (text,) = values
        if not isinstance(text, bytes):
            raise TypeError("a source is stored as bytes")
        return text_digest(text.decode("utf-8"))


@dataclass(frozen=True)
class Binary(Row):
    """A cubin, what it was compiled from, and what the compiler said about it (sizes in bytes)."""

    TABLE: ClassVar[str] = "binary"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"cubin"})
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
    """What tuning one Workload for one part gave; times in microseconds."""

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
    """One kernel of the cover of a class."""

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


@dataclass(frozen=True)
class Residual(Row):
    """What timings said beside the potential, when `gensor-tune learn` was run: a model in plain numbers.

    `arch` is the compute capability whose timings taught it, or empty for all of them.
    """

    TABLE: ClassVar[str] = "residual"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"model"})
    arch: str
    model: bytes
    learnt: str = "{}"
    created: int = field(default_factory=now)


#: In the order of their references: a prefix of a copy never points at what is not there yet.
TABLES: tuple[type[Row], ...] = (Source, Binary, Kernel, Verification, Record, Portfolio, Timing, Residual)
