"""Invariants of a database after any fault: it has all reported rows, every row is whole, SQLite finds no damage."""

import json
import warnings
from pathlib import Path

from gensor_database import Record, Store, StoreWarning, Timing
from gensor_database.record import canonical

ARCH, PART = "sm_87", "orin-nano-8gb"


def read_reports(path: Path) -> list[dict]:
    """The rows that `--json` has reported as tuned: whole lines only, the process may have died within one."""
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if line["status"] == "ok"]


def check(path: Path, lines: list[dict], readonly: bool = False) -> int:
    """The number of Workloads with records; raises AssertionError unless the database has all reported rows."""
    if not path.exists():
        assert not lines, "rows were reported, and there is no database"
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", StoreWarning)
        with Store.open(path, readonly=readonly) as store:
            assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            records = list(store.rows(Record))
            for record in records:
                assert record.kernel_digest is None or is_whole(store, record.kernel_digest), record
            assert len(list(store.rows(Timing))) == store.counts()["timing"]
            for line in lines:
                assert serves(store, line), line
    return len({record.key for record in records})  # a row of another name is another record of its Workload


def is_whole(store: Store, digest: str) -> bool:
    """Whether a kernel is there with its verdict, binary and source."""
    stored = store.kernel(digest)
    if stored is None or not stored.usable:
        return False
    binary = store.binary(stored.kernel)
    return binary is not None and store.source(binary) is not None


def serves(store: Store, line: dict) -> bool:
    """Whether the database answers with a reported row."""
    entry = store.find(canonical(line["workload"]), ARCH, PART)
    return entry is not None and entry.usable and entry.kernel.digest == line["kernel"]
