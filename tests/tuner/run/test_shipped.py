"""The kernels of a database that ships: which are taken first, which stay, and how large the file is."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gensor_database.record import Kernel, Record, Verification
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.run import portfolios
from gensor_tuner.run.portfolios import place, ranked, ship

ARCH = lookup("sm_87")


@pytest.fixture
def copy(tuned, tmp_path):
    path = tmp_path / "copy.db"
    shutil.copy(tuned[0], path)
    with Store.open(path) as store:
        yield store


def order(classes, cost, keys):
    """The order for classes of (regrets, columns)."""
    served = portfolios._Served()
    for regret, columns in classes:
        served.add(np.array(regret), np.array(columns))
    return served.order(np.array(cost), keys)


def test_each_kernel_gains_most_for_its_bytes():
    rng = np.random.default_rng(3)
    sizes, cost = 1 + rng.exponential(0.3, (40, 12)), rng.uniform(1, 5, 12)
    regret = sizes / sizes.min(axis=1, keepdims=True)
    found = order([(regret[:25], range(12)), (regret[25:], range(12))], cost, list(map(str, range(12))))

    def mean(chosen):
        best = regret[:, chosen].min(axis=1, initial=portfolios.UNSERVED)
        return best[:25].mean() + best[25:].mean()

    for place_, pick in enumerate(found):
        gains = {other: (mean(found[:place_]) - mean([*found[:place_], other])) / cost[other] for other in range(12)}
        assert gains[pick] == pytest.approx(max(gains.values()))
    assert all(mean(found) - mean([*found, other]) < portfolios.LEAST_GAIN for other in set(range(12)) - set(found))


def test_a_class_has_no_more_than_a_portfolio_holds(monkeypatch):
    assert order([], [], []) == order([([[np.inf]], [0])], [1.0], ["A"]) == []
    monkeypatch.setattr(portfolios, "PORTFOLIO", 2)
    assert len(order([(np.eye(5) * -2 + 3, range(5))], [1.0] * 5, ["A"] * 5)) == 2
    assert len(order([(np.eye(5) * -2 + 3, range(5))], [1.0] * 5, list("AAABB"))) == 4


def test_a_file_within_its_limit_keeps_the_first_and_those_of_records(copy, tuned, tmp_path):
    order = ranked(copy, ARCH)
    recorded = {row.kernel_digest for row in copy.rows(Record)}
    assert len(order) > 4 and all(
        (cost == portfolios.PLACE_BYTES) == (name in recorded) for name, cost in order.items()
    )
    target, sizes = tmp_path / "out.db", {}
    for limit in (2**30, 1):
        ship(copy, ARCH, target, limit=limit)
        sizes[limit] = target.stat().st_size
        with Store.open(target, readonly=True) as made:
            kept = {row.digest for row in made.rows(Kernel)}
            shelves = [made.portfolio("sm_87", ARCH.part, each.class_key()) for each in tuned[1]]
        assert kept == (recorded | set(order) if limit > 1 else recorded)
        names = [[stored.kernel.digest for stored in each] for each in shelves]
        assert names == [[name for name in order if name in each] for each in names]
        assert sum(map(len, names)) == (len(order) if limit > 1 else 0)
    middle = sum(sizes.values()) // 2
    ship(copy, ARCH, target, limit=middle)
    assert target.stat().st_size <= middle
    with Store.open(target, readonly=True) as made:
        left = [name for each in tuned[1] for name in made.portfolio("sm_87", ARCH.part, each.class_key())]
    assert 0 < len(left) < len(order)
    assert {each.kernel.digest for each in left} == set(list(order)[: len(left)])


def test_kernels_with_bank_conflicts_come_behind_others(copy):
    first = next(iter(ranked(copy, ARCH)))
    (row,) = copy.rows(Verification, kernel_digest=first)
    counters = json.loads(row.counters)
    counters["counters"]["bank_conflicts"] = 3
    copy.add(replace(row, counters=json.dumps(counters)))
    order = list(ranked(copy, ARCH))
    assert first not in order[:2]
    place(copy, ARCH, order[:1])
    class_key = copy.get(Kernel, order[0]).class_key
    assert [row.kernel.digest for row in copy.portfolio("sm_87", ARCH.part, class_key)] == order[:1]


def test_drawn_sizes_count_in_classes_that_have_kernels(copy, tuned, monkeypatch):
    monkeypatch.setattr(portfolios, "ROWS_BYTES", 0.0)
    monkeypatch.setattr(portfolios, "PACKED", 0.0)
    asked, other = tuned[1][0], matmul.workload(8, 8, 8)
    before = ranked(copy, ARCH)
    assert ranked(copy, ARCH, [other]) == before
    few = asked.with_sizes(m=1, k=70_000)  # a row of many elements, far from the usual sizes
    with Store.open(copy.path) as store:
        library = portfolios.library_of(store, ARCH)
        seconds = {
            digest: min(portfolios._seconds([kernel], [few], library, ARCH)[0])
            for digest, kernel in library.contents.kernels.items()
            if kernel.serves.class_key() == asked.class_key()
        }
    best = min(seconds, key=seconds.get)
    many = [few.with_sizes(k=k) for k in range(70_000, 71_600, 8)]
    order = [digest for digest in ranked(copy, ARCH, many) if digest in seconds]
    assert order[0] == best
