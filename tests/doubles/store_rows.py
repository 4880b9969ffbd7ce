"""Rows for tests of the store: small, complete, and different for every number."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gensor_database import Binary, Kernel, Portfolio, Record, Row, Source, Store, Timing, Verification, canonical
from gensor_database.record import TABLES
from gensor_kernels.families.registry import FAMILIES

ABI = FAMILIES["contraction_mma"].abi

ARCH, PART = "sm_87", "orin-nano-8gb"
SOURCE = Source.of("// a family's flattened text\nint x;\n")


def class_key(number: int = 0) -> str:
    return canonical({"dtypes": {"a": "float16"}, "operator": "matmul", "variant": number})


def key(number: int) -> str:
    return canonical({"operator": "matmul", "sizes": {"m": number + 1}})


def kernel_rows(number: int, cubin: bytes = b"\x7fELF cubin ") -> tuple[Binary, Kernel, Verification]:
    constants = canonical({"BLOCK_M": 16 * number, "IN_TYPE": "half_t"})
    binary = Binary(
        SOURCE.digest, constants, ARCH, cubin + str(number).encode(), 96 + number, 0, 0, 0, "{}", "nvrtc 12.9.86"
    )
    program = canonical({"family": "contraction_mma", "values": {"block_m": 16 * number}})
    kernel = Kernel("contraction_mma", ABI, class_key(), program, ARCH, binary.digest)
    return binary, kernel, Verification(kernel.digest, "emulator", "ok", worst=0.25)


def rows(number: int, created: int = 1_700_000_000) -> list[Row]:
    """Everything tuning one workload stores, and two timings."""
    binary, kernel, verification = kernel_rows(number)
    return [
        SOURCE,
        binary,
        kernel,
        verification,
        Record(key(number), ARCH, PART, ABI, kernel.digest, 12.5, 10.0, "ok", created=created),
        Timing(key(number), ARCH, PART, kernel.digest, None, 20.0 + number, created=created),
        Timing(key(number), ARCH, PART, None, "cublas", 25.0 + number, created=created),
    ]


def add_rows(path: Path, *rows: Row) -> None:
    with Store.open(path) as store:
        store.add(*rows)


def stock(path: Path, *numbers: int, created: int = 1_700_000_000, journal: str = "") -> Path:
    with Store.open(path) as store:
        store.add(*(row for number in numbers for row in rows(number, created)))
        store.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(number)[1].digest for number in numbers])
        if journal:
            store.connection.execute(f"PRAGMA journal_mode={journal}")
    return path


def altered(path: Path, *statements: str | tuple[str, tuple[object, ...]]) -> Path:
    """A database changed without the store, by statements or (statement, its values)."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for each in statements:
            connection.execute(*([each] if isinstance(each, str) else each))
    return path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Files and folders are made under this mask."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def everything(of: Store | Path) -> dict[str, Row]:
    """Every row of a store, or of the database at a path, by its digest."""
    if not isinstance(of, Store):
        with Store.open(of, readonly=True) as store:
            return everything(store)
    return {row.digest: row for kind in TABLES for row in of.rows(kind)}


def portfolio(numbers: list[int]) -> list[Portfolio]:
    digests = [kernel_rows(number)[1].digest for number in numbers]
    return [Portfolio(ARCH, PART, class_key(), rank, digest) for rank, digest in enumerate(digests)]
