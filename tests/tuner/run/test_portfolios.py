"""Portfolios: which kernels they avoid."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gensor_database.record import Kernel, Portfolio, Record, Verification
from gensor_database.store import Store
from gensor_kernels.dispatch.selection import load
from gensor_kernels.dispatch.selection.library import Contents, Library
from gensor_kernels.dispatch.selection.predict import predict_divided
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import matmul
from gensor_tuner.cli import tuning
from gensor_tuner.run import portfolios
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.drawn import DRAW, MENDING, attentions, find_missed, floats8, mending, products, rows
from gensor_tuner.run.portfolios import PORTFOLIO, Offer, offer, place, ranked, ship
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.strategies.request import Request, search
from gensor_tuner.tasks.local import Local
from tests.doubles.stored import rows as stored

ARCH = lookup("sm_87")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Return the path of a database with two classes of reductions for any size, and their workloads."""
    folder = tmp_path_factory.mktemp("portfolios")
    file = folder / "s.csv"
    file.write_text("op,dtype,shape,axes,any_size\nreduce_sum,fp32,3x40,1,1\nreduce_max,fp16,3x40,1,1\n")
    with Store.open(folder / "kernels.db") as store:
        results = [result for _, result in Run(ARCH, store, Options(top=6)).rows(read_shapes(file))]
    return folder / "kernels.db", [result.workload for result in results]


def test_kernels_with_bank_conflicts_serve_only_where_others_take_longer():
    seconds = np.array([[1.0, 1.09, 9.0], [1.0, 1.05, 9.0]])
    names, clean = ["a", "b", "c"], np.array([False, True, True])
    assert Offer(names, names, seconds, clean).best() == ["b"]
    assert Offer(names, names, seconds, ~clean).best() == ["a"]  # a's conflicts are the others'
    assert Offer(names, names, seconds * [[1.0, 1.1, 1.0]], clean).best() == ["a"]


def test_conflicts_are_read_from_executions(tuned):
    path, (workload, _) = tuned
    with Store.open(path, readonly=True) as store:
        assert offer(store, ARCH, [workload]).clean.all()
        digest = store.portfolio("sm_87", ARCH.part, workload.class_key())[0].kernel.digest
        kernel, (row,) = store.get(Kernel, digest), store.rows(Verification, kernel_digest=digest)
        counters = json.loads(row.counters)
        assert counters["counters"]["bank_conflicts"] == 0
        counters["counters"]["bank_conflicts"] = 3
        rows = [kernel, replace(row, counters=json.dumps(counters))]
        offered = offer(store, ARCH, [workload], {digest: rows})
        assert [each for each, clean in zip(offered.digests, offered.clean, strict=True) if not clean] == [digest]


def regrets(kernels, workload):
    """Return the predicted times of the best of `kernels` over the usual sizes, relative to starters' best."""
    found = []
    for shape in operator(workload.operator).usual(workload):
        space = Space(shape, ARCH).family("rows")
        starters = [space.point(each) for each in space.family.starters(shape, ARCH)]
        ours = [space.point(program_from_json(each.kernel.program)) for each in kernels]
        best = min(float(space.potential(point[None])[0]) for point in ours if space.legal(point[None])[0])
        found.append(max(1.0, best / min(float(space.potential(point[None])[0]) for point in starters)))
    return found


def test_other_sizes_get_further_kernels(tuned, tmp_path):
    path, (workload, _) = tuned
    key = ("sm_87", ARCH.part, workload.class_key())
    with Store.open(path, readonly=True) as store:
        kernels, (record,) = store.portfolio(*key), store.rows(Record, key=workload.key())
        program = store.kernel(record.kernel_digest).kernel.program
    assert 2 <= len(kernels) <= PORTFOLIO and all(each.usable for each in kernels)
    (tmp_path / "s.csv").write_text("op,dtype,shape,axes,any_size\nreduce_sum,fp32,3x40,1,0\n")
    with Store.open(tmp_path / "alone.db") as store:
        ((_, result),) = Run(ARCH, store, Options(top=6)).rows(read_shapes(tmp_path / "s.csv"))
        alone = store.portfolio(*key)
    assert result.status == "ok" and Program(result.family, tuple(result.program.items())).to_json() == program
    # A portfolio is complete at a mean regret of 3 % and a worst of 25 % (docs/construction-graph.md).
    ours, only = regrets(kernels, workload), regrets(alone, workload)
    assert np.mean(ours) < 1.03 < np.mean(only) and max(ours) < 1.25 < max(only)


def test_what_nothing_serves_is_missed_and_a_database_is_mended_by_other_workloads_than_it_is_judged_by():
    drawn = [each.key() for each in mending()]
    assert len(drawn) == DRAW * len(MENDING) and drawn[: len(MENDING)] == [each.key() for each in mending(len(MENDING))]
    for draw in (products, floats8, rows, attentions):
        judging = {each.key() for each in draw(DRAW, 1)}
        assert len(judging & set(drawn)) <= 1  # of small products, one is drawn twice by chance
        assert {json.loads(key)["operator"] for key in judging} <= {json.loads(key)["operator"] for key in drawn}
    drawn = list(products(5, 7))
    with Local(1) as executor:
        assert find_missed(drawn, ARCH, Library(Contents(), arch=ARCH), executor) == drawn
        assert len(find_missed(drawn, ARCH, load.library(ARCH), executor)) < len(drawn)


def test_kernels_of_drawn_products_are_stored_without_records(tuned, monkeypatch, tmp_path, capsys):
    asked = [matmul.workload(16, 24, 40, dtype="float64"), matmul.workload(40, 16, 24, dtype="float64")]
    monkeypatch.setattr(tuning, "tune", lambda *_: 0)
    monkeypatch.setattr(tuning, "mending", lambda count: iter(asked[:count]))
    monkeypatch.setattr(tuning, "peers", lambda arch: (arch, lookup("agx-orin-64gb")))
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    scratch, target = tmp_path / "pretune-sm_87.db", tmp_path / "out.db"
    shutil.copy(tuned[0], scratch)
    assert tuning.pretune("sm_87", tmp_path / "none.csv", target, Options(top=2, jobs=1), 2) == 0
    printed = capsys.readouterr().err
    assert "orin-nano-8gb: 2 of 2 Workloads are tuned for further kernels" in printed
    # Workloads recorded for the default part are judged on another one, too.
    assert "agx-orin-64gb: " in printed and f" of {2 + len(tuned[1])} Workloads" in printed
    with Store.open(target, readonly=True) as store, Local(1) as executor:
        classes = {row.class_key for row in store.rows(Portfolio)}
        assert asked[0].class_key() in classes and {row.class_key for row in store.rows(Kernel)} >= classes
        assert {row.key for row in store.rows(Record)} == {each.key() for each in tuned[1]}
        assert not find_missed(asked, ARCH, tuning.library_of(store, ARCH), executor)
    assert not scratch.exists()


def test_a_run_stocks_what_serves_any_epilogue(tmp_path):
    asked = [matmul.workload(16, 24, 40, dtype="float64", epilogue=("relu",))]
    with Store.open(tmp_path / "k.db") as store, Local(1) as executor:
        Run(ARCH, store, Options(top=2, jobs=1)).stock(asked, executor)
        assert all('"epilogue_fixed":1' not in row.program for row in store.rows(Kernel))
        assert not list(store.rows(Record))


@pytest.fixture
def copy(tuned, tmp_path):
    path = tmp_path / "copy.db"
    shutil.copy(tuned[0], path)
    with Store.open(path) as store:
        yield store


def order(classes, cost, keys):
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


def test_classes_without_sizes_keep_a_kernel(copy, monkeypatch):
    monkeypatch.setattr(portfolios, "usual", lambda sample: [])
    copy.connection.execute("DELETE FROM record")
    classes = {row.digest: row.class_key for row in copy.rows(Kernel)}
    assert {classes[digest] for digest in ranked(copy, ARCH)} == set(classes.values())


def test_kernels_are_chosen_for_all_parts_and_most_for_the_worst_served():
    both = [1.7, 1.7]  # regrets of a kernel for one size on two parts
    found = order([(np.array([[[1.0, 1.9], [1.8, 1.0], both]]), range(3))], [1.0, 1.0, 1.0], ["k"] * 3)
    assert found[0] == 1 and sorted(found) == [0, 1], "each part gets its own kernel"
    assert order([(np.array([[[1.0, 1.9], [1.3, 1.3]]]), range(2))], [1.0, 1.0], ["k"] * 2)[0] == 1
    alone = np.array([[[1.0, np.inf], [1.8, np.inf]]])
    assert order([(alone, range(2))], [1.0, 1.0], ["k"] * 2) == [0], "a part without any kernel does not count"
    needed = np.array([[[1.0, np.inf], [2.0, 1.0]]])
    assert order([(needed, range(2))], [1.0, 1.0], ["k"] * 2) == [1, 0], "a part without a kernel comes first"


def test_a_database_has_kernels_for_parts_with_other_rates(tmp_path):
    """The RTX 5090 multiplies at half the rate of an RTX PRO 6000, per multiprocessor."""
    parts = [lookup(part) for part in ("rtx-5090", "rtx-pro-6000")]
    wanted = matmul.workload(4096, 4096, 4096, dtype="bfloat16")
    with Store.open(tmp_path / "k.db") as store:
        programs = {part: search(Request(wanted, part, 0, "full")).best[0] for part in parts}
        for part in parts:
            store.add(*stored(programs[part][0], wanted, part))
        assert programs[parts[0]][0] != programs[parts[1]][0]
        order = ranked(store, parts[0])
        place(store, parts[0], order)
        assert len(order) == 2
        for part in parts:
            library = portfolios.library_of(store, part)
            (shelf,) = library.shelves(wanted)
            assert len(shelf.portfolio) == 2
            best = min(seconds for _, seconds in predict_divided(shelf.portfolio, wanted, part, library))
            assert best == pytest.approx(programs[part][1], rel=0.02), part.part
