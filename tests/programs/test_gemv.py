"""The gemv family in addition to its contract (test_contract.py): its lattice, its potential."""

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.search.walk import walk
from gensor_tuner.verify.verify import verify

from .workloads import space

GEMV = FAMILIES["gemv"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_aligned_half_types_have_no_bank_conflicts(index):
    lattice = space("gemv", index)
    seconds = {p: lattice.potential(lattice.point(p)[None])[0] for p in GEMV.starters(lattice.workload, lattice.arch)}
    best = min(seconds, key=lambda program: seconds[program])
    assert verify(candidate(GEMV, best, lattice.workload), lattice.workload).counters["bank_conflicts"] == 0


@pytest.mark.parametrize(
    ("arch", "sizes", "dtype", "trans_b", "most"),
    [
        ("sm_87", (1, 1280, 1280), "float32", False, 1.25),
        ("sm_87", (1, 4097, 4097), "float16", False, 1.25),
        ("sm_90", (1, 4352, 4352), "float32", False, 1.3),
        ("sm_90", (1, 1280, 1280), "float32", True, 1.1),
        ("sm_90", (4, 8192, 2048), "float32", True, 1.3),
        ("sm_90", (1, 1, 1 << 20), "float32", False, 2.0),
    ],
)
def test_walks_get_near_the_bound_with_gemv(arch, sizes, dtype, trans_b, most):
    w, part = workload(*sizes, dtype=dtype, trans_b=trans_b), lookup(arch)
    program, seconds = walk(Space(w, part), seed=0, chains=32, steps=100, keep=1).best[0]
    assert program.family == "gemv"
    assert seconds * 1e6 <= most * bound_us(w, part)


def test_tensor_cores_keep_what_they_do_better():
    w, part = workload(16, 14336, 4096, trans_b=True), lookup("sm_90")
    served = Space(w, part)
    names = {each.family.name for each in served.families}
    assert names == {"contraction_mma", "contraction_simt", "contraction_wgmma", "gemv"}
    program, seconds = walk(served, seed=0, chains=32, steps=60, keep=1).best[0]
    assert program.family in ("contraction_mma", "contraction_wgmma")
    assert seconds * 1e6 <= 1.3 * bound_us(w, part)
