"""attention_wgmma beside its contract (test_contract.py): what it serves, how it reads operands, its machine code."""

from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import disassemble, instructions
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.tensor_maps import call_key, described, key
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.build.pool import candidate
from tests.doubles.stored import store_kernels

FAMILY, ARCH = FAMILIES["attention_wgmma"], lookup("sm_90")
#: q, k, v, (c, workspace,) in the order of Params
POINTERS = (1 << 20, 2 << 20, 3 << 20, 0, 4 << 20)


def packed(problem, pointers=POINTERS, **strides):
    """Params of contiguous operands, with other strides where given."""
    declared = operator(problem.operator)
    usual = {each.name: each.strides() for each in declared.operands(problem)}
    geometry = declared.geometry(problem, usual | strides)
    program = FAMILY.starters(problem, ARCH)[0]
    return params.pack(geometry, FAMILY.tiling(program, geometry), pointers=pointers)


def hot_loop(problem, program):
    """Instructions of the loop by opcode; it spills nothing, and ptxas does not warn that it waits for each product."""
    binary = compile_cubin(candidate(FAMILY, program, problem).source(), ARCH.target)
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    loop = sass["attention_wgmma"].hot_loop
    names, count = FAMILY.multiplies(program, problem)
    assert sum(loop.get(name, 0) for name in names) == count
    assert not {"ELECT", "LDS"} & loop.keys()
    return loop


@pytest.mark.parametrize("head", [64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_products_of_usual_heads_are_asynchronous(head, causal):
    """Descriptors are in uniform registers."""
    problem = workload(4096, heads=16, head=head, causal=causal)
    program = FAMILY.starters(problem, ARCH)[0]
    loop = hot_loop(problem, program)
    # Of long heads there are more descriptors than uniform registers.
    assert loop.get("R2UR", 0) <= (8 if head > 192 else 0)
    # Exponentials, two that rescale sums, and the reciprocal of a division by the heads of a group.
    assert loop["MUFU"] == program["block_k"] // 2 + 3


@pytest.mark.parametrize("head", [64, 128])
def test_the_softmax_runs_between_the_waits_of_a_step(head):
    """Exponentials stand behind the wait for scores, and in front of the wait for the product with values."""
    problem = workload(4096, heads=16, head=head)
    program = FAMILY.starters(problem, ARCH)[0]
    binary = compile_cubin(candidate(FAMILY, program, problem).source(), ARCH.target)
    [functions] = instructions([binary.cubin], binary.target)
    if functions is None:
        pytest.skip("nvdisasm is not installed")
    code = functions["attention_wgmma"]
    waits = [at for at, each in enumerate(code) if each.opcode == "WARPGROUP.DEPBAR.LE"]
    left = [code[at].operands for at in waits]
    steps = [i for i, operands in enumerate(left) if operands == "gsb0, 0x1"]
    assert len(steps) == 2  # the loop over cut tiles, and the loop over whole tiles
    for i in steps:
        between = [each.opcode for each in code[waits[i] : waits[i + 1]]]
        assert left[i + 1] == "gsb0, 0x0" and between.count("MUFU.EX2") >= program["block_k"] // 2


@pytest.mark.parametrize("head", [64, 128])
def test_packed_sequences_have_the_same_loop(head):
    """Shuffles find a block's sequence, and its numbers are uniform all the same: R2UR takes no descriptor."""
    problem = sequences.workload(8, 16384, 16384, heads=16, head=head, causal=True)
    for program in FAMILY.starters(problem, ARCH)[:3]:
        assert "R2UR" not in hot_loop(problem, program)


def test_values_of_another_sequence_reach_no_result(no_databases):
    """Boxes of keys and values reach into the next sequence, which has NaN and infinities."""
    problem = sequences.workload(2, 200, 200, head=64)
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=64, block_k=48, stages=2)
    store_kernels(no_databases, ARCH, (program, problem))
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 1, 200, 64)).astype(np.float16) for _ in range(3))
    with gensor_kernels.emulated("sm_90"):
        arguments = {"sizes": [90, 110], "key_sizes": [100, 100]}
        assert gensor_kernels.explain(gensor_kernels.attention, q, k, v, **arguments).family == FAMILY.name
        wanted = gensor_kernels.attention(q, k, v, **arguments)
        k[..., 100:, :], v[..., 100:, :] = np.nan, np.inf
        found = gensor_kernels.attention(q, k, v, **arguments)
    assert np.array_equal(found[0, 0, :90], wanted[0, 0, :90]) and np.isnan(found[0, 0, 90:]).all()


@pytest.mark.parametrize(("group", "legal"), [(1, True), (3, False), (8, True), (9, False), (64, True)])
def test_tiles_of_sequences_have_whole_groups(group, legal):
    problem = sequences.workload(4, 64, 64, heads=group, kv_heads=1, head=64)
    lattice = FamilySpace(FAMILY, problem, ARCH)
    program = FAMILY.starters(sequences.workload(4, 64, 64, head=64), ARCH)[0].replace(block_q=64, stages=2)
    assert lattice.legal(lattice.point(program)[None])[0] == legal


def test_tiles_of_sequences_are_as_many_as_any_ends_could_need():
    problem = sequences.workload(4, 1000, 1000, heads=6, kv_heads=3, head=64)
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=128)
    main, *_ = FAMILY.launches(program, problem)
    assert main.grid == 3 * ((2000 - 5) // 128 + 5)
    declared = operator(problem.operator)
    geometry = declared.geometry(problem, {each.name: each.strides() for each in declared.operands(problem)})
    assert FAMILY.tiling(program, geometry).tiles_m * 3 == main.grid


def test_a_long_prefill_is_its():
    space = Space(workload(4096, heads=16, head=128, causal=True), ARCH)
    best = {}
    for each in space.families:
        starters = np.array([each.point(p) for p in each.family.starters(space.workload, ARCH)])
        best[each.family.name] = each.potential(starters).min()
    assert set(best) == {"attention", "attention_wgmma"}
    assert best["attention_wgmma"] < 0.7 * best["attention"]


@pytest.mark.parametrize(
    ("problem", "arch", "reason"),
    [
        (workload(8, head=64), "sm_87", "sm_87 has no warpgroup products"),
        (workload(8, head=64), "sm_100", "no warpgroup products"),
        (workload(8, head=257), "sm_90", "heads of up to 256 elements, got 257: "),
        (workload(8, head=60), "sm_90", "queries from addresses and rows that are multiples of 16 bytes only"),
        (workload(8, head=64, mask="float64"), "sm_90", "not float64: cast the mask"),
        (sequences.workload(4, 8, 64, page_size=16, head=64), "sm_90", "read keys one after the other, not in pages"),
    ],
)
def test_the_family_says_why_it_does_not_serve(problem, arch, reason):
    assert reason in str(FAMILY.serves(problem, lookup(arch)))


@pytest.mark.parametrize(("operand", "what"), [("a", "queries"), ("b", "keys"), ("d", "values")])
def test_copies_read_adjacent_elements_of_a_head(operand, what):
    problem = workload(8, head=64)
    narrow = replace(problem, alignment=problem.align | {operand: 8})
    apart = replace(problem, layout=problem.layouts | {operand: "s"})
    for each in (narrow, apart):
        assert f"read {what} from addresses" in str(FAMILY.serves(each, ARCH))


def test_which_strides_copies_read():
    problem = workload(100, 60, batch=2, heads=6, kv_heads=2, head=64)
    declared = operator(problem.operator)
    usual = {each.name: each.strides() for each in declared.operands(problem)}

    def reads(**strides):
        return FAMILY.reads(problem, declared.geometry(problem, usual | strides))

    assert reads()
    assert reads(b=(0, 60 * 64, 64, 1))  # one batch entry again and again
    assert not reads(b=(0, 60 * 64, 0, 1)) and not reads(d=(0, 60 * 64, -64, 1))
    assert not reads(a=(0, -6400, 64, 1)) and not reads(a=(0, 0, 64, 1))


def test_boxes_of_queries_have_all_heads_of_a_group():
    problem = workload(100, 60, batch=2, heads=6, kv_heads=2, head=72)
    program = FAMILY.starters(problem, ARCH)[0].replace(block_q=128, block_k=48)
    main, *_ = FAMILY.launches(program, problem)
    q, k, v = (described(packed(problem), each) for each in main.maps)
    assert [each.address for each in (q, k, v)] == [1 << 20, 2 << 20, 4 << 20]
    # Heads of a group next to each other; 43 queries in 3 heads are 129 rows.
    assert (q.extents, q.box) == ((72, 3, 100, 2, 2), (64, 3, 43))
    assert q.strides == (100 * 144, 144, 3 * 100 * 144, 6 * 100 * 144)
    assert (k.extents, k.box) == ((72, 60, 2, 2, 1), (64, 48))
    assert k.strides == v.strides == (144, 60 * 144, 2 * 60 * 144, 16) and v.box == k.box
    assert main.grid == 2 * 2 * 3  # 42 queries to a tile
    once = described(packed(problem, d=(0, 60 * 72, 72, 1)), main.maps[2])
    assert (once.extents, once.strides) == ((72, 60, 2, 1, 1), (144, 60 * 144, 16, 16))


def test_maps_are_encoded_anew_for_other_values():
    problem = workload(100, 60, head=64)
    program = FAMILY.starters(problem, ARCH)[0]
    here, there = (packed(problem, (*POINTERS[:4], address)) for address in (4 << 20, 5 << 20))
    assert call_key(here, False, False, third=True) != call_key(there, False, False, third=True)
    assert call_key(here, False, False) == call_key(there, False, False)
    keys = [[key(each, wanted) for wanted in FAMILY.launches(program, problem)[0].maps] for each in (here, there)]
    assert [one == other for one, other in zip(*keys, strict=True)] == [True, True, False]


@pytest.mark.parametrize(("group", "legal"), [(1, True), (7, True), (9, True), (10, False), (16, True), (48, False)])
def test_groups_whose_boxes_fit(group, legal):
    problem = workload(64, heads=group, kv_heads=1, head=64)
    lattice = FamilySpace(FAMILY, problem, ARCH)
    program = FAMILY.starters(workload(64, head=64), ARCH)[0].replace(block_q=64, stages=2)
    assert lattice.legal(lattice.point(program)[None])[0] == legal


@pytest.mark.parametrize("causal", [True, "upper_left"])
def test_steps_that_no_row_sees_are_no_work(causal):
    lattice = FamilySpace(FAMILY, workload(1024, heads=6, kv_heads=2, causal=causal), ARCH)
    program = FAMILY.starters(lattice.workload, ARCH)[0].replace(block_q=128)
    seen = np.minimum(np.arange(42, 1024 + 42, 42), 1024)
    assert lattice.explain(lattice.point(program))["iterations"] == pytest.approx(
        np.mean(np.ceil(seen / program["block_k"]))
    )


def test_the_exchange_of_registers_is_in_the_code():
    problem = workload(1024, heads=4, head=128)
    source = candidate(FAMILY, FAMILY.starters(problem, ARCH)[0], problem).source()
    sass = disassemble(compile_cubin(source, ARCH.target).cubin, ARCH.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    assert sass["attention_wgmma"].opcodes["USETMAXREG"] == 2
