"""Merging as a union: commutative, associative, idempotent, lossless; conflicts named with what counts and why."""

import os
import tempfile
from collections import Counter
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gensor_database import Portfolio, Record, Store, Timing, Verification, conflicts, merge, union
from tests.doubles.store_rows import ABI, ARCH, PART, class_key, everything, kernel_rows, key, rows

NUMBERS = st.integers(0, 5)
SEEN: Counter[str] = Counter()
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None  # hundreds of commits wait for a disk elsewhere


@st.composite
def contents(draw):
    """Rows as several people's databases have them: shared kernels, differing choices, times, verdicts and ranks."""
    found = []
    for number in draw(st.lists(NUMBERS, max_size=4)):
        found += rows(number, created=1_700_000_000 + draw(st.integers(0, 2)))
    for number, of, created in draw(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(1, 4)), max_size=3)):
        found += [*kernel_rows(of)[:2], record(number, of, created)]
    for number, time in draw(st.lists(st.tuples(NUMBERS, st.floats(1, 50)), max_size=4)):
        found.append(Timing(key(number), ARCH, PART, kernel_rows(number)[1].digest, None, time, created=7))
    for number in draw(st.lists(NUMBERS, max_size=1)):
        found.append(Verification(kernel_rows(number)[1].digest, "device", "wrong"))
    ranked = draw(st.lists(NUMBERS, max_size=4, unique=True))
    return found, [kernel_rows(number)[1].digest for number in ranked]


def record(number, of, created=5):
    return Record(key(number), ARCH, PART, ABI, kernel_rows(of)[1].digest, 1.0, 1.0, "ok", created=created)


def filled(path, content):
    found, ranked = content
    with Store.open(path) as store:
        store.add(*found)
        store.replace_portfolio(ARCH, PART, class_key(), ranked)
    return path


def united(target, *paths, binaries=True):
    """The union at `target`, each of its rows."""
    with ExitStack() as opened:
        stores = [opened.enter_context(Store.open(path, readonly=True)) for path in paths]
        union(stores, target, binaries)
        SEEN.update("conflict" for _ in conflicts(stores))
    return everything(target)


def without(found, *kinds):
    return {digest: row for digest, row in found.items() if not isinstance(row, kinds)}


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(contents(), contents(), contents(), st.booleans())
def laws(first, second, third, binaries):
    with tempfile.TemporaryDirectory(dir=FAST) as name:
        folder = Path(name)
        a, b, c = (filled(folder / f"{n}.db", each) for n, each in zip("abc", (first, second, third), strict=True))
        ab, ba = (united(folder / f"{n}.db", *of, binaries=binaries) for n, of in (("ab", (a, b)), ("ba", (b, a))))
        assert ab == ba and (folder / "ab.db").read_bytes() == (folder / "ba.db").read_bytes()
        united(folder / "bc.db", b, c, binaries=binaries)
        left = united(folder / "ab_c.db", folder / "ab.db", c, binaries=binaries)
        assert left == united(folder / "a_bc.db", a, folder / "bc.db", binaries=binaries)
        assert left == united(folder / "all.db", c, a, b, binaries=binaries)
        assert united(folder / "aa.db", a, a, binaries=binaries) == united(folder / "a_.db", a, binaries=binaries)
        assert left == united(folder / "again.db", folder / "all.db", b, binaries=binaries)
        parts = [everything(path) for path in (a, b, c)]
        lost = {digest for part in parts for digest, row in part.items() if isinstance(row, Timing)} - left.keys()
        assert not lost
        if binaries:
            assert without(left, Portfolio) == {d: r for part in parts for d, r in without(part, Portfolio).items()}
        SEEN["timing"] += sum(isinstance(row, Timing) for row in left.values())
        SEEN["portfolio"] += sum(isinstance(row, Portfolio) for row in left.values())


def test_a_merge_is_commutative_associative_and_idempotent_and_loses_no_timing():
    SEEN.clear()
    laws()
    assert SEEN["conflict"] > 30 and SEEN["timing"] > 120 and SEEN["portfolio"] > 30


def test_adding_to_a_database_gives_the_rows_of_the_union(tmp_path):
    """The order in which a file is merged into does not matter either, ranks of portfolios included."""
    kernels = [kernel_rows(number)[1].digest for number in range(5)]
    choices = [
        ([*rows(0), *rows(1)], kernels[:3]),
        ([*rows(1), *rows(2)], kernels[3:] + kernels[:1]),
        ([], kernels[4:]),
    ]
    paths = [filled(tmp_path / f"{n}.db", each) for n, each in enumerate(choices)]
    expected = united(tmp_path / "union.db", *paths)
    for number, order in enumerate(permutations(paths)):
        with Store.open(tmp_path / f"into{number}.db") as store:
            for path in order:
                with Store.open(path, readonly=True) as other:
                    merge(store, other, binaries=True)
        assert everything(tmp_path / f"into{number}.db") == expected


@pytest.fixture
def pair(tmp_path):
    """(a, b): both know Workload 0, a by kernel 0 and b by kernel 1."""
    newer = [*kernel_rows(1), record(0, 1, created=1_900_000_000)]
    paths = filled(tmp_path / "a.db", (rows(0), [])), filled(tmp_path / "b.db", (newer, []))
    with Store.open(paths[0]) as a, Store.open(paths[1]) as b:
        yield a, b


def test_the_newest_record_wins_where_nothing_was_timed_and_timings_decide_before_age(pair):
    for order in (pair, pair[::-1]):
        (found,) = conflicts(order)
        assert (found.subject, found.arch, found.part) == (key(0), ARCH, PART)
        assert found.winner == kernel_rows(1)[1].digest and "newest" in found.reason
        assert {Path(path).name for path, _ in found.choices} == {"a.db", "b.db"}
    pair[1].add(Timing(key(0), ARCH, PART, kernel_rows(1)[1].digest, None, 90.0))
    (found,) = conflicts(pair[::-1])
    assert found.winner == kernel_rows(0)[1].digest and "20 µs on this part" in found.reason


def test_records_of_one_second_are_decided_by_their_digests(pair):
    second, first = (record(0, of, created=2_000_000_000) for of in (1, 0))
    pair[0].add(first)
    pair[1].add(second)
    (found,) = conflicts(pair)
    assert found.winner == min((first, second), key=lambda row: row.digest).kernel_digest and "smaller" in found.reason


def test_a_verdict_that_rejects_wins_and_is_named(pair):
    a, b = pair
    digest = kernel_rows(0)[1].digest
    b.add(Verification(digest, "device", "wrong", "nine"))
    found = next(each for each in conflicts([a, b]) if each.part is None)
    assert (found.subject, found.winner, found.arch) == (digest, "rejected", ARCH) and len(found.choices) == 2
    assert not any(each.part is None for each in conflicts([a, b], binaries=False))
