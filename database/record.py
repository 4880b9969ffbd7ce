"""The rows of the store as frozen values: one class per table, one field per column in the order of schema.sql.

A row's `digest` is computed from its fields, never stored in them. The database knows Workloads, Programs and
everything else of the packages above only as canonical JSON text.
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
    """Seconds since 1970; SOURCE_DATE_EPOCH overrides the clock for reproducible builds."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())


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
