"""A database of the schema before and the family ABI before: opened, converted, refreshed, and no timing lost."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import warnings

import pytest

from gensor_database import Kernel, Record, Store, StoreWarning, Timing, Verification, migrations
from gensor_database import connection as sql
from gensor_database.layers import open_layers
from gensor_database.record import TABLES
from gensor_database.rows import insert
from gensor_kernels.dispatch.calls.problem import Problem
from gensor_kernels.dispatch.selection import library, load, tiers
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.programs.registry import FAMILIES
from tests.database.test_migrations import OLD_TABLES, STEPS, OldKernel, OldTiming, old_schema
from tests.doubles.kernels import ARCH, workload
from tests.doubles.store_rows import altered
from tests.doubles.stored import kernel_rows, lines, record_of, stock

pytest.importorskip("gensor_tuner.cli.app")
ABIS = {name: family.abi for name, family in FAMILIES.items()}
SHAPES = [workload(32 + 8 * (n % 20), 64 + 64 * (n // 20), 64) for n in range(120)]


def convert(table, values):
    """What the step from the schema before does: kernels got an ABI column, and these have the ABI before."""
    if table == "kernel":
        family = values.pop("template")
        return {"family": family, "abi": ABIS[family] - 1, **values}
    if table == "timing":
        return {"median_us": values.pop("seconds") * 1e6, **values}
    return values


STEP = migrations.Step(0, old_schema(), OLD_TABLES, convert)


def old_database(path):
    """1,000 and more rows: 120 Workloads by two kernels, timings of both and of the library, under two drivers."""
    groups = kernel_rows(SHAPES[0], limit=2)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    sql.execute_schema(connection, STEP.schema, 0)
    made = []
    for source, binary, kernel, verdict in groups:
        old = OldKernel(kernel.family, kernel.class_key, kernel.program, kernel.arch, binary.digest)
        made.append((old, [source, binary, old, dataclasses.replace(verdict, kernel_digest=old.digest)]))
    rows = [row for _, each in made for row in each]
    for number, wanted in enumerate(SHAPES):
        old = made[number % 2][0]
        record = record_of(wanted, groups[0][2])
        rows.append(dataclasses.replace(record, kernel_digest=old.digest, abi=record.abi - 1))
        place = (wanted.key(), ARCH.name, ARCH.part)
        for created, (each, _) in enumerate([*made, *made]):
            rows.append(OldTiming(*place, each.digest, None, (5 + number + created) * 1e-6, created))
        rows += [OldTiming(*place, None, "cupy.matmul", (9 + number) * 1e-6, created) for created in range(4)]
    for row in rows:
        insert(connection, row)
    connection.execute("COMMIT")
    connection.close()
    return rows


@pytest.mark.usefixtures("needs_emulator")
def test_a_thousand_rows_of_the_version_before_lose_no_timing(gensor_tune, tmp_path, monkeypatch):
    rows = old_database(tmp_path / "k.db")
    assert len(rows) >= 1000
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    with Store.open(tmp_path / "k.db") as store:
        assert sql.header(store.connection, "user_version") == sql.SCHEMA_VERSION
        timings, records, kernels = (list(store.rows(kind)) for kind in (Timing, Record, Kernel))
        assert {row.abi - ABIS[row.family] for row in kernels} == {-1}
        assert all(store.find(wanted.key(), ARCH.name, ARCH.part, ABIS) is None for wanted in SHAPES)
    wanted = {(r.key, r.vendor, round(r.seconds * 1e6), r.created) for r in rows if isinstance(r, OldTiming)}
    assert len(timings) == 960 and {(r.key, r.vendor, round(r.median_us), r.created) for r in timings} == wanted
    assert {row.kernel_digest for row in timings} == {None, *(row.digest for row in kernels)} and len(records) == 120

    code, _, err = gensor_tune("refresh", "--db", tmp_path / "k.db", "--json", tmp_path / "f.jsonl")
    found = lines(tmp_path / "f.jsonl")
    assert code == 0 and "all 960 timings are kept" in err
    assert {each["status"] for each in found} <= {"rebuilt", "left"}
    left = sum(each["records"] for each in found if each["status"] == "left")
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert list(store.rows(Timing)) == timings
        assert {row.digest for row in records} <= {row.digest for row in store.rows(Record)}
        served = [store.find(each.key(), ARCH.name, ARCH.part, ABIS) for each in SHAPES]
        assert sum(each is not None and each.usable for each in served) == 120 - left and left < 12
    code, _, err = gensor_tune("verify", "--db", tmp_path / "k.db", "--rebuild")
    assert code == 0 and "2 ok, 2 outdated" in err


def test_a_readonly_old_database_serves_what_is_current_without_being_changed(tmp_path, monkeypatch):
    old_database(tmp_path / "k.db")
    before = (tmp_path / "k.db").read_bytes()
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert store.counts()["timing"] == 960 and store.counts()["record"] == 120
    assert (tmp_path / "k.db").read_bytes() == before


def test_a_newer_user_database_is_left_alone_with_one_warning_and_the_others_serve(tmp_path, monkeypatch):
    (wanted,) = stock(tmp_path / "site.db", ((64, 64, 64),))
    stock(tmp_path / "user.db", ((64, 64, 64),))
    newer = f"PRAGMA user_version={sql.SCHEMA_VERSION + 1}"
    altered(tmp_path / "user.db", "CREATE TABLE novelty (x)", newer, "PRAGMA journal_mode=DELETE")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("user.db*")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with open_layers(ARCH.name, tmp_path / "user.db", tmp_path / "site.db") as layers:
            contents = load.contents(layers.load(ARCH.name, ABIS), ARCH)
            request = tiers.Request(Problem(wanted, Geometry((1, 1, 1)), ()), ARCH, False, False)
            choice = tiers.choose(request, library.Library(contents))
    assert choice.tier == 2 and [each.category for each in caught] == [StoreWarning]
    assert "newer gensor-kernels" in str(caught[0].message)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("user.db*")} == before


def test_verdicts_survive_the_upgrade(tmp_path, monkeypatch):
    """A kernel that was refuted before is not built again after."""
    old_database(tmp_path / "k.db")
    monkeypatch.setattr(migrations, "STEPS", (STEP, *STEPS))
    with Store.open(tmp_path / "k.db") as store:
        digests = {row.digest for row in store.rows(Kernel)}
        verdicts = list(store.rows(Verification))
    assert {row.kernel_digest for row in verdicts} == digests and {row.outcome for row in verdicts} == {"ok"}
    assert json.loads(verdicts[0].provenance) == {} and len(TABLES) == len(OLD_TABLES) + 1
