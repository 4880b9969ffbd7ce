"""Shipped files hold sources and cubins in packs: rows are the same, the file is smaller, damage stays where it is."""

import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from gensor_database import Binary, Source, Store, packs
from gensor_database.exchange import export, merge
from gensor_database.pruning import prune
from gensor_database.record import TABLES, Record, compressed
from tests.doubles.store_rows import ARCH, PART, add_rows, altered, kernel_rows, rows

pytestmark = pytest.mark.filterwarnings("ignore::gensor_database.StoreWarning")
COUNT = 2 * packs.MOST + 3
CODE = random.Random(1).randbytes(20_000)  # which no file compresses, but once


def all_rows():
    """COUNT workloads whose cubins differ at their ends, and a second source."""
    found = [Source(b"another text")]
    for number in range(1, COUNT + 1):
        binary, kernel, verification = kernel_rows(number, CODE)
        record = next(row for row in rows(number) if isinstance(row, Record))
        values = {name: getattr(record, name) for name in record.columns()} | {"kernel_digest": kernel.digest}
        found += [rows(number)[0], binary, kernel, verification, Record(**values)]
    other = Binary(found[0].digest, "{}", "sm_86", CODE, 1, 0, 0, 0, "{}", "nvrtc")
    kernel = type(kernel)("contraction_mma", kernel.abi, kernel.class_key, "{}", ARCH, other.digest)
    return [*found, other, kernel, Record("{}", ARCH, PART, kernel.abi, kernel.digest, 1.0, 1.0, "ok", created=1)]


@pytest.fixture
def packed(tmp_path):
    """The paths of a database and of its export."""
    add_rows(tmp_path / "k.db", *all_rows())
    with Store.open(tmp_path / "k.db") as store:
        assert export(store, tmp_path / "out.db", ARCH)["binary"] == COUNT + 1
    return tmp_path / "k.db", tmp_path / "out.db"


def ask(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def every(store):
    return {kind: list(store.rows(kind)) for kind in TABLES}


def test_rows_are_the_same_and_alike_data_is_stored_once(packed):
    path, out = packed
    with Store.open(path) as store, Store.open(out, readonly=True, immutable=True) as copy:
        assert every(copy) == every(store)
        for row in store.rows(Binary):
            copy.connection.packs.clear()
            assert copy.get(Binary, row.digest) == row
    assert out.stat().st_size < path.stat().st_size / 4
    for column in ("cubin", "constants", "facts"):
        found = Counter(text[:64] for (text,) in ask(out, f"SELECT {column} FROM binary"))
        assert sorted(found.values()) == [4, packs.MOST, packs.MOST]
    for column in ("text FROM source", "cases FROM verification"):
        assert len({text[:64] for (text,) in ask(out, f"SELECT {column}")}) == 1


def test_a_merge_takes_rows_without_packs(packed, tmp_path):
    _, out = packed
    with Store.open(out, readonly=True) as other, Store.open(tmp_path / "into.db") as store:
        merge(store, other, True)
        assert every(store) == every(other)
        assert store.add(*other.rows(Binary)) == 0
    assert not ask(tmp_path / "into.db", "SELECT * FROM pack")
    assert not ask(tmp_path / "into.db", "SELECT * FROM binary WHERE cubin < x''")
    with Store.open(out) as copy:  # a row that is in a pack is found there
        assert copy.add(*copy.rows(Binary)) == 0


def test_a_pack_stays_until_no_row_needs_it(packed):
    _, out = packed
    altered(out, "DELETE FROM record WHERE rowid % 2")
    with Store.open(out) as copy:
        before = every(copy)
        prune(copy)
        assert 0 < len(every(copy)[Binary]) < len(before[Binary])
    assert len(ask(out, "SELECT * FROM pack")) == 5
    altered(out, "DELETE FROM record")
    with Store.open(out) as copy:
        prune(copy)
        assert not any(every(copy)[kind] for kind in (Binary, Source))
    assert not ask(out, "SELECT * FROM pack")


def test_a_damaged_pack_loses_its_rows_alone(packed):
    """As does a place that leads nowhere."""
    _, out = packed
    (first,) = ask(out, "SELECT substr(cubin, 1, 64) FROM binary WHERE typeof(cubin) = 'text' LIMIT 1")[0]
    for place in ("", "x", f"{'0' * 64}:0:4", f"{'0' * 64}:0:99999999", ":1:2", "é" * 70):
        altered(out, ("UPDATE binary SET cubin = ? WHERE target = 'sm_86'", (place,)))
        with Store.open(out, readonly=True) as copy:
            assert len(list(copy.rows(Binary))) == COUNT
    for data in (b"", b"\xfd7zXZ\0 and then nothing", compressed(b"short"), 7, "text"):
        altered(out, ("UPDATE pack SET data = ? WHERE digest = ?", (data, first)))
        with Store.open(out, readonly=True) as copy:
            assert COUNT - packs.MOST <= len(list(copy.rows(Binary))) < COUNT


def test_a_connection_holds_few_packs(packed, monkeypatch):
    _, out = packed
    monkeypatch.setattr(packs, "HELD_BYTES", 1)
    with Store.open(out, readonly=True) as copy:
        assert len(list(copy.rows(Binary))) == COUNT + 1 and len(copy.connection.packs) == 1
