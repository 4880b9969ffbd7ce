"""Invariants of a database after any fault, its journal modes, and how long looks at it take.

It has all reported rows, every row is whole, SQLite finds no damage.
"""

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gensor_database import Record, Store, StoreWarning, Timing, opening
from gensor_database.record import canonical
from tests.campaign_size import FULL
from tests.doubles.store_rows import ARCH, PART

#: The two journal modes, by the file system a database is taken to be on.
JOURNALS = ("wal", "delete")
LONGEST = 1.0  # seconds of this process's CPU; a look that waits for something takes no CPU, and is caught by HANGING
HANGING = 20.0  # seconds by the clock


def set_journal(journal: str) -> None:
    opening.is_remote = lambda path: journal == "delete"


def read_reports(path: Path) -> list[dict]:
    """The rows that `--json` has reported as tuned: whole lines only, the process may have died within one."""
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if line["status"] == "ok"]


def check(path: Path, lines: list[dict]) -> int:
    """The number of Workloads with records; raises AssertionError unless the database has all reported rows."""
    if not path.exists():
        assert not lines, "rows were reported, and there is no database"
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", StoreWarning)
        with Store.open(path) as store:
            assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            records = list(store.rows(Record))
            for record in records:
                assert record.kernel_digest is None or is_whole(store, record.kernel_digest), record
            assert len(list(store.rows(Timing))) == store.counts()["timing"]
            for line in lines:
                entry = store.find(canonical(line["workload"]), ARCH, PART)
                assert entry is not None and entry.usable and entry.kernel.digest == line["kernel"], line
    return len({record.key for record in records})  # a row of another name is another record of its Workload


def is_whole(store: Store, digest: str) -> bool:
    stored = store.kernel(digest)
    if stored is None or not stored.usable:
        return False
    binary = store.binary(stored.kernel)
    return binary is not None and store.source(binary) is not None


class Clock:
    """The longest look of each name: by CPU and by the wall's clock."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall[name] = max(self.wall.get(name, 0.0), time.perf_counter() - wall)
            self.cpu[name] = max(self.cpu.get(name, 0.0), time.process_time() - cpu)

    def check(self) -> None:
        """No look took too long; CPU time is checked in full campaigns alone, as it grows with the load."""
        assert not FULL or max(self.cpu.values()) < LONGEST, self.cpu
        assert max(self.wall.values()) < HANGING, self.wall
