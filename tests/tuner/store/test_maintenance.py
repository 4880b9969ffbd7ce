"""gensor-tune where, prune and clean, and what prune may delete."""

import dataclasses
import json
import os
import sqlite3
import time
from unittest.mock import Mock

import pytest

from gensor_database import Catalog, Kernel, Record, Store, StoreError, Timing, Verification, prune, pruning
from tests.doubles.store_rows import ABI, ARCH, PART, everything, kernel_rows, key, portfolio, rows

ABIS = {"contraction_mma": ABI}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "kernels.db") as opened:
        yield opened


def record(number, of, created, outcome="ok", abi=ABI):
    kernel = kernel_rows(of)[1].digest if of is not None else None
    return Record(key(number), ARCH, PART, abi, kernel, 1.0, 1.0, outcome, created=created)


def untimed(number):
    """The rows of one tuned Workload, without timings."""
    return rows(number)[:5]


def test_superseded_records_go_and_answers_stay(store):
    """Kernel 1 was replaced by 2; the newest record failed; kernel 3 is in a portfolio only, 4 is timed only."""
    store.add(*untimed(2), *untimed(3)[:4], *rows(4)[:4], rows(4)[5], *untimed(1)[:4])
    store.add(record(2, 1, created=100), record(2, None, created=1_800_000_000, outcome="timeout", abi=0))
    store.replace_portfolio(*dataclasses.astuple(portfolio([3])[0])[:3], [kernel_rows(3)[1].digest])
    before, found = everything(store), store.find(key(2), ARCH, PART)
    pruned = prune(store)
    assert dict(pruned.rows) == {"record": 1, "kernel": 1, "verification": 1, "binary": 1}
    gone = before.keys() - everything(store).keys()
    assert gone == {record(2, 1, created=100).digest, *(row.digest for row in kernel_rows(1))}
    assert store.find(key(2), ARCH, PART).record == found.record
    assert not prune(store).rows


def test_what_answers_is_never_pruned_for_a_newer_record_that_does_not(store):
    """The newest record names a kernel that a device refuted, the one before one that was never verified."""
    store.add(*untimed(1), *kernel_rows(2)[:2], *kernel_rows(3)[:2], rows(3)[0])
    store.add(record(1, 2, created=1_800_000_000), record(1, 3, created=1_900_000_000))
    refuted = Verification(kernel_rows(3)[1].digest, "device", "wrong", "nine")
    store.add(refuted)
    answer = Catalog([store], ARCH, ABIS).find(key(1), PART)
    assert answer.record == rows(1)[4]
    assert prune(store).rows["record"] == 1
    assert Catalog([store], ARCH, ABIS).find(key(1), PART).record == answer.record
    store.add(record(1, 1, created=2_000_000_000))  # now 3 is of no use, but that it was refuted is
    prune(store)
    assert store.get(Verification, refuted.digest) == refuted
    assert not list(store.rows(Kernel, digest=kernel_rows(3)[1].digest))


def test_no_timing_nor_what_it_is_of_is_ever_deleted(store):
    old = dataclasses.replace(kernel_rows(7)[1], abi=0)
    timing = Timing(key(7), ARCH, PART, old.digest, None, 5.0)
    store.add(*rows(1), old, timing, record(7, 7, created=5, abi=0))
    kept = [row for row in everything(store).values() if isinstance(row, Timing)]
    prune(store, abis={})
    assert list(store.rows(Timing)) == sorted(kept, key=lambda row: row.digest) and len(kept) == 3
    assert store.get(Kernel, old.digest) == old and store.get(Kernel, kernel_rows(1)[1].digest)
    assert not list(store.rows(Record, kernel_digest=kernel_rows(1)[1].digest))


def test_a_verdict_about_a_kernel_of_another_database_stays(store):
    shipped = Verification("ab" * 32, "device", "wrong")
    store.add(shipped, Verification("cd" * 32, "device", "ok"))
    assert not prune(store).rows and store.get(Verification, shipped.digest) == shipped


def test_other_versions_go_on_request_only(store):
    store.add(*untimed(1), *untimed(2))
    store.replace_portfolio(*dataclasses.astuple(portfolio([2])[0])[:3], [kernel_rows(2)[1].digest])
    assert not prune(store).rows and not prune(store, ABIS).rows
    pruned = prune(store, {"contraction_mma": ABI + 1})
    assert pruned.rows == dict(record=2, kernel=2, verification=2, binary=2, portfolio=1, source=1)
    assert not sum(store.counts().values())


def test_a_dry_run_counts_what_a_run_deletes(store):
    store.add(*untimed(1))
    store.add(*(row for number in range(10, 60) for row in kernel_rows(number, os.urandom(4000))))
    before = everything(store)
    told = prune(store, dry_run=True)
    assert everything(store).keys() == before.keys() and told.rows["kernel"] == 50 and told.bytes > 200_000
    done = prune(store)
    assert done.rows == told.rows and done.bytes > 200_000 and done.kept_size is None


def test_where_reading_ends_early_nothing_is_deleted(store, monkeypatch):
    """References that were not seen would make kernels look unused."""
    store.add(*rows(1), *rows(2))
    before = everything(store)

    def damaged(connection, kind, where, select=pruning.select):
        yield from list(select(connection, kind, where))[:1]
        if kind is Record:
            raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(pruning, "select", damaged)
    with pytest.raises(StoreError, match="malformed"):
        prune(store)
    assert everything(store) == before


def test_prune_says_what_it_did(gensor_tune, store):
    store.add(*untimed(1), *kernel_rows(2))
    for option, words in (("--dry-run", "would delete "), ("--other-abi", "deleted "), ("--other-abi", "deleted no ")):
        code, out, err = gensor_tune("prune", "--db", "{}/kernels.db", option)
        assert code == 0 and words in out and not err
        assert "no rows" in words or "no " in words or "1 binary, 1 kernel, 1 verification" in out
    assert store.find(key(1), ARCH, PART) is not None


def test_prune_of_a_database_in_use_deletes_and_says_that_the_file_stays_large(gensor_tune, store, monkeypatch):
    monkeypatch.setattr(Store.open.__func__, "__kwdefaults__", {**Store.open.__func__.__kwdefaults__, "timeout": 0.2})
    store.add(*untimed(1), *kernel_rows(2))
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM kernel").fetchone()
    code, out, err = gensor_tune("prune", "--db", "{}/kernels.db")
    assert code == 0 and "1 kernel" in out and "0 bytes smaller" in out and store.counts()["kernel"] == 1
    assert "could not be made smaller now" in err and "is being read by another process" in err
    reader.execute("COMMIT")
    writer = sqlite3.connect(store.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    code, out, err = gensor_tune("prune", "--db", "{}/kernels.db")
    assert code == 2 and not out and "is locked by another process" in err
    writer.execute("ROLLBACK")
    reader.close()
    writer.close()


def layers(out):
    return {found["layer"]: found for found in map(json.loads, out.splitlines())}


def test_where_names_every_database_and_what_is_in_it(gensor_tune, store, monkeypatch):
    store.add(*rows(1))
    monkeypatch.setenv("GENSOR_DB", str(store.path))
    code, out, err = gensor_tune("where", "--arch", "orin-nano-8gb", "--json")
    user, site, packaged = (layers(out)[name] for name in ("user", "site", "packaged"))
    assert (code, err) == (0, "") and user["path"] == str(store.path) and user["named_by"] == "GENSOR_DB"
    assert user["rows"]["timing"] == 2 and user["journal"] == "wal" and user["cubins"] and user["bytes"] > 4096
    assert site["state"] == "unset" and packaged["path"].endswith("sm_87.db")
    code, out, _ = gensor_tune("where")
    order = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert code == 0 and order[:2] == ["user", "site"] and order[-1] == "cache" and "2 timing" in out


def test_where_says_why_a_database_or_the_cache_folder_is_not_used(gensor_tune, store, monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "absent.db"))
    monkeypatch.setenv("GENSOR_SITE_DB", str(tmp_path / "absent-site.db"))
    code, out, _ = gensor_tune("where", "--json")
    user, site = layers(out)["user"], layers(out)["site"]
    assert code == 1 and user["state"] == "absent" and user["reason"]
    assert site["state"] == "ignored" and "does not exist" in site["reason"]
    (tmp_path / "text.db").write_text("a diary, long enough for a header of a database to be read from it\n" * 9)
    store.connection.execute("PRAGMA user_version=99")
    for path, words in ((tmp_path / "text.db", "not a database"), (store.path, "newer gensor-kernels")):
        monkeypatch.setenv("GENSOR_SITE_DB", str(path))
        code, out, _ = gensor_tune("where")
        assert code == 1 and "ignored: " in out and words in out
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.delenv("GENSOR_DB")
    code, out, err = gensor_tune("where")
    assert code == 1 and not err and "cache     unusable: the cache folder cannot be used" in out


def test_where_says_whose_cubins_are_not_loaded(gensor_tune, store, monkeypatch):
    os.chmod(store.path, 0o664)
    monkeypatch.setenv("GENSOR_SITE_DB", str(store.path))
    code, out, _ = gensor_tune("where")
    assert code == 0 and "cubins are not loaded: " in out


def test_clean_deletes_what_was_built_and_nothing_else(gensor_tune, monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(cache))
    kept = {"kernels.db", "emulator/notes.txt", "emulator/.building-now", "verdicts/sub/a.json", "other/x.so", "x.so"}
    built = {"emulator/a.so", "emulator/b.o", "emulator/.building-old", "verdicts/a.json"}
    for name in kept | built:
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(bytes(1000))
    os.chmod(cache, 0o700)
    os.utime(cache / "emulator/.building-old", (time.time() - 9000,) * 2)
    (cache / "emulator/link.so").symlink_to(cache / "x.so")

    def present():
        return {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and not path.is_symlink()}

    code, out, _ = gensor_tune("clean", "--dry-run")
    assert code == 0 and present() == kept | built
    assert "emulator: would delete 3 files, 3.0 kB\n" in out and "verdicts: would delete 1 file, 1.0 kB\n" in out
    code, out, _ = gensor_tune("clean")
    assert code == 0 and present() == kept and "deleted 3 files" in out and "kernels.db: kept" in out
    assert "deleted 0 files, 0 bytes" in gensor_tune("clean")[1]


def test_clean_says_what_it_cannot_delete(gensor_tune, monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "verdicts").mkdir()
    (tmp_path / "verdicts" / "a.json").touch()
    monkeypatch.setattr("pathlib.Path.unlink", Mock(side_effect=PermissionError(13, "Permission denied")))
    code, out, err = gensor_tune("clean")
    assert code == 1 and "a.json: Permission denied" in err and "deleted 0 files" in out
