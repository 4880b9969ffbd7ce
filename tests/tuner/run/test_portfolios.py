"""Portfolios lose the kernels first whose loss costs least, and keep kernels that records name."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_database.record import Record
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
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


def test_the_loss_that_costs_least_for_its_bytes_comes_first(tuned, tmp_path):
    path, workloads = tuned
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    with Store.open(copy) as store:
        first = store.portfolio("sm_87", ARCH.part, workloads[0].class_key())
        record = next(row for row in store.rows(Record) if row.key == workloads[0].key())
        store.add(replace(record, kernel_digest=first[-1].kernel.digest))
        recorded = {row.kernel_digest for row in store.rows(Record)}
        kept, offered, volume = {}, {}, {}
        for each in workloads:
            key, kernels = each.class_key(), store.portfolio("sm_87", ARCH.part, each.class_key())
            offered[key] = offer(store, ARCH, [each])
            kept[key] = [found.kernel.digest for found in kernels]
            volume.update((found.kernel.digest, len(store.binary(found.kernel).cubin)) for found in kernels)
        assert min(map(len, kept.values())) >= 2
        left, count = set().union(*map(set, kept.values())), 0
        for class_key in shorten(store, "sm_87"):
            costs = {
                digest: (loss / volume[digest], key)
                for key, digests in kept.items()
                if len(digests) > 1
                for digest, loss in zip(digests, offered[key].losses(digests), strict=True)
                if digest not in recorded
            }
            now = [row.kernel.digest for row in store.portfolio("sm_87", ARCH.part, class_key)]
            (lost,) = set(kept[class_key]) - set(now)
            assert costs[lost] == min(costs.values()) and costs[lost][1] == class_key
            kept[class_key].remove(lost)
            assert now == kept[class_key]  # the others keep their order
            left.remove(lost)
            count += 1
        assert count and all(len(digests) == 1 or set(digests) <= recorded for digests in kept.values())
        assert first[-1].kernel.digest in left and list(shorten(store, "sm_87")) == list(shorten(store, "sm_90")) == []


def test_a_loss_is_the_growth_of_the_mean_regret():
    seconds = np.array([[1.0, 2.0, np.inf], [4.0, 1.0, 2.0], [np.inf, np.inf, 1.0], [np.inf] * 3])
    offered = Offer(["a", "b", "c"], ["a", "b", "c"], seconds)
    assert offered.losses(["b", "c", "a"]) == [pytest.approx(1 / 3), pytest.approx(333), pytest.approx(1 / 3)]
    assert offered.losses(["a", "unknown"])[1] == 0.0
