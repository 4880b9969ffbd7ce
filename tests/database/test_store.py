"""The store in daily use: add, find, portfolios, timings and their winner, merge, export."""

import dataclasses
import random

import pytest

from gensor_database import TIE_BAND, Kernel, Record, Source, Store, Timing, Verification, export, merge, quiet, winner
from gensor_database.errors import StoreError, UnreadableStoreError
from gensor_database.record import TABLES
from tests.doubles.store_rows import ABI, ARCH, PART, SOURCE, class_key, kernel_rows, key, rows


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
    assert store.find(key(3), ARCH, PART) is None is store.find(key(1), "sm_80", PART)
    for abis in ({"contraction_mma": ABI}, {"contraction_mma": ABI + 1}, {}):  # another ABI never answers
        assert (store.find(key(1), ARCH, PART, abis) is not None) == (abis.get("contraction_mma") == ABI)


def test_the_newest_successful_record_counts(store):
    *_, record, _, _ = rows(1, created=100)
    newer = dataclasses.replace(rows(2)[4], key=key(1), created=200)
    failed = Record(key(1), ARCH, PART, 0, None, None, 1.0, "timeout", "too slow", created=300)
    store.add(*rows(1, created=100), *rows(2)[:4], newer, failed)
    assert store.find(key(1), ARCH, PART).record == newer
    assert store.records(key(1), ARCH, PART) == [failed, newer, record]


VERDICTS = (
    ([], "none"),
    ([("emulator", "ok")], "emulator"),
    ([("emulator", "ok"), ("device", "ok")], "device"),
    ([("emulator", "ok"), ("device", "wrong")], "rejected"),
    ([("emulator", "failed")], "rejected"),
    ([("emulator", "ok"), ("device", "timeout")], "emulator"),
    ([("emulator", "timeout")], "none"),
)


def test_the_verdict_of_all_verifications(store):
    for number, (outcomes, verdict) in enumerate(VERDICTS):
        digest = kernel_rows(number)[1].digest
        found = [Verification(digest, method, outcome) for method, outcome in outcomes]
        store.add(*[row for row in rows(number) if not isinstance(row, Verification)], *found)
        entry = store.find(key(number), ARCH, PART)
        assert entry.verified == verdict and entry.usable == (verdict in ("emulator", "device"))


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


def test_merge_is_a_union_by_digest(store, tmp_path):
    store.add(*rows(1), *rows(2))
    store.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(1)[1].digest])
    with Store.open(tmp_path / "other.db") as other:
        other.add(*rows(2), *rows(3))
        other.replace_portfolio(ARCH, PART, class_key(), [kernel_rows(n)[1].digest for n in (3, 1, 2)])
        assert merge(store, other)["record"] == 1
        assert sum(merge(store, other).values()) == 0
    threes = dict.fromkeys(("binary", "kernel", "verification", "record", "portfolio"), 3)
    assert store.counts() == threes | {"source": 1, "timing": 6}
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
        added = merge(store, other, binaries=True)
        assert {name: count for name, count in added.items() if count} == {"binary": 1, "verification": 1}


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


def test_a_file_that_was_replaced_is_opened_again(store):
    store.add(*rows(1))
    store.path.unlink()
    assert store.add(*rows(2)) == 7
    assert store.path.exists() and store.find(key(1), ARCH) is None and store.find(key(2), ARCH) is not None


def test_the_home_of_an_unknown_user_is_a_sentence():
    with pytest.raises(StoreError, match="home directory"):
        Store.open("~nobody-here/kernels.db")


def test_rows_that_were_read_are_not_compressed_again(store, tmp_path, monkeypatch):
    store.add(*rows(1), *rows(2))
    monkeypatch.setattr("gensor_database.record.compressed", None)
    with Store.open(tmp_path / "other.db") as other:
        assert merge(other, store, True).total() == 13
        for kind in TABLES:
            assert list(other.rows(kind)) == list(store.rows(kind))
    with pytest.raises(TypeError):
        store.add(*rows(3))


def timings(**median_us):
    return [
        Timing(key(1), ARCH, PART, None if name == "vendor" else name, "v" if name == "vendor" else None, time)
        for name, time in median_us.items()
    ]


def test_ties_go_to_the_vendor_then_to_the_smaller_digest():
    assert winner([]) is None
    assert winner(timings(b=10.0, a=10.1, vendor=10.15)).kernel_digest is None
    assert winner(timings(b=10.0, a=10.1, vendor=10.3)).kernel_digest == "a"
    assert winner(timings(b=10.0, a=10.3)).kernel_digest == "b"
    assert winner([*timings(a=10.0), *timings(a=30.0), *timings(a=11.0), *timings(b=12.0)]).median_us == 11.0
    assert winner(timings(vendor=5.0, a=4.0), band=0.5).kernel_digest is None


def test_times_taken_beside_a_program_decide_nothing():
    busy = [dataclasses.replace(row, samples='{"background":true,"rounds":15}') for row in timings(a=5.0, vendor=50.0)]
    assert winner(busy) is None and quiet(busy) == []
    assert winner([*busy, *timings(a=20.0, vendor=10.0)]).kernel_digest is None
    texts = ('{"background"', '["background"]', "[" * 9999)
    strange = [dataclasses.replace(timings(a=1.0)[0], samples=text) for text in texts]
    assert quiet(strange) == strange and quiet(timings(a=1.0)) == timings(a=1.0)


def test_the_host_decides_where_its_times_are_known_of_both():
    """6 us of the device after 20 us of the host are felt as 20; stored medians are the device's."""

    def with_host(us, **median_us):
        return [dataclasses.replace(row, samples=f'{{"host_us":{us}}}') for row in timings(**median_us)]

    vendor, slow = with_host(8.0, vendor=8.0), with_host(20.0, a=6.0)
    found = winner([*vendor, *slow])
    assert (found.kernel_digest, found.median_us, found.vendor_us) == (None, 8.0, 8.0)
    assert winner([*vendor, *with_host(3.0, a=6.0)]).median_us == 6.0
    assert winner([*timings(vendor=8.0), *slow]).kernel_digest == "a" == winner(slow).kernel_digest
    assert winner([*vendor, *slow, *timings(b=5.0)]).kernel_digest is None  # the host launches it as slowly
    for us in ('"many"', "NaN", "1e999", "-5"):
        assert winner([*vendor, *with_host(us, a=6.0)]).kernel_digest == "a"


def test_neither_noise_within_the_tie_band_nor_the_order_of_rows_moves_the_winner():
    """Kernels as fast as each other: whichever measured fastest, the winner is the same."""
    generator, noise, winners = random.Random(0), 0.004, set()
    for _ in range(200):
        noisy = timings(**{name: 100.0 * (1 + generator.uniform(-noise, noise)) for name in "abcd"})
        generator.shuffle(noisy)
        winners.add(winner(noisy).kernel_digest)
    assert winners == {"a"} and 2 * noise < TIE_BAND
