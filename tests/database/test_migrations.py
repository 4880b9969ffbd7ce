"""From an older schema to the current one, on a fabricated version 0; later versions use the same mechanism."""

from __future__ import annotations

import dataclasses
import sqlite3
from dataclasses import dataclass
from typing import ClassVar

import pytest

from gensor_database import (
    ForeignStoreError,
    Kernel,
    NewerStoreError,
    Record,
    Row,
    Store,
    StoreWarning,
    Timing,
    migrations,
)
from gensor_database import connection as sql
from gensor_database.record import TABLES
from gensor_database.rows import insert
from tests.doubles.store_rows import ABI, ARCH, PART, add_rows, altered, key, rows


@dataclass(frozen=True)
class OldKernel(Row):
    """Version 0 had no ABI column and called the family `template`."""

    TABLE: ClassVar[str] = "kernel"
    template: str
    class_key: str
    program: str
    arch: str
    binary_digest: str


@dataclass(frozen=True)
class OldTiming(Row):
    """Version 0 timed in seconds, and kept timings of a device that is no longer supported."""

    TABLE: ClassVar[str] = "timing"
    key: str
    arch: str
    part: str
    kernel_digest: str | None
    vendor: str | None
    seconds: float
    created: int


#: The steps there are, behind the one from version 0 that these tests make up.
STEPS = migrations.STEPS
OLD_TABLES = tuple({Kernel: OldKernel, Timing: OldTiming}.get(kind, kind) for kind in STEPS[0].tables)


def old_schema() -> str:
    types = {"str": "TEXT", "int": "INTEGER", "float": "REAL", "bytes": "BLOB"}
    statements = []
    for kind in OLD_TABLES:
        columns = [f"{item.name} {types[str(item.type).split(' | ')[0]]}" for item in dataclasses.fields(kind)]
        statements.append(f"CREATE TABLE {kind.TABLE} (digest TEXT PRIMARY KEY, {', '.join(columns)});")
    return "\n".join([*statements, "CREATE INDEX old_key ON record (key);"]) + "\n"


def convert(table, values):
    if table == "kernel":
        return {"family": values.pop("template"), "abi": ABI, **values}
    if table == "timing":
        if values["part"] == "retired":
            return None
        return {"median_us": values.pop("seconds") * 1e6, **values}
    return values


STEP = migrations.Step(0, old_schema(), OLD_TABLES, convert)


def old_rows(number: int) -> list[Row]:
    source, binary, kernel, verification, record, *_ = rows(number)
    old = OldKernel(kernel.family, kernel.class_key, kernel.program, ARCH, binary.digest)
    return [
        source,
        binary,
        old,
        dataclasses.replace(verification, kernel_digest=old.digest),
        dataclasses.replace(record, kernel_digest=old.digest),
        OldTiming(key(number), ARCH, PART, old.digest, None, 20e-6, 1),
        OldTiming(key(number), ARCH, "retired", old.digest, None, 20e-6, 2),
    ]


@pytest.fixture
def old_file(tmp_path):
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    sql.execute_schema(connection, STEP.schema, 0)
    for number in range(3):
        for row in old_rows(number):
            insert(connection, row)
    connection.close()
    return path


def check_converted(store: Store) -> None:
    entry = store.find(key(1), ARCH, PART, {"contraction_mma": ABI})
    assert entry.kernel == rows(1)[2] and entry.verified == "emulator" and entry.binary() == rows(1)[1]
    (timing,) = store.timings(key(1), PART)
    assert timing.median_us == pytest.approx(20) and timing.kernel_digest == entry.kernel.digest
    assert list(store.rows(Timing, part="retired")) == []
    assert {kind.TABLE: len(list(store.rows(kind))) for kind in TABLES} == dict(store.counts())


def test_a_file_is_converted_once_and_for_good(old_file, monkeypatch):
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    with Store.open(old_file) as store:
        check_converted(store)
        assert sql.header(store.connection, "user_version") == sql.SCHEMA_VERSION
        store.add(*rows(9))
    monkeypatch.setattr(migrations, "STEPS", ())
    with Store.open(old_file) as store:
        check_converted(store)
        assert store.find(key(9), ARCH, PART) is not None


def test_a_readonly_file_is_converted_in_memory(old_file, monkeypatch):
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    before = old_file.read_bytes()
    with Store.open(old_file, readonly=True) as store:
        check_converted(store)
    assert old_file.read_bytes() == before


def test_several_steps_run_in_one_transaction(old_file, monkeypatch):
    """A second step, to a version that renames nothing but drops one record."""

    def second(table, values):
        return None if table == "record" and values["key"] == key(0) else values

    last = sql.SCHEMA_VERSION
    steps = (STEP, *STEPS, migrations.Step(last, sql.schema_text(), TABLES, second))
    monkeypatch.setattr(migrations, "STEPS", steps)
    for module in (sql, migrations):
        monkeypatch.setattr(module, "SCHEMA_VERSION", last + 1)
    with Store.open(old_file) as store:
        check_converted(store)
        assert store.find(key(0), ARCH, PART) is None and len(list(store.rows(Record))) == 2
        assert sql.header(store.connection, "user_version") == last + 1


def test_a_step_that_fails_leaves_the_file_as_it_was(old_file, monkeypatch):
    def failing(table, values):
        if table == "timing":
            raise RuntimeError("planted")
        return convert(table, values)

    monkeypatch.setattr(migrations, "STEPS", (dataclasses.replace(STEP, convert=failing), *STEPS))
    before = old_file.read_bytes()
    with pytest.raises(RuntimeError, match="planted"):
        Store.open(old_file)
    assert old_file.read_bytes() == before


def test_damaged_rows_are_left_behind_with_a_warning(old_file, monkeypatch):
    altered(old_file, ("UPDATE kernel SET program = 'x' WHERE digest = ?", (old_rows(2)[2].digest,)))
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    with pytest.warns(StoreWarning, match="1 damaged rows"), Store.open(old_file) as store:
        check_converted(store)
        assert store.find(key(2), ARCH, PART) is None


def test_a_version_without_a_step_is_refused_unchanged(old_file):
    before = old_file.read_bytes()
    with pytest.raises(ForeignStoreError, match="schema 0"):
        Store.open(old_file)
    assert old_file.read_bytes() == before


def test_an_old_file_with_other_tables_is_refused_unchanged(old_file, monkeypatch):
    altered(old_file, "ALTER TABLE kernel ADD COLUMN more TEXT")
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    before = old_file.read_bytes()
    with pytest.raises(ForeignStoreError, match="other tables"):
        Store.open(old_file)
    assert old_file.read_bytes() == before


@pytest.mark.parametrize("readonly", [False, True])
def test_a_newer_file_is_refused_unchanged(tmp_path, readonly):
    path = tmp_path / "newer.db"
    add_rows(path, *rows(1))
    before = altered(path, "CREATE TABLE novelty (x)", f"PRAGMA user_version={sql.SCHEMA_VERSION + 1}").read_bytes()
    with pytest.raises(NewerStoreError, match="newer"):
        Store.open(path, readonly)
    assert path.read_bytes() == before


def test_steps_lead_to_the_current_version():
    versions = [step.version for step in migrations.STEPS]
    assert versions == list(range(sql.SCHEMA_VERSION - len(versions), sql.SCHEMA_VERSION))
    assert all(kind.columns() for step in migrations.STEPS for kind in step.tables)
