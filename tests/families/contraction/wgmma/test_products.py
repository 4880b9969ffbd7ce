"""Products on Hopper's warpgroups in addition to their contracts: scales, gates, norms, groups, copied operands."""

from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.families.contraction.rewrite import align
from gensor_kernels.families.core import params
from gensor_kernels.families.core.params import ragged_tiles
from gensor_kernels.families.core.tensor_maps import TensorMap, call_key, description, key
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import block_scaled, matmul, ragged
from gensor_kernels.operators.products.normed import with_norm
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.doubles.stored import store_kernels
from tests.families.lattices import ALIGNED, WGMMA, cheap_programs, random_legal
from tests.families.verified import ARCH, is_right, small, verdict_without

# ---- scales of blocks of 8-bit floats


E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
WORKLOAD = block_scaled.workload(512, 512, 1024)


# ---- gates: both matrices' columns in one product


# ---- rows normalised after a product: sums in the workspace, and a second launch


def normed_product(norm, m=512, n=768, k=768, **more):
    more.setdefault("epilogue", ("bias", "add", "mul", "bias"))
    return with_norm(norm, matmul.workload(m, n, k, **more), 2)


def test_sums_pass_through_the_workspace_and_cost_what_they_are():
    problem = normed_product("layernorm", 4096, 4096, 4096)
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


@pytest.mark.parametrize(
    "problem",
    [
        normed_product("rmsnorm", dtype="bfloat16", trans_b=True),
        normed_product("layernorm", batch=2),
        normed_product("layernorm", dtype=E4M3, trans_b=True, out="float16"),
        normed_product("rmsnorm", dtype="float32", math="tf32", trans_b=True),
        ragged.workload(8, 512, 512, 512, dtype="bfloat16", trans_b=True, epilogue=("bias", "silu")),
        ragged.workload(8, 512, 512, 512, out="float32"),
        ragged.workload(8, 512, 512, 512, dtype="int8", trans_b=True),
    ],
)
def test_programs_of_norms_and_groups_are_right(problem):
    [program] = cheap_programs(FamilySpace(WGMMA, problem, ARCH), 1)
    assert is_right(WGMMA, program, problem).counters["bank_conflicts"] == 0


# ---- groups of different rows


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
    problem = ragged.workload(8, 512, 512, 512)
    return verdict_without(before, after, small(WGMMA, problem, persistent=1, vector_c=16), problem)


def test_spare_tiles_take_no_steps():
    """They would multiply for nothing, and store nothing."""
    rule = "if (RAGGED_ROWS && tile.row == tile.end)"
    ours, idle = changed(rule, rule), changed(rule, "if (false)")
    assert ours.outcome == idle.outcome == "ok"
    assert ours.branches["drain"] < 0.7 * idle.branches["drain"]


def test_calls_reach_a_stored_kernel(no_databases, monkeypatch):
    """More groups than a warp has lanes, empty ones, rows of none; ends that make no sense stay inside."""
    problem = ragged.workload(8, 512, 512, 512)
    store_kernels(no_databases, ARCH, (small(WGMMA, problem, persistent=1, vector_c=16).program, problem))
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
        monkeypatch.setattr("gensor_kernels.dispatch.calls.ends._to_ends", lambda words, ends, are_sizes, rows: ends)
        for ends in ([-5, 400, 3], [30, 10, 20]):
            given = gensor_kernels.grouped_matmul(x, w[:3], offsets=np.array(ends, np.int32))
            assert given.shape == (len(x), 24)


# ---- operands that tensor copies cannot read


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        (matmul.workload(512, 512, 512, dtype="int8"), {"block_k": 128}),
        (matmul.workload(512, 512, 512, dtype="float32", math="tf32", trans_a=True), {"block_k": 32}),
    ],
    ids=["int8", "tf32"],
)
def test_turned_copies_store_whole_sectors_without_bank_conflicts(workload, values):
    """Tiles of 64 lines by 16 accesses cross shared memory."""
    each = small(ALIGNED, workload, vector_c=16, **values)
    copy = each.family.launches(each.program, workload)[0]
    turned = sum(found.turned for found in align.copies(workload))
    assert copy.entry == "contraction_align" and copy.shared_bytes == 16384
    assert copy.grid == turned * (512 // 64) * (512 * align.extents(workload).bytes_a // 256)
    verdict = verify(each, workload, use_cache=False)
    assert verdict.outcome == "ok" and verdict.counters["bank_conflicts"] == 0


def test_calls_reach_a_stored_kernel_however_operands_lie(no_databases):
    """Steps of two, rows back to front, a batch that is broadcast, elements off whole accesses."""
    workload = matmul.workload(512, 511, 587, batch=2)
    strided = replace(workload, layout=(*workload.layout[:1], ("b", "s"), ("c", "n")))
    store_kernels(
        no_databases, ARCH, *((small(ALIGNED, each, vector_c=2).program, each) for each in (workload, strided))
    )
    rng = np.random.default_rng(2)
    a = rng.standard_normal((3, 1, 70, 33)).astype(np.float16)
    b = rng.standard_normal((4, 33, 90)).astype(np.float16)
    with gensor_kernels.emulated("sm_90"):
        for left, right in ((a, b[:, :, :45]), (a[:, :, ::-1], b[..., ::2]), (a[0, 0], b[0, :, 1:])):
            assert gensor_kernels.explain(gensor_kernels.matmul, left, right).family == ALIGNED.name
            wanted = left.astype(float) @ right.astype(float)
            np.testing.assert_allclose(gensor_kernels.matmul(left, right), wanted, rtol=2e-3, atol=0.02)


# ---- results that leave by tensor copies


C_MAP = TensorMap("c", False, 2, 16)


def pack(address=1 << 22, row=1024):
    c = Strides((64 * row, 0, 0), row, 1)
    geometry = Geometry((100, 1000, 64), (3, 1, 1), Strides((0, 0, 0), 64, 1), Strides((0, 0, 0), 1, 64), c)
    tiling = params.tiling({"m": 64, "n": 64, "k": 64, "split": 1, "raster": 1}, geometry)
    return params.pack(geometry, tiling, steps=[], pointers=(1 << 20, 1 << 21, address, 0))


def test_a_map_of_c_is_that_of_its_call():
    found = description(pack(), C_MAP)
    assert (found.address, found.extents, found.box) == (1 << 22, (1000, 100, 1, 1, 3), (64, 16))
    assert found.strides == (2048, 16, 16, 64 * 2048)
    first, moved, wider = pack(), pack(1 << 23), pack(row=2048)
    of_a = TensorMap("a", False, 2, 64)
    assert key(first, of_a) == key(moved, of_a) == key(wider, of_a)
    assert len({key(each, C_MAP) for each in (first, moved, wider)}) == 3
    assert call_key(first, False, False) == call_key(moved, False, False)
    assert call_key(first, False, True) != call_key(moved, False, True)


def test_a_result_that_copies_cannot_store_goes_elsewhere():
    wide, back = Strides((0, 0, 0), 1024, 1), Strides((0, 0, 0), -1024, 1)
    cases = (("float16", 1024, wide, True), ("float16", 1024, back, False), ("float32", 1024, back, False))
    for out, n, row, served in (*cases, ("float16", 1020, back, True), ("float32", 1022, back, True)):
        workload = matmul.workload(128, n, 64, dtype="float16", out=out, trans_b=True)
        a, b = Strides((0, 0, 0), 64, 1), Strides((0, 0, 0), 1, 64)
        assert WGMMA.reads(workload, Geometry((128, n, 64), (1, 1, 1), a, b, row)) == served
        space = FamilySpace(WGMMA, workload, lookup("sm_90"))
        ways = next(c.values for c in space.coordinates if c.name == "epilogue_staged")
        assert (3 in ways) == (n == 1024)
