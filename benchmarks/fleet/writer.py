"""How fast one client's database takes rows: those of a shipped database, class by class, as a fleet's client."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gensor_database.layers import PRETUNED
from gensor_database.record import Kernel, Record, Row, Verification
from gensor_database.store import Store
from gensor_kernels.programs.validation import workload_of

PORTFOLIO = 16
RECORDS = 600


def stored(arch: str, records: int) -> dict[str, list[list[Row]]]:
    """Return the rows of each stored workload (source, binary, kernel, verifications, record), by class."""
    found: dict[str, list[list[Row]]] = {}
    with Store.open(PRETUNED / f"{arch}.db", readonly=True, immutable=True) as store:
        verdicts: dict[str, list[Row]] = {}
        for each in store.rows(Verification):
            verdicts.setdefault(each.kernel_digest, []).append(each)
        for record in store.rows(Record):
            kernel = store.get(Kernel, record.kernel_digest) if record.kernel_digest else None
            binary = store.binary(kernel) if kernel is not None else None
            source = store.source(binary) if binary is not None else None
            if kernel is not None and binary is not None and source is not None and records > 0:
                rows = [source, binary, kernel, *verdicts.get(kernel.digest, ()), record]
                found.setdefault(workload_of(record.key).class_key(), []).append(rows)
                records -= 1
    return found


def fresh(rows: list[Row]) -> Iterator[Row]:
    """Yield equal rows that do not know their digests yet, like the rows of a new kernel."""
    yield from (replace(each) for each in rows)


def measure(arch: str = "sm_87", records: int = RECORDS) -> dict[str, float]:
    """Return the records, rows, classes and bytes of cubins per second of wall time, and processor seconds a record."""
    classes = stored(arch, records)
    count = sum(map(len, classes.values()))
    rows = sum(len(each) for same in classes.values() for each in same)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder, "writer.db")) as store:
        began, before = time.perf_counter(), time.process_time()
        for key, same in classes.items():
            made = [row for each in same for row in fresh(each)]
            store.add(*(row for row in made if not isinstance(row, Record)))
            kernels = dict.fromkeys(row.digest for row in made if isinstance(row, Kernel))
            store.replace_portfolio(arch, "benchmark", key, list(kernels)[:PORTFOLIO])
            store.add(*(row for row in made if isinstance(row, Record)))
        seconds, processor = time.perf_counter() - began, time.process_time() - before
        size = store.path.stat().st_size
    return {
        "records": count,
        "rows": rows,
        "classes": len(classes),
        "file_bytes": size,
        "seconds": seconds,
        "records_per_s": count / seconds,
        "rows_per_s": rows / seconds,
        "classes_per_s": len(classes) / seconds,
        "processor_ms_per_record": 1e3 * processor / count,
    }
