"""Rows of the store as frozen values: one class per table, one field per column in the order of schema.sql.

A row's `digest` is computed from its fields, never stored in them.  Workloads, Programs and other objects of the
packages above appear here only as canonical JSON text.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .digest import Value, text_digest
from .row import Row


def now() -> int:
    """Return seconds since 1970; SOURCE_DATE_EPOCH overrides the clock for reproducible builds."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())


@dataclass(frozen=True)
class Source(Row):
    """A family's flattened CUDA source, without constants."""

    TABLE: ClassVar[str] = "source"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"text"})
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


@dataclass(frozen=True)
class Residual(Row):
    """A correction of the potential, learned from timings by `gensor-tune learn`: a model in plain numbers.

    `arch` is the compute capability of the timings, or empty for all timings.
    """

    TABLE: ClassVar[str] = "residual"
    COMPRESSED: ClassVar[frozenset[str]] = frozenset({"model"})
    arch: str
    model: bytes
    learnt: str = "{}"
    created: int = field(default_factory=now)


#: In the order of their references: a prefix of a copy never refers to a missing row.
TABLES: tuple[type[Row], ...] = (Source, Binary, Kernel, Verification, Record, Portfolio, Timing, Residual)
