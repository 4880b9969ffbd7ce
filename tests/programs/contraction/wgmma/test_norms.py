"""Rows normalised behind contraction_wgmma: their sums in the workspace, a second launch that finishes them."""

from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.normed import normed
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from tests.doubles.stored import store_kernels
from tests.programs.lattices import ALIGNED, MMA, WGMMA, fastest, random_legal

from .small import ARCH, is_right, small


def workload(norm, m=512, n=768, k=768, **more):
    more.setdefault("epilogue", ("bias", "add", "mul", "bias"))
    return normed(norm, matmul.workload(m, n, k, **more), 2)


made = partial(small, WGMMA, vector_c=16)


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        (workload("layernorm"), {}),
        (workload("rmsnorm", dtype="bfloat16", trans_b=True), {"split_k": 2, "epilogue_staged": 0, "persistent": 1}),
        (workload("layernorm", batch=2), {"persistent": 2, "consumers": 2, "cluster": 2, "split_k": 3}),
        (
            workload("layernorm", dtype="float8_e4m3fn", trans_b=True, out="float16"),
            {"block_k": 128, "block_m": 128, "consumers": 2},
        ),
        (workload("rmsnorm", dtype="float32", math="tf32", trans_b=True), {"block_k": 32, "cluster": 1}),
    ],
    ids=["one part", "split, walking", "in turns of pairs", "8-bit floats", "tf32"],
)
def test_products_match_float64(problem, values):
    is_right(made(problem, **values), problem)


def test_what_is_served():
    assert WGMMA.serves(workload("layernorm"), ARCH) is None
    for family in (ALIGNED, FAMILIES["contraction_floats_wgmma"]):
        for problem in (workload("layernorm", k=767), workload("layernorm", k=1024, dtype="float32")):
            assert family.serves(problem, ARCH)


def test_sums_pass_through_the_workspace_and_cost_what_they_are():
    problem = workload("layernorm", 4096, 4096, 4096)
    lattice = FamilySpace(WGMMA, problem, ARCH)
    assert {c.name: c.values for c in WGMMA.coordinates(problem, ARCH)}["epilogue_staged"] == (0, 1)
    for turn, point in enumerate(random_legal(lattice, 8, seed=5)):
        program, terms = lattice.program(point), lattice.explain(point)
        main, second = WGMMA.launches(program, problem)
        assert (main.entry, second.entry, second.dependent) == (WGMMA.name, "contraction_normalise", True)
        assert WGMMA.workspace(program, problem) == (program["split_k"] * 4096 * 4096 * 4, False)
        assert terms["after"] > 4096 * 4096 * 2 / ARCH.dram_gb_s / 1e9  # seconds: C alone
        if turn < 2:
            binary = compile_cubin(candidate(WGMMA, program, problem).source(), ARCH.target)
            assert binary.error is None and not binary.spill_bytes
            assert binary.entries.keys() == {WGMMA.name, "contraction_normalise"}


def test_it_is_preferred_to_products_of_single_warps():
    for problem in (workload("rmsnorm", 4096, 4096, 4096), workload("rmsnorm", 512, 768, 3072)):
        assert fastest(WGMMA, problem, ARCH) < 0.85 * fastest(MMA, problem, ARCH)


def test_calls_reach_a_stored_kernel(no_databases):
    problem = workload("layernorm", epilogue=("bias", "add", "mul"))
    store_kernels(no_databases, ARCH, (made(problem).program, problem))
    rng = np.random.default_rng(4)
    a, b, bias, residual, weight = (
        rng.standard_normal(shape).astype(np.float16) for shape in ((70, 136), (136, 264), 264, (70, 264), 264)
    )
    steps = [("bias", bias), ("add", residual), "layernorm", ("mul", weight)]
    with gensor_kernels.emulated("sm_90"):
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b, epilogue=steps).family == WGMMA.name
        found = gensor_kernels.matmul(a, b, epilogue=steps)
    x = a.astype(float) @ b.astype(float) + bias + residual
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=4e-3)
