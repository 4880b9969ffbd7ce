"""Speed of the potential: distinct random legal Programs per second, on one core.

    pytest benchmarks/bench_roofline.py --benchmark-columns=min,median

Batches have the sizes of a walk's; `programs_per_s` in the extra information is for the median. Setting up a lattice
(once per workload) and `legal` are also timed.
"""

import numpy as np
import pytest

from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload

CASES = {
    "mma": ("contraction_mma", "sm_80", workload(4096, 4096, 4096)),
    "simt": ("contraction_simt", "sm_89", workload(4096, 4096, 4096, dtype="float32")),
}
BATCHES = (1_000, 2_000, 4_000)


def lattice(case: str) -> FamilySpace:
    name, arch, problem = CASES[case]
    return FamilySpace(FAMILIES[name], problem, lookup(arch))


def distinct(space: FamilySpace, count: int) -> np.ndarray:
    """Return distinct random legal complete points (count, d)."""
    rng, found = np.random.default_rng(0), np.zeros((0, len(space.extents)), dtype=np.int64)
    while len(found) < count:
        points = np.stack([rng.integers(0, extent, 100_000) for extent in space.extents], axis=1)
        points[:, 0] = 2
        found = np.unique(np.concatenate([found, points[space.legal(points)]]), axis=0)
    return rng.permutation(found)[:count]


def measure(benchmark, function, points):
    benchmark.pedantic(function, args=(points,), rounds=200, warmup_rounds=20)
    if benchmark.stats is not None:
        benchmark.extra_info["programs_per_s"] = round(len(points) / benchmark.stats.stats.median)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", CASES)
def test_potential(benchmark, case, batch):
    space = lattice(case)
    measure(benchmark, space.potential, distinct(space, batch))


@pytest.mark.parametrize("case", CASES)
def test_legal(benchmark, case):
    space = lattice(case)
    measure(benchmark, space.legal, distinct(space, 2_000))


@pytest.mark.parametrize("case", CASES)
def test_set_up(benchmark, case):
    benchmark.pedantic(lattice, args=(case,), rounds=10, warmup_rounds=1)
