"""Portfolios: which kernels they avoid."""

import json
from dataclasses import replace

import numpy as np

from gensor_database.record import Kernel, Verification
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_tuner.run.portfolios import Offer, offer

ARCH = lookup("sm_87")


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
