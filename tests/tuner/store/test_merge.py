"""gensor-tune merge: into a database, and of databases into a new one; what it says of conflicts."""

import dataclasses
import os

import pytest

from gensor_database import Store, StoreWarning, Timing, opening
from tests.doubles.kernels import ARCH, workload
from tests.doubles.store_rows import add_rows, everything
from tests.doubles.stored import kernel_rows, record_of


@pytest.fixture
def merge(gensor_tune, tmp_path):
    """merge("a.db", "-o", "c.db") -> (exit code, stdout, stderr), files in the test's folder."""

    def run(*arguments):
        named = [str(tmp_path / each) if each.endswith((".db", ".jsonl")) else each for each in arguments]
        return gensor_tune("merge", *named)

    return run


@pytest.fixture
def pair(tmp_path):
    """a.db and b.db know one Workload by different kernels, each with a time; the second's is the faster."""
    wanted = workload(64, 64, 64)
    for name, (number, time, created) in {"a.db": (0, 9.0, 200), "b.db": (1, 6.0, 100)}.items():
        rows = kernel_rows(wanted)[number]
        with Store.open(tmp_path / name) as store:
            store.add(*rows, record_of(wanted, rows[2], created))
            store.add(Timing(wanted.key(), ARCH.name, ARCH.part, rows[2].digest, None, time, created=created))
    return wanted, [kernel_rows(wanted)[number][2].digest for number in (0, 1)]


@pytest.mark.parametrize("target", [("-o", "c.db"), ("--db", "c.db")])
def test_conflicts_say_who_won_and_why(merge, pair, target):
    _, (first, second) = pair
    code, _, err = merge("a.db", "b.db", *target, "--json", "conflicts.jsonl")
    (told,) = [line for line in err.splitlines() if "conflict: " in line]
    assert code == 0 and f"a.db says {first[:12]}, b.db says {second[:12]}" in told
    assert "conflict: matmul 64x64x64" in told and f"{second[:12]} counts: the fastest" in told


def test_without_binaries_refresh_is_named_and_a_key_of_another_version_is_merged(merge, pair, tmp_path):
    code, out, err = merge("a.db", "b.db", "-o", "two words.db")
    assert code == 0 and "binary" not in out and "verification" not in out
    assert f"gensor-tune refresh --db '{tmp_path / 'two words.db'}'" in err and "--binaries if you trust" in err
    wanted, _ = pair
    for name, number in (("a.db", 0), ("b.db", 1)):
        record = record_of(wanted, kernel_rows(wanted)[number][2])
        add_rows(tmp_path / name, dataclasses.replace(record, key='{"operator":"\x1b[31mnew"}'))
    code, _, err = merge("a.db", "b.db", "-o", "c.db")
    assert code == 0 and "\x1b" not in err and "new" in err


def test_what_cannot_be_merged_is_one_sentence(merge, pair, tmp_path):
    (tmp_path / "text.db").write_text("a diary, long enough for a header of a database to be read from it\n" * 9)
    for arguments, words in (
        (("a.db", "absent.db", "-o", "c.db"), "cannot merge: "),
        (("a.db", "text.db", "-o", "c.db"), "not a database"),
        (("a.db", "-o", "c.db", "--db", "d.db"), "name one of them"),
        (("a.db", "-o", "text.db"), "not a database"),
        (("a.db", "-o", "a.db/c.db"), "c.db"),
    ):
        code, out, err = merge(*arguments)
        assert code == 2 and words in err and not out and "Traceback" not in err, err
    assert not (tmp_path / "c.db").exists()


def test_a_folder_whose_lock_is_held_for_good_is_told_and_merged_into(merge, pair, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(opening, "_stalled", set())  # the folder would stay in it
    monkeypatch.setattr(opening, "PATIENT", 0.1)
    monkeypatch.setattr(opening, "QUEUE", 1.0)
    monkeypatch.setattr(Store.open.__func__, "__kwdefaults__", {**Store.open.__func__.__kwdefaults__, "timeout": 0.2})
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.warns(StoreWarning, match=f"has held a lock on {tmp_path}") as told:
        code, _, _ = merge("a.db", "b.db", "--db", "c.db", "--binaries")
    os.close(descriptor)
    # Others warn of objects that happen to be collected meanwhile.
    assert code == 0 and len([each for each in told if issubclass(each.category, StoreWarning)]) == 1
    assert everything(tmp_path / "c.db") == everything(tmp_path / "a.db") | everything(tmp_path / "b.db")
