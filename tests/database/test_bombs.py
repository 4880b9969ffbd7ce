"""Small files that want much memory, time or patience: the costs of compressed values, long lines and locks."""

import base64
import json
import sys
import tracemalloc
import warnings
from contextlib import contextmanager
from functools import partial

import pytest

from gensor_database import PRETUNED, Binary, Kernel, Source, Store, StoreWarning, union
from gensor_database import rows as stored
from gensor_database.exchange import export, merge
from gensor_database.record import LARGEST_BLOB
from tests.campaign_size import sample
from tests.doubles.store_rows import ARCH, rows

pytest.importorskip("gensor_tuner.cli.app")
MB = 2**20
COUNT = 24
MOST = 12 * MB  # of COUNT times 1 MB, where 2 MB are written at once


def binary(number):
    return Binary("ab" * 32, json.dumps({"N": number}), ARCH, bytes(MB), 1, 0, 0, 0, "{}", "nvrtc")


@pytest.fixture
def bomb(tmp_path):
    """A database with COUNT cubins of 1 MB each, and kernels of portfolios that name them."""
    with Store.open(tmp_path / "bomb.db") as store:
        for made in map(binary, range(COUNT)):
            kernel = Kernel("contraction_mma", 1, "{}", made.constants, ARCH, made.digest)
            store.add(made, kernel)
            store.replace_portfolio(ARCH, "p", kernel.program, [kernel.digest])
    assert store.path.stat().st_size < MB
    return store.path


@pytest.fixture
def small_batches(monkeypatch):
    """2 MB are written at once, and all that a file holds is read, as if it were larger."""
    monkeypatch.setattr(stored, "BATCH_BYTES", 2 * MB)
    monkeypatch.setattr(stored, "INFLATED_BESIDE", 2**40)


@contextmanager
def little_memory():
    """Inside, Python never holds MOST bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_large_values_are_held_a_few_at_a_time(bomb, tmp_path, small_batches):
    copies = [tmp_path / f"{name}.db" for name in ("merged", "united", "exported")]
    with Store.open(bomb, readonly=True) as store:
        with Store.open(copies[0]) as target, little_memory():
            merge(target, store, binaries=True)
        with little_memory():
            union([store], copies[1], binaries=True)
        with little_memory():
            export(store, copies[2], ARCH)
    for path in copies:
        with Store.open(path, readonly=True) as copy:
            assert copy.counts()["binary"] == COUNT


def test_values_that_fill_memory_end_a_table_and_others_go_on(bomb, monkeypatch):
    """Without a limit 3 MB of a file are 2.5 GB, and as many to hash. A row that could not be read back is none."""
    with pytest.raises(ValueError, match=r"Source\.text has more than 8 MB"):
        Source(bytes(LARGEST_BLOB + 1))
    assert stored.BATCH_BYTES <= 16 * MB and stored.INFLATED_BESIDE <= 64 * MB
    monkeypatch.setattr(stored, "INFLATED_BESIDE", 3 * MB)
    monkeypatch.setattr(stored, "MOST_INFLATED", 8)  # of a file of this size
    with Store.open(bomb, readonly=True) as store:
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


@pytest.fixture
def import_(gensor_tune):
    """import_("--binaries") -> (exit code, stdout, stderr) for rows.jsonl."""
    return partial(gensor_tune, "import", "{}/rows.jsonl", "--db", "{}/k.db")


def line(row, **values):
    names = {name: getattr(row, name) for name in row.columns()}
    names |= {"cubin": base64.b64encode(row.cubin).decode()} if isinstance(row, Binary) else {}
    return json.dumps({"table": row.TABLE, "digest": row.digest, **names, **values}).encode() + b"\n"


def test_code_and_numbers_that_are_too_large_are_refused_by_line(import_, tmp_path):
    made, timing = rows(1)[1], line(rows(1)[5])
    large = base64.b64encode(bytes(LARGEST_BLOB + 1)).decode()
    digits, brackets = b"9" * 1_000_000, b"[" * 100_000 + b"]" * 100_000
    lines = [line(made, cubin=large), timing.replace(b"21.0", digits), timing.replace(b"21.0", brackets)]
    (tmp_path / "rows.jsonl").write_bytes(b"".join([*lines, b"[" * 17 * MB + b"\n", line(made)]))
    code, out, err = import_("--binaries")
    said = [text.partition("rows.jsonl:")[2] for text in err.splitlines()]
    assert (code, out) == (1, "1 binary\n") and "Traceback" not in err
    assert said[0].startswith("1:") and "more than 8 MB" in said[0]
    assert said[1].startswith("2:") and "1000000 digits" in said[1]
    assert said[2].startswith("3:") and said[3].startswith("4:") and err.endswith("4 lines were refused\n")


def test_a_line_without_an_end_ends_the_import(import_, tmp_path, monkeypatch):
    """A device, or a file with a hole of a terabyte."""
    monkeypatch.setattr(sys.modules["gensor_tuner.store.jsonl"], "ENDLESS", 2**24)
    with (tmp_path / "rows.jsonl").open("wb") as file:
        file.truncate(2**40)
    code, out, err = import_()
    assert code == 2 and not out and "line 1 has more than 16 MB" in err


def test_importing_holds_a_few_rows_at_a_time(import_, tmp_path, small_batches):
    """A line, its text, its JSON and its cubin in addition to the rows."""
    with (tmp_path / "rows.jsonl").open("wb") as file:
        for number in range(COUNT):
            file.write(line(binary(number)))
    with little_memory():
        import_("--binaries")
