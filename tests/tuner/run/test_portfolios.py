"""Portfolios lose the kernels first whose loss costs least, and keep their first."""

import numpy as np
import pytest

from gensor_database.record import Portfolio
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_tuner.build.cover import UNSERVED
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.portfolios import Offer, offer, shorten
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes

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


def lengths(store):
    found = {}
    for row in store.rows(Portfolio, arch="sm_87"):
        found.setdefault(row.class_key, []).append(row.rank)
    return {name: sorted(ranks) for name, ranks in found.items()}


def test_the_loss_that_costs_least_comes_first(tuned, tmp_path):
    path, workloads = tuned
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    with Store.open(copy) as store:
        before = lengths(store)
        assert min(map(len, before.values())) >= 2
        regret = {}
        for each in workloads:
            chosen = [row.kernel.digest for row in store.portfolio("sm_87", ARCH.part, each.class_key())]
            regret[each.class_key()] = offer(store, ARCH, [each]).regret_of_first(chosen)
        lost = []
        for class_key in shorten(store, "sm_87"):
            losses = {key: found[-2] - found[-1] for key, found in regret.items() if len(found) > 1}
            assert losses[class_key] == min(losses.values())
            regret[class_key].pop()
            lost.append(class_key)
            # The first kernels stay, in their order.
            assert lengths(store)[class_key] == list(range(len(regret[class_key])))
        assert len(lost) == sum(map(len, before.values())) - len(before)
        assert set(map(tuple, lengths(store).values())) == {(0,)}
        assert list(shorten(store, "sm_87")) == list(shorten(store, "sm_90")) == []


def test_regrets_of_the_first_kernels_fall_and_end_at_none():
    seconds = np.array([[1.0, 2.0, np.inf], [4.0, 1.0, 2.0], [np.inf, np.inf, 1.0], [np.inf] * 3])
    offered = Offer(["a", "b", "c"], ["a", "b", "c"], seconds)
    assert offered.regret_of_first(["b", "c", "a"]) == [(2 + 1 + UNSERVED) / 3, 4 / 3, 1.0]
    assert offered.regret_of_first(["unknown", "a"]) == [UNSERVED, (1 + 4 + UNSERVED) / 3]
