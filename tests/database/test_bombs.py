"""Small files that want much memory, time or patience: the costs of compressed values, long lines and locks."""

import base64
import json
import sqlite3
import sys
import tracemalloc
import warnings
from contextlib import closing
from functools import partial

import pytest

from gensor_database import PRETUNED, Binary, Kernel, Source, Store, StoreWarning, union
from gensor_database import connection as sql
from gensor_database import rows as stored
from gensor_database.exchange import export, merge
from gensor_database.record import LARGEST_BLOB
from gensor_database.rows import insert
from tests.campaign_size import sample
from tests.doubles.store_rows import ARCH, rows

pytest.importorskip("gensor_tuner.cli.app")
MB = 2**20
COUNT = 24
MOST = 12 * MB  # of COUNT times 1 MB, where 2 MB are written at once


def binary(number, source="ab" * 32):
    return Binary(source, json.dumps({"N": number}), ARCH, bytes(MB), 1, 0, 0, 0, "{}", "nvrtc")


def bomb(path):
    """A database with COUNT cubins of 1 MB each, and kernels that name them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        sql.create_tables(connection)
        for number in range(COUNT):
            made = binary(number)
            insert(connection, made)
            insert(connection, Kernel("contraction_mma", 1, "{}", json.dumps({"n": number}), ARCH, made.digest))
        connection.execute("COMMIT")
    assert path.stat().st_size < MB
    return path


def peak(action):
    """Bytes that Python holds at most while it acts."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def merged(source, folder):
    with Store.open(source, readonly=True) as other, Store.open(folder / "into.db") as store:
        assert merge(store, other, binaries=True)["binary"] == COUNT


def united(source, folder):
    with Store.open(source, readonly=True) as other:
        assert union([other], folder / "into.db", binaries=True)["binary"] == COUNT


def exported(source, folder):
    with Store.open(source, readonly=True) as store:
        with closing(sqlite3.connect(source)) as connection:
            assert connection.execute("SELECT count(*) FROM kernel").fetchone() == (COUNT,)
        export(store, folder / "into.db", ARCH)


@pytest.fixture
def small_batches(monkeypatch):
    """2 MB are written at once, and all that a file holds is read, as if it were larger."""
    monkeypatch.setattr(stored, "BATCH_BYTES", 2 * MB)
    monkeypatch.setattr(stored, "INFLATED_BESIDE", 2**40)


@pytest.mark.parametrize("action", [merged, united])
def test_large_values_are_held_a_few_at_a_time(tmp_path, small_batches, action):
    path = bomb(tmp_path / "bomb.db")
    assert peak(lambda: action(path, tmp_path)) < MOST


def test_an_export_holds_a_few_at_a_time(tmp_path, small_batches):
    path = bomb(tmp_path / "bomb.db")
    with Store.open(path) as store:
        for kernel in list(store.rows(Kernel)):
            store.replace_portfolio(ARCH, "p", kernel.program, [kernel.digest])
    assert peak(lambda: exported(path, tmp_path)) < MOST
    with Store.open(tmp_path / "into.db", readonly=True) as copy:
        assert copy.counts()["binary"] == COUNT


def test_values_that_fill_memory_end_a_table_and_others_go_on(tmp_path, monkeypatch):
    """Without a limit 3 MB of a file are 2.5 GB, and as many to hash."""
    assert stored.BATCH_BYTES <= 16 * MB and stored.INFLATED_BESIDE <= 64 * MB
    monkeypatch.setattr(stored, "INFLATED_BESIDE", 3 * MB)
    monkeypatch.setattr(stored, "MOST_INFLATED", 8)  # of a file of this size
    with Store.open(bomb(tmp_path / "bomb.db"), readonly=True) as store:
        with pytest.warns(StoreWarning, match="far more memory than code"):
            found = sum(1 for _ in store.rows(Binary))
        assert 0 < found < COUNT and len(list(store.rows(Kernel))) == COUNT
        assert store.get(Binary, binary(3).digest) is not None  # by itself it is no burden


@pytest.mark.parametrize("path", sample(sorted(PRETUNED.glob("*.db")), 1), ids=lambda path: path.stem)
def test_code_of_ours_is_far_from_that_limit(path, monkeypatch):
    monkeypatch.setattr(stored, "INFLATED_BESIDE", 0)
    monkeypatch.setattr(stored, "MOST_INFLATED", stored.MOST_INFLATED // 8)
    with Store.open(path, readonly=True, immutable=True) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = store.counts()
        assert [sum(1 for _ in store.rows(kind)) for kind in (Source, Binary)] == [counts["source"], counts["binary"]]


def test_a_row_that_could_not_be_read_back_is_none():
    with pytest.raises(ValueError, match=r"Source\.text has more than 8 MB"):
        Source(bytes(LARGEST_BLOB + 1))


# ---- import


@pytest.fixture
def import_(gensor_tune):
    """import_("--binaries") -> (exit code, stdout, stderr) for rows.jsonl."""
    return partial(gensor_tune, "import", "{}/rows.jsonl", "--db", "{}/k.db")


def line(row, **values):
    names = {name: getattr(row, name) for name in row.columns()} | values
    return json.dumps({"table": row.TABLE, "digest": row.digest, **names}).encode() + b"\n"


def test_code_and_numbers_that_are_too_large_are_refused_by_line(import_, tmp_path):
    made = rows(1)[1]
    large = base64.b64encode(bytes(LARGEST_BLOB + 1)).decode()
    timing = rows(1)[5]
    (tmp_path / "rows.jsonl").write_bytes(
        line(made, cubin=large)
        + line(timing).replace(b"21.0", b"9" * 1_000_000)
        + line(timing).replace(b"21.0", b"[" * 100_000 + b"]" * 100_000)
        + b"[" * 17 * MB
        + b"\n"
        + line(made, cubin=base64.b64encode(made.cubin).decode())
    )
    code, out, err = import_("--binaries")
    said = [text.partition("rows.jsonl:")[2] for text in err.splitlines()]
    assert (code, out) == (1, "1 binary\n") and "Traceback" not in err
    assert said[0].startswith("1:") and "more than 8 MB" in said[0]
    assert said[1].startswith("2:") and "1000000 digits" in said[1]
    assert said[2].startswith("3:") and said[3].startswith("4:") and err.endswith("4 lines were refused\n")


def test_a_line_without_an_end_ends_the_import(import_, tmp_path, monkeypatch):
    """A device, or a file with a hole of a terabyte."""
    lines = sys.modules["gensor_tuner.store.jsonl"]
    monkeypatch.setattr(lines, "ENDLESS", 2**24)
    with (tmp_path / "rows.jsonl").open("wb") as file:
        file.truncate(2**40)
    code, out, err = import_()
    assert code == 2 and not out and "line 1 has more than 16 MB" in err


def test_importing_holds_a_few_rows_at_a_time(import_, tmp_path, small_batches):
    with (tmp_path / "rows.jsonl").open("wb") as file:
        for number in range(COUNT):
            made = binary(number)
            file.write(line(made, cubin=base64.b64encode(made.cubin).decode()))
    assert (
        peak(lambda: import_("--binaries")) < MOST
    )  # a line, its text, its JSON and its cubin in addition to the rows
