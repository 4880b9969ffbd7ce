"""Groups of different rows on Hopper's warpgroup products: every group's tiles from its own matrix, and no row of the
next one, under every order of events, in every form that walks tiles."""

from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.operators.products import ragged
from gensor_kernels.programs.core.params import ragged_tiles
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.doubles.stored import store_kernels
from tests.programs.lattices import WGMMA, random_legal
from tests.programs.verified import verdict_without
from tests.programs.warpgroups import ARCH, small

made = partial(small, WGMMA, vector_c=16)


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({}, {}),
        ({"dtype": "bfloat16", "trans_b": True, "epilogue": ("bias", "silu")}, {"persistent": 1, "block_n": 16}),
        ({"out": "float32"}, {"persistent": 2, "consumers": 2, "cluster": 2, "raster": 2}),
        ({"dtype": "int8", "trans_b": True}, {"block_k": 128, "block_n": 32, "epilogue_staged": 0}),
    ],
    ids=["a tile per block", "walking", "in turns of pairs", "int8"],
)
def test_groups_match_float64(more, values):
    problem = ragged.workload(8, 512, 512, 512, **more)
    verdict = verify(made(problem, **values), problem, use_cache=False)
    assert verdict.outcome == "ok", verdict.detail
    assert verdict.branches["rest"] and verdict.branches["spare"]


def test_random_legal_programs_compile_and_share_no_tile_of_a_matrix():
    problem = ragged.workload(8, 4096, 1024, 520, dtype="bfloat16")
    lattice = FamilySpace(WGMMA, problem, ARCH)
    assert next(c for c in lattice.coordinates if c.name == "cluster").values == (0, 2)
    assert next(c for c in lattice.coordinates if c.name == "epilogue_staged").values == (0, 1)
    assert "stream" not in lattice.names
    for point in random_legal(lattice, 12, seed=3):
        program = lattice.program(point)
        [main] = WGMMA.launches(program, problem)
        pair = 1 + (program["cluster"] == 2)
        tiles = ragged_tiles(4096, 8, program["block_m"]) * -(-1024 // (program["block_n"] * pair))
        assert main.grid == tiles * pair
    for program in WGMMA.starters(problem, ARCH)[:2]:
        binary = compile_cubin(candidate(WGMMA, program, problem).source(), ARCH.target)
        assert binary.error is None and not binary.spill_bytes


def changed(before, after):
    """The verdict on a Program with one text in place of another in its source."""
    problem = ragged.workload(8, 512, 512, 512)
    return verdict_without(before, after, made(problem, persistent=1), problem)


def test_spare_tiles_take_no_steps():
    """They would multiply for nothing, and store nothing."""
    rule = "if (RAGGED_ROWS && tile.row == tile.end)"
    ours, idle = changed(rule, rule), changed(rule, "if (false)")
    assert ours.outcome == idle.outcome == "ok"
    assert ours.branches["drain"] < 0.7 * idle.branches["drain"]


def test_calls_reach_a_stored_kernel(no_databases, monkeypatch):
    """More groups than a warp has lanes, empty ones, rows of none; ends that make no sense stay inside."""
    problem = ragged.workload(8, 512, 512, 512)
    store_kernels(no_databases, ARCH, (made(problem, persistent=1).program, problem))
    rng = np.random.default_rng(4)
    sizes = [3, 0, 70, 1, *[0] * 30, 64, 9]
    x = rng.standard_normal((sum(sizes) + 5, 40)).astype(np.float16)
    w = rng.standard_normal((len(sizes), 40, 24)).astype(np.float16)
    wanted, begin = np.zeros((len(x), 24)), 0
    for group, size in enumerate(sizes):
        wanted[begin : begin + size] = x[begin : begin + size].astype(float) @ w[group].astype(float)
        begin += size
    with gensor_kernels.emulated("sm_90"):
        why = gensor_kernels.explain(gensor_kernels.grouped_matmul, x, w, sizes=sizes)
        assert why.family == WGMMA.name
        found = gensor_kernels.grouped_matmul(x, w, sizes=sizes)
        np.testing.assert_allclose(found.astype(float), wanted, rtol=1e-2, atol=1e-2)
        # Inside `emulated` such ends are refused; those on a GPU reach the kernel unchanged.
        monkeypatch.setattr("gensor_kernels.dispatch.api.ends._to_ends", lambda words, ends, are_sizes, rows: ends)
        for ends in ([-5, 400, 3], [30, 10, 20]):
            given = gensor_kernels.grouped_matmul(x, w[:3], offsets=np.array(ends, np.int32))
            assert given.shape == (len(x), 24)
