"""Time to load an architecture's part of a large store: 100,000 records of 10, like the merged database of a fleet.

    pytest benchmarks/bench_store.py --benchmark-columns=min,median

The digest of each row is checked.
"""

import pytest

from gensor_database import Catalog, Record, Store
from tests.doubles.store_rows import ABI, PART, kernel_rows, key, rows

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120")
KERNELS, RECORDS = 64, 100_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a store of 100,000 records, closed."""
    path = tmp_path_factory.mktemp("large") / "kernels.db"
    with Store.open(path) as store:
        kernels = [kernel_rows(number)[1].digest for number in range(KERNELS)]
        store.add(*(row for number in range(KERNELS) for row in rows(number)[:4]))
        for arch in ARCHS:
            each = RECORDS // len(ARCHS)
            store.add(*(Record(key(i), arch, PART, ABI, kernels[i % KERNELS], 12.5, 10.0, "ok") for i in range(each)))
    return path


def test_one_arch_of_many_records(benchmark, large):
    """At most 300 ms."""

    def load():
        with Store.open(large, readonly=True) as store:
            return Catalog((store,), "sm_87")

    assert len(list(benchmark.pedantic(load, rounds=5).entries())) == RECORDS // len(ARCHS)
