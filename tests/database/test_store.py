"""The store in daily use: add, find, portfolios, timings, merge, export."""

import dataclasses
import sqlite3

import pytest

from gensor_database import (
    Binary,
    Kernel,
    Portfolio,
    Record,
    Source,
    Store,
    StoreError,
    Timing,
    UnreadableStoreError,
    Verification,
    export,
    merge,
    record,
    winner,
)
from gensor_database.record import TABLES
from tests.doubles.store_rows import ABI, ARCH, PART, SOURCE, class_key, kernel_rows, key, rows
from tests.threads import in_threads


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "folder" / "kernels.db") as opened:
        yield opened


def test_what_was_added_is_found_with_kernel_binary_and_source(store):
    assert store.add(*rows(1), *rows(2)) == 13  # the source is shared
    entry = store.find(key(1), ARCH, PART)
    binary, kernel, _ = kernel_rows(1)
    assert entry.kernel == kernel and entry.binary() == binary and entry.stored.source() == SOURCE
    assert entry.verified == "emulator" and entry.usable and entry.record.predicted_us == 12.5
    assert store.find(key(3), ARCH, PART) is None
    assert store.find(key(1), "sm_80", PART) is None


def test_adding_twice_changes_nothing(store):
    store.add(*rows(1))
    before = store.counts()
    assert store.add(*rows(1)) == 0 and store.counts() == before


def test_another_part_answers_only_when_any_will_do(store):
    store.add(*rows(1))
    assert store.find(key(1), ARCH, "agx-orin") is None
    assert store.find(key(1), ARCH).record.part == PART


def test_another_abi_of_the_family_never_answers(store):
    store.add(*rows(1))
    assert store.find(key(1), ARCH, PART, {"contraction_mma": ABI}) is not None
    assert store.find(key(1), ARCH, PART, {"contraction_mma": ABI + 1}) is None
    assert store.find(key(1), ARCH, PART, {}) is None


def test_the_newest_successful_record_counts(store):
    *_, record, _, _ = rows(1, created=100)
    newer = dataclasses.replace(rows(2)[4], key=key(1), created=200)
    failed = Record(key(1), ARCH, PART, 0, None, None, 1.0, "timeout", "too slow", created=300)
    store.add(*rows(1, created=100), *rows(2)[:4], newer, failed)
    assert store.find(key(1), ARCH, PART).record == newer
    assert store.records(key(1), ARCH, PART) == [failed, newer, record]


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([], "none"),
        ([("emulator", "ok")], "emulator"),
        ([("emulator", "ok"), ("device", "ok")], "device"),
        ([("emulator", "ok"), ("device", "wrong")], "rejected"),
        ([("emulator", "failed")], "rejected"),
        ([("emulator", "ok"), ("device", "timeout")], "emulator"),
        ([("emulator", "timeout")], "none"),
    ],
)
def test_the_verdict_of_all_verifications(store, outcomes, verdict):
    digest = kernel_rows(1)[1].digest
    found = [Verification(digest, method, outcome) for method, outcome in outcomes]
    store.add(*[row for row in rows(1) if not isinstance(row, Verification)], *found)
    entry = store.find(key(1), ARCH, PART)
    assert entry.verified == verdict and entry.usable == (verdict in ("emulator", "device"))


def test_kernels_of_a_class(store):
    store.add(*rows(1), *rows(2))
    found = store.kernels_for_class(class_key(), ARCH)
    assert {stored.kernel for stored in found} == {kernel_rows(1)[1], kernel_rows(2)[1]}
    assert store.kernels_for_class(class_key(1), ARCH) == []


def test_a_portfolio_is_replaced_as_a_whole(store):
    digests = [kernel_rows(number)[1].digest for number in range(4)]
    for number in range(4):
        store.add(*rows(number))
    store.replace_portfolio(ARCH, PART, class_key(), digests[:3])
    store.replace_portfolio(ARCH, PART, class_key(1), digests[3:])
    store.replace_portfolio(ARCH, PART, class_key(), [digests[2], digests[0]])
    found = store.portfolio(ARCH, PART, class_key())
    assert [stored.kernel.digest for stored in found] == [digests[2], digests[0]]
    assert len(store.portfolio(ARCH, PART, class_key(1))) == 1


def test_all_timings_are_kept_and_the_winner_follows(store):
    store.add(*rows(1), *rows(1, created=1_700_000_001), *rows(2))
    found = store.timings(key(1), PART)
    assert len(found) == 4 and [row.created for row in found] == sorted(row.created for row in found)
    best = winner(found)
    assert best.kernel_digest == kernel_rows(1)[1].digest and best.speedup == 26 / 21


def test_rows_are_filtered_by_column_and_unknown_columns_are_an_error(store):
    store.add(*rows(1), *rows(2))
    assert [row.digest for row in store.rows(Record, key=key(2))] == [rows(2)[4].digest]
    assert len(list(store.rows(Timing, vendor=None))) == 2
    with pytest.raises(ValueError, match="no column"):
        next(store.rows(Record, **{'key" OR 1 --': ""}))


def test_a_transaction_is_whole_or_absent(store):
    broken = rows(1)[4]
    object.__setattr__(broken, "error", object())  # SQLite cannot store it
    broken.__dict__["digest"] = "0" * 64
    with pytest.raises((StoreError, sqlite3.Error)):
        store.add(*rows(2), broken)
    assert sum(store.counts().values()) == 0 and store.add(*rows(2)) == 7


def test_a_full_disk_is_an_error_and_loses_nothing(store):
    store.add(*rows(1))
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count={pages}")  # SQLite's own way to say that a disk is full
    big = Source.of("".join(map(str, range(100_000))))
    with pytest.raises(UnreadableStoreError, match="full"):
        store.add(*rows(2), big)
    assert store.find(key(1), ARCH, PART).usable and store.find(key(2), ARCH) is None
    store.connection.execute("PRAGMA max_page_count=1073741823")
    assert store.add(*rows(2), big) == 7


def test_merge_is_a_union_by_digest(store, tmp_path):
    store.add(*rows(1), *rows(2))
    store.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(1)[1].digest])
    with Store.open(tmp_path / "other.db") as other:
        other.add(*rows(2), *rows(3))
        other.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(n)[1].digest for n in (3, 1, 2)])
        assert merge(store, other)["record"] == 1
        assert sum(merge(store, other).values()) == 0
    assert store.counts() == {
        "source": 1, "binary": 3, "kernel": 3, "verification": 3, "record": 3, "timing": 6, "portfolio": 3
    }  # fmt: skip
    merged = [stored.kernel.digest for stored in store.portfolio(ARCH, PART, class_key())]
    first, last = {kernel_rows(n)[1].digest for n in (1, 3)}, kernel_rows(2)[1].digest
    assert set(merged[:2]) == first and merged[2:] == [last]  # both were the first choice of a store


def test_merging_an_untrusted_database_takes_no_code_and_no_verdicts(store, tmp_path):
    with Store.open(tmp_path / "other.db") as other:
        other.add(*rows(1))
    (tmp_path / "other.db").chmod(0o666)
    with Store.open(tmp_path / "other.db", readonly=True) as other:
        assert not other.trusted
        merge(store, other)
        entry = store.find(key(1), ARCH, PART)
        assert entry.verified == "none" and entry.binary() is None and store.counts()["timing"] == 2
        assert merge(store, other, binaries=True) == {
            **{kind.TABLE: 0 for kind in TABLES}, "binary": 1, "verification": 1
        }  # fmt: skip


def test_export_takes_what_serves_one_arch(store, tmp_path):
    old, new = rows(1, created=100), rows(1, created=200)
    other_arch = [dataclasses.replace(row, arch="sm_80") for row in rows(2) if isinstance(row, Kernel | Record)]
    failed = Record(key(5), ARCH, PART, 0, None, None, 1.0, "failed", created=1)
    store.add(*old, *new, *other_arch, failed, kernel_rows(7)[1])
    target = tmp_path / "out" / "sm_87.db"
    export(store, target, ARCH)
    assert [path.name for path in target.parent.iterdir()] == ["sm_87.db"]
    assert target.read_bytes()[18:20] == b"\x01\x01"  # rollback journal
    with Store.open(target, readonly=True, immutable=True) as shipped:
        assert [row.created for row in shipped.rows(Record)] == [200]
        assert list(shipped.rows(Kernel)) == [kernel_rows(1)[1]]
        assert len(list(shipped.rows(Timing))) == 4 and len(list(shipped.rows(Verification))) == 1
        assert shipped.find(key(1), ARCH, PART).binary() == kernel_rows(1)[0]
        assert shipped.get(Source, SOURCE.digest) == SOURCE
        with pytest.raises(UnreadableStoreError, match="reading only"):
            shipped.add(*rows(2))


def test_cubins_and_sources_are_stored_once(store):
    text = Source.of("x" * 100_000)
    big = Binary(text.digest, "{}", ARCH, b"\x7fELF" + bytes(200_000), 1, 0, 0, 0, "{}", "nvrtc")
    kernels = [dataclasses.replace(kernel_rows(n)[1], binary_digest=big.digest) for n in range(20)]
    store.add(text, big, *kernels, text, big)
    assert store.counts()["binary"] == store.counts()["source"] == 1
    store.close()
    assert store.path.stat().st_size < 150_000


def test_threads_share_one_store(store):
    errors = []

    def work(start):
        try:
            for number in range(start, start + 15):
                store.add(*rows(number))
                assert store.find(key(number), ARCH, PART) is not None
        except Exception as error:
            errors.append(error)

    in_threads(work, (15 * index for index in range(4)))
    assert errors == [] and store.counts()["record"] == 60


def test_a_file_that_was_replaced_is_opened_again(store):
    store.add(*rows(1))
    store.path.unlink()
    assert store.add(*rows(2)) == 7
    assert store.path.exists() and store.find(key(1), ARCH) is None and store.find(key(2), ARCH) is not None


def test_portfolio_rows_are_rows_too(store):
    store.replace_portfolio(ARCH, PART, class_key(), ["a" * 64, "b" * 64])
    assert sorted(row.rank for row in store.rows(Portfolio)) == [0, 1]
    assert store.portfolio(ARCH, PART, class_key()) == []  # kernels that are not there are left out


def test_the_home_of_an_unknown_user_is_a_sentence():
    with pytest.raises(StoreError, match="home directory"):
        Store.open("~nobody-here/kernels.db")


def test_rows_that_were_read_are_not_compressed_again(store, tmp_path, monkeypatch):
    store.add(*rows(1), *rows(2))
    monkeypatch.setattr(record, "compressed", None)
    with Store.open(tmp_path / "other.db") as other:
        assert merge(other, store, True).total() == 13
        for kind in TABLES:
            assert list(other.rows(kind)) == list(store.rows(kind))
    with pytest.raises(TypeError):
        store.add(*rows(3))


def test_compressed_data_with_something_behind_it_are_damaged():
    digest, *values = SOURCE.to_sql()
    assert Source.from_sql((digest, *values)) == SOURCE
    assert Source.from_sql((digest, values[0] + b"x")) is None
