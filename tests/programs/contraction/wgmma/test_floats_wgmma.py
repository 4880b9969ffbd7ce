"""float32 on Hopper's bfloat16 warpgroup products: divided first, right under every order of events."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.windows.conv import workload as convolution
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.contraction.rewrite import split_float
from gensor_kernels.programs.contraction.rewrite.split_float import LEAST_SUM
from gensor_kernels.programs.registry import FAMILIES
from tests.doubles.stored import store_kernels
from tests.programs.lattices import MMA, fastest
from tests.programs.verified import verdict_without

from .small import ARCH, is_right, small

FAMILY = FAMILIES["contraction_floats_wgmma"]


def workload(m=512, n=511, k=1003, **keywords):
    return matmul.workload(m, n, k, dtype="float32", **keywords)


made = partial(small, FAMILY, vector_c=4)


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        (workload(), {"split_k": 2}),
        (workload(512, 516, 1004, trans_a=True, trans_b=True), {"persistent": 1, "vector_c": 16}),
        (workload(512, 512, 1024, epilogue=("bias", "gelu")), {"block_m": 128, "consumers": 2, "epilogue_fixed": 1}),
        (workload(batch=3), {"persistent": 2, "consumers": 2, "cluster": 2, "epilogue_staged": 0}),
        (workload(512, 512, 1024, trans_b=True), {"block_n": 32, "cluster": 1, "stages": 4}),
    ],
    ids=["split", "walking", "epilogue", "in turns of pairs", "pairs along m"],
)
def test_products_match_float64(problem, values):
    is_right(made(problem, **values), problem)


def test_long_products_of_float32_matrices_are_served():
    assert FAMILY.serves(workload(), ARCH) is None
    assert "no warpgroup products" in FAMILY.serves(workload(), lookup("sm_89"))
    assert "no less exact than multiply-adds from" in FAMILY.serves(workload(k=LEAST_SUM - 1), ARCH)
    refused = [
        workload(math="tf32"),
        matmul.workload(512, 512, 512),
        matmul.workload(512, 512, 512, dtype="float64"),
        gated("swiglu", 512, 512, 512, dtype="float32"),
        convolution(n=8, h=28, w=28, c=64, k_out=64, r=3, s=3, dtype="float32"),
    ]
    assert all(FAMILY.serves(each, ARCH) for each in refused)


def test_what_is_divided_and_how():
    """Along k, however operands lie."""

    def told(**keywords):
        problem = workload(512, 510, 588, **keywords)
        return {copy.operand: (copy.unit, copy.piece, copy.turned) for copy in split_float.copies(problem)}

    assert told() == {"a": ("k", 16, False), "b": ("k", 4, True)}
    assert told(trans_a=True, trans_b=True) == {"a": ("k", 4, True), "b": ("k", 16, False)}
    problem = workload(100, 200, 385)
    assert (
        split_float.copies(problem)[0].bytes(extents(problem)) == 100 * 3 * 448 * 2
    )  # three parts, each of whole steps


def test_it_is_preferred_where_products_repay_the_parts():
    large, small_m = workload(4096, 4096, 4096), workload(16, 4096, 1000)
    assert fastest(FAMILY, large, ARCH) < 0.8 * fastest(MMA, large, ARCH)
    assert fastest(FAMILY, small_m, ARCH) > fastest(MMA, small_m, ARCH)


# What a faulty kernel does wrong, and how that shows.
FAULTS = {
    "short sums nobody waits for": ("wgmma_wait<0>();\n    wgmma_hold(products);", "wgmma_hold(products);"),
    "no fence before short sums": ("wgmma_fence();\n    begin();", "begin();"),
    "parts too near": ("divide_up(params.k, BLOCK_K) * BLOCK_K : UNIT", "BLOCK_K : UNIT"),
    "a part twice": ("OF_A[SMALL_PRODUCTS] = {2, 0, 1, 1, 0}", "OF_A[SMALL_PRODUCTS] = {2, 0, 1, 0, 0}"),
    "sums not lowered": (" * LOWER;", ";"),
    "formed again a row further": ("(thread_index() >> 2 & 7), sums);", "(thread_index() >> 2 & 7) + 1, sums);"),
    "low parts of rounded numbers": ("rest[i] = rest[i] - bit_cast<float>(pair << 16);", ";"),
    "no wait for the parts": ("    grid_dependency_wait();\n    compute_tiles", "    compute_tiles"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name):
    problem = workload()
    verdict = verdict_without(*FAULTS[name], made(problem), problem)
    assert verdict.outcome in ("failed", "wrong"), verdict


def test_calls_reach_a_stored_kernel_however_operands_lie(no_databases):
    """Steps of two, rows back to front, a batch that is broadcast, elements off whole accesses."""
    problem = workload(batch=2)
    strided = replace(problem, layout=(*problem.layout[:1], ("b", "s"), ("c", "n")))
    store_kernels(no_databases, ARCH, *((made(each).program, each) for each in (problem, strided)))
    rng = np.random.default_rng(2)
    a = rng.standard_normal((3, 1, 70, 1001)).astype(np.float32)
    b = rng.standard_normal((4, 1001, 90)).astype(np.float32)
    with gensor_kernels.emulated("sm_90"):
        for left, right in ((a, b[:, :, :45]), (a[:, :, ::-1], b[..., ::2]), (a[0, 0], b[0, :, 1:])):
            assert gensor_kernels.explain(gensor_kernels.matmul, left, right).family == FAMILY.name
            wanted = left.astype(float) @ right.astype(float)
            found = gensor_kernels.matmul(left, right)
            assert np.abs(found - wanted).max() < 5e-5
