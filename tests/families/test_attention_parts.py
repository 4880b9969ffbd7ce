"""Attention in tensor memory: groups of heads whose whole queries fill no tile are divided into parts."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices.emulator import build
from gensor_kernels.families.attention.shape import sizes_of
from gensor_kernels.families.attention.tcgen05.cost import GROUP_ROWS, parted_sizes, parts_of
from gensor_kernels.families.core import params
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.tensor_maps import MOST_ROWS, call_key, description, key
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import attention, sequences
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.problem import Problem
from tests.campaign_size import sample
from tests.doubles.stored import store_kernels

FAMILY, ARCH = FAMILIES["attention_tcgen05"], lookup("sm_100")
FORMS = {
    20: {"window": (40, None), "mask": "float16", "mask_axes": ("heads", "queries", "keys")},
    22: {"causal": True},
    40: {"softcap": True, "causal": True, "epilogue": "add"},
    48: {"sinks": "float16", "lse": True},
    96: {"causal": "upper_left", "mask": "bool"},
    136: {"causal": True, "dtype": "bfloat16"},
}


def packed(problem, program):
    declared = operator(problem.operator)
    geometry = declared.geometry(problem, {each.name: each.strides() for each in declared.operands(problem)})
    return params.pack(geometry, FAMILY.tiling(program, geometry), pointers=(1 << 20, 1 << 24, 1 << 28, 0, 1 << 26))


@pytest.mark.parametrize("queries", [1, 16, 33, 1024])
def test_every_group_has_a_program_whose_tiles_are_nearly_full(queries):
    for group in range(1, 257):
        parts = parts_of(queries, group)
        each = group // parts
        assert each * parts == group
        if parts > 1:
            assert GROUP_ROWS % each == 0 and queries * each >= GROUP_ROWS
        elif queries == 1024:
            assert GROUP_ROWS % group < 8 and -GROUP_ROWS % group <= 8


@pytest.mark.parametrize("group", sample(sorted(FORMS), 2))
@pytest.mark.parametrize("rows", [128, 256])
def test_results_of_groups_in_parts(group, rows, needs_emulator):
    queries = 128 // min(group & -group, 128) + 3
    problem = attention.workload(queries, 72, heads=2 * group, kv_heads=2, head=64, **FORMS[group])
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=rows, block_k=32, stages=2)
    lattice = FamilySpace(FAMILY, problem, ARCH)
    assert lattice.legal(lattice.point(program)[None])[0] and parted_sizes(problem).parts > 1
    each, run = candidate(FAMILY, program, problem), Problem(Case("groups", problem), 5)
    run.run(each, build(each.source()), copies="late", order="reverse")
    assert 0 < run.check() <= 1


def test_groups_of_packed_sequences_are_divided_by_their_mean_queries():
    for queries, parts in ((16 * 15, 1), (16 * 16, 3)):
        problem = sequences.workload(16, queries, 4096, heads=48, kv_heads=2, head=64, causal=True)
        e = parted_sizes(problem)
        assert (e.parts, e.group, e.batch) == (parts, 24 // parts, 2 * parts)
        assert e.m * e.batch == queries * 48
    problem = sequences.workload(16, 256, 4096, heads=48, kv_heads=2, head=64, causal=True)
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=128)
    tiles, heads = (np.frombuffer(packed(problem, program), np.int32, 2, offset) for offset in (224, 216))
    assert tuple(heads) == (6, 8)
    assert FAMILY.launches(program, problem)[0].grid == 6 * tiles[0]


def test_maps_of_keys_have_the_heads_of_keys():
    parted = attention.workload(64, 64, heads=48, kv_heads=2, head=64)
    whole = attention.workload(64, 64, heads=48, kv_heads=6, head=64)  # as many parts as these have heads
    program = FAMILY.starters(parted, ARCH)[0]
    q, k, v = FAMILY.launches(program, parted)[0].maps
    for problem, heads in ((parted, 2), (whole, 6)):
        found = {each.operand: description(packed(problem, program), each) for each in (q, k, v)}
        assert found["b"].extents == found["d"].extents == (64, 64, heads, 1, 1)
        assert found["a"].extents == (64, 8, 64, 6, 1)
        assert found["a"].box == (64, 8, program["block_q"] // 8) and max(found["a"].box) <= MOST_ROWS
    ours, other = (packed(problem, program) for problem in (parted, whole))
    assert key(ours, k) != key(other, k) and call_key(ours, False, False) != call_key(other, False, False)


def test_a_group_in_parts_reads_its_keys_once():
    problem = attention.workload(8192, heads=24, kv_heads=1, head=128, causal=True)
    e = parted_sizes(problem)
    assert (e.parts, e.batch, e.group, e.m) == (3, 3, 8, sizes_of(problem).m // 3)
    lattice = FamilySpace(FAMILY, problem, ARCH)
    found = lattice.explain(lattice.point(FAMILY.starters(problem, ARCH)[0]))["dram_bytes"]
    outputs = 24 * 8192 * 128 * 2
    assert found == pytest.approx(operator(problem.operator).bytes_moved(problem) - outputs)


@pytest.mark.parametrize("group", [24, 40])
def test_calls_with_such_groups_are_served(group, no_databases):
    problem = attention.workload(40, heads=group, kv_heads=1, head=64)
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=128, block_k=48, stages=2)
    store_kernels(no_databases, ARCH, (program, problem))
    rng = np.random.default_rng(3)
    q = rng.standard_normal((1, group, 40, 64)).astype(np.float16)
    k, v = rng.standard_normal((2, 1, 1, 40, 64)).astype(np.float16)
    with gensor_kernels.emulated("sm_100"):
        assert gensor_kernels.explain(gensor_kernels.attention, q, k, v).family == FAMILY.name
        found = gensor_kernels.attention(q, k, v)
    scores = q.astype(float) @ k.astype(float).swapaxes(2, 3) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    assert np.abs(weights / weights.sum(-1, keepdims=True) @ v.astype(float) - found).max() < 4e-3
