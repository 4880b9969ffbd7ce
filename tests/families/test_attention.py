"""The attention families in addition to their contracts (test_contract.py): work they skip, operands, machine code."""

from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import instructions
from gensor_kernels.devices.emulator import build
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.problem import Problem
from tests.campaign_size import sample
from tests.doubles.stored import store_kernels

from .verified import machine_code, verdict_without

FAMILY, WARPGROUPS, HOPPER = FAMILIES["attention"], FAMILIES["attention_wgmma"], lookup("sm_90")


def iterations(family, problem, arch, **values):
    """Steps of a block, on average, of the first starter with these values, and the starter."""
    lattice = FamilySpace(family, problem, lookup(arch))
    program = family.starters(problem, lattice.arch)[0].replace(**values)
    return lattice.explain(lattice.point(program))["iterations"], program


@pytest.mark.parametrize("causal", [True, "upper_left"])
def test_steps_that_no_row_sees_are_no_work(causal):
    steps, program = iterations(FAMILY, workload(1024, heads=4, causal=causal), "sm_87")
    blocks = np.arange(program["block_q"], 1025, program["block_q"])
    assert steps == np.mean(np.ceil(blocks / program["block_k"]))
    whole, other = iterations(FAMILY, workload(1024, heads=4), "sm_87")
    assert whole == 1024 / other["block_k"]
    # Three heads share a row of keys: 42 queries of 128 rows.
    shared = workload(1024, heads=6, kv_heads=2, causal=causal)
    steps, program = iterations(WARPGROUPS, shared, "sm_90", block_q=128)
    seen = np.minimum(np.arange(42, 1024 + 42, 42), 1024)
    assert steps == pytest.approx(np.mean(np.ceil(seen / program["block_k"])))


@pytest.mark.parametrize("queries", [1, 2048])
def test_steps_outside_of_the_window_are_no_work(queries):
    """Prefills and decoding steps: the steps of a block do not grow with the keys."""
    arch, window = lookup("sm_87"), (255, 0)
    lattices = [FamilySpace(FAMILY, workload(queries, k, heads=4, window=window), arch) for k in (2048, 8192)]
    whole = FamilySpace(FAMILY, workload(queries, 8192, heads=4), arch)
    program = FAMILY.starters(whole.workload, arch)[0].replace(split_k=1)
    short, far, full = (x.explain(x.point(program)) for x in (*lattices, whole))
    assert far["iterations"] <= (255 + program["block_q"]) / program["block_k"] + 2
    assert short["iterations"] <= far["iterations"] and full["iterations"] == 8192 / program["block_k"]
    assert far["dram_bytes"] < full["dram_bytes"] and far["seconds"] < full["seconds"]


@pytest.mark.parametrize(("arch", "head"), [("sm_80", 64), ("sm_80", 128), ("sm_90", 128)])
def test_a_soft_cap_is_two_special_functions_and_no_division(arch, head):
    """Per score: product, exponential, sum, reciprocal."""
    plain, capped = (workload(1024, heads=8, head=head, window=(100, None), softcap=cap) for cap in (False, True))
    program = FAMILY.starters(capped, lookup(arch))[0]
    before, after = (
        machine_code(FAMILY, problem, arch, **dict(FAMILY.starters(problem, lookup(arch))[0].values))[1].hot_loop
        for problem in (plain, capped)
    )
    scores = program["warp_q"] * program["block_k"] / 32
    special = (after["MUFU"] - before["MUFU"]) / scores
    every = (sum(after.values()) - sum(before.values())) / scores
    assert 1.9 <= special <= 2.1 and every <= 5.5, (special, every)


def hot_loop(problem, program):
    """Instructions of the loop of warpgroups by opcode: products are asynchronous, and no address is computed."""
    _, code = machine_code(WARPGROUPS, problem, "sm_90", **dict(program.values))
    names, count = WARPGROUPS.multiplies(program, problem)
    assert sum(code.hot_loop.get(name, 0) for name in names) == count
    assert not {"ELECT", "LDS"} & code.hot_loop.keys()
    return code.hot_loop


def test_the_exchange_of_registers_is_in_the_code():
    _, code = machine_code(WARPGROUPS, workload(1024, heads=4, head=128), "sm_90")
    assert code.opcodes["USETMAXREG"] == 2


@pytest.mark.parametrize(
    ("head", "causal"),
    sample([(head, causal) for head in (64, 80, 96, 128, 192, 256) for causal in (False, True)], 2),
)
def test_products_of_usual_heads_are_asynchronous(head, causal):
    """Descriptors are in uniform registers."""
    problem = workload(4096, heads=16, head=head, causal=causal)
    program = WARPGROUPS.starters(problem, HOPPER)[0]
    loop = hot_loop(problem, program)
    # Of long heads there are more descriptors than uniform registers.
    assert loop.get("R2UR", 0) <= (8 if head > 192 else 0)
    # Exponentials, two that rescale sums, and the reciprocal of a division by the heads of a group.
    assert loop["MUFU"] == program["block_k"] // 2 + 3


@pytest.mark.parametrize("head", sample([64, 128], 1))
def test_the_softmax_runs_between_the_waits_of_a_step(head):
    """Exponentials come after the wait for scores, and before the wait for the product with values."""
    problem = workload(4096, heads=16, head=head)
    program = WARPGROUPS.starters(problem, HOPPER)[0]
    binary = compile_cubin(candidate(WARPGROUPS, program, problem).source(), HOPPER.target)
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


@pytest.mark.parametrize("head", sample([64, 128], 1))
def test_packed_sequences_have_the_same_loop(head):
    """Shuffles find a block's sequence, and its numbers are uniform all the same: R2UR takes no descriptor."""
    problem = sequences.workload(8, 16384, 16384, heads=16, head=head, causal=True)
    for program in WARPGROUPS.starters(problem, HOPPER)[:3]:
        assert "R2UR" not in hot_loop(problem, program)


def test_values_of_another_sequence_reach_no_result(no_databases):
    """Boxes of keys and values reach into the next sequence, which has NaN and infinities."""
    problem = sequences.workload(2, 200, 200, head=64)
    program = WARPGROUPS.starters(problem, HOPPER)[0].replace(block_q=64, block_k=48, stages=2)
    store_kernels(no_databases, HOPPER, (program, problem))
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 1, 200, 64)).astype(np.float16) for _ in range(3))
    with gensor_kernels.emulated("sm_90"):
        arguments = {"sizes": [90, 110], "key_sizes": [100, 100]}
        assert gensor_kernels.explain(gensor_kernels.attention, q, k, v, **arguments).family == WARPGROUPS.name
        wanted = gensor_kernels.attention(q, k, v, **arguments)
        k[..., 100:, :], v[..., 100:, :] = np.nan, np.inf
        found = gensor_kernels.attention(q, k, v, **arguments)
    assert np.array_equal(found[0, 0, :90], wanted[0, 0, :90]) and np.isnan(found[0, 0, 90:]).all()


def test_calls_with_masks_of_every_broadcast_have_one_kernel(no_databases):
    """Maps of a mask follow its strides from call to call; a mask that no copy reads is served without it."""
    problem = workload(40, 48, batch=2, heads=4, kv_heads=2, head=64, mask="float16")
    program = WARPGROUPS.starters(problem, HOPPER)[0].replace(block_q=64, block_k=16, stages=2, mask_stages=2)
    store_kernels(no_databases, HOPPER, (program, problem))
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, n, m, 64)).astype(np.float16) for n, m in ((4, 40), (2, 48), (2, 48)))
    whole = rng.standard_normal((2, 4, 41, 64)).astype(np.float16)
    whole[:, :, 5], whole[:, :, 6, ::2] = -65504.0, -65504.0  # as frameworks mask

    def wanted(mask):
        keys, values = (np.repeat(each, 2, axis=1).astype(np.float64) for each in (k, v))
        scores = q.astype(np.float64) @ keys.swapaxes(2, 3) / 8 + mask
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        return weights / weights.sum(axis=3, keepdims=True) @ values

    copied = [np.broadcast_to(whole[:b, :h, :rows, :48], (2, 4, 40, 48)) for b in (1, 2) for h in (1, 4)
              for rows in (1, 40)]  # fmt: skip
    others = [whole[:, :, :40, 1:49], whole[:, :, 39::-1, :48]]
    with gensor_kernels.emulated("sm_90"):
        for mask in (*copied, *others):
            found = gensor_kernels.attention(q, k, v, mask=mask)
            # The sum of a score and -65504 is a multiple of 1 / 256 in float32.
            limits = np.where(mask.max(axis=3, keepdims=True) < -65000, 1 / 64, 4e-3)
            assert (np.abs(found - wanted(mask)) < limits).all()
            family = gensor_kernels.explain(gensor_kernels.attention, q, k, v, mask=mask).family
            assert (family == WARPGROUPS.name) == any(mask is each for each in copied)


#: Text of the kernels, what stands in its place, and whether keys are split.
DENOMINATORS = {
    "a sink of every part": ("fma_(total, kept, own)", "fma_(total, kept, own * (float)params.split)", True),
    "a sink that counts for the logarithm alone": ("0.0f : total / kept", "0.0f : (total - own) / kept", False),
    "a scaled sink": ("const float before = base;", "const float before = base * params.attention.scale;", False),
    "the sink of another head": ("* group + member);\n    const float sink", ");\n    const float sink", False),
    "a logarithm without the largest score": ("base + log_(total)", "log_(total)", False),
    "a logarithm of the keys alone": ("base + log_(total)", "base + log_(divisor)", True),
    "a logarithm of base 2": ("log_(total)", "1.442695f * log_(total)", True),
    "a logarithm of shifted scores": ("SOFTCAP ? scaled - params.attention.softcap : scaled", "scaled", False),
    "logarithms of one head": ("(i64)(entry * group + member)", "(i64)(entry * group)", False),
    "a logarithm per part": ("stores);", "stores && params.split == 1);", True),
}


@pytest.mark.parametrize("name", DENOMINATORS)
@pytest.mark.parametrize("family", [FAMILY, WARPGROUPS], ids=lambda family: family.name)
def test_wrong_denominators_are_caught(family, name, needs_emulator):
    before, after, split = DENOMINATORS[name]
    problem = workload(
        64, head=32, heads=4, kv_heads=2, sinks="float32", lse=True, softcap="shifted" in name, mask="bool"
    )
    program = family.starters(problem, HOPPER)[0].replace(block_q=64, block_k=16, split_k=2 if split else 1)
    verdict = verdict_without(before, after, candidate(family, program, problem), problem)
    assert verdict.outcome in ("wrong", "failed"), verdict


def test_options_without_sinks_and_logarithms_add_no_constants():
    """Constants of stored kernels are those of their Workloads."""
    for family in (FAMILY, WARPGROUPS):
        plain, other = workload(64, window=(5, 0)), workload(64, window=(5, 0), sinks="float16", lse=True)
        program = family.starters(plain, HOPPER)[0]
        before, after = (family.constants(program, each) for each in (plain, other))
        assert after == before | {"SINKS": 1, "SINK_TYPE": "half_t", "LSE": 1}
        assert not before.keys() & {"SINKS", "SINK_TYPE", "LSE"}


@pytest.mark.parametrize(("operand", "what"), [("a", "queries"), ("b", "keys"), ("d", "values")])
def test_copies_read_adjacent_elements_of_a_head(operand, what):
    problem = workload(8, head=64)
    narrow = replace(problem, alignment=problem.align | {operand: 8})
    apart = replace(problem, layout=problem.layouts | {operand: "s"})
    for each in (narrow, apart):
        assert f"read {what} from addresses" in str(WARPGROUPS.serves(each, HOPPER))


def test_which_strides_copies_read():
    problem = workload(100, 60, batch=2, heads=6, kv_heads=2, head=64)
    declared = operator(problem.operator)
    usual = {each.name: each.strides() for each in declared.operands(problem)}

    def reads(**strides):
        return WARPGROUPS.reads(problem, declared.geometry(problem, usual | strides))

    assert reads()
    assert reads(b=(0, 60 * 64, 64, 1))  # one batch entry again and again
    assert not reads(b=(0, 60 * 64, 0, 1)) and not reads(d=(0, 60 * 64, -64, 1))
    assert not reads(a=(0, -6400, 64, 1)) and not reads(a=(0, 0, 64, 1))


def test_which_masks_pass_through_shared_memory():
    """Tensor copies read masks with any broadcast; threads read the others."""

    def stages(keys, **mask):
        problem = workload(100, keys, heads=4, kv_heads=2, head=64, **mask)
        found = {c.name: c.values for c in WARPGROUPS.coordinates(problem, HOPPER)}
        assert all(program["mask_stages"] for program in WARPGROUPS.starters(problem, HOPPER) if "mask_stages" in found)
        return found.get("mask_stages")

    for axes in (("keys",), ("queries", "keys"), ("batch", "heads", "queries", "keys")):
        for dtype, keys in (("bool", 16), ("float16", 8), ("bfloat16", 24), ("float32", 4)):
            assert stages(keys, mask=dtype, mask_axes=axes) == (0, 1, 2)
            assert stages(keys + keys // 2, mask=dtype, mask_axes=axes) is None or (dtype, keys) == ("bfloat16", 24)
    assert stages(64) is None and stages(64, mask="float16", mask_axes=("queries",)) is None
    # Rows in the opposite order are read by mma.sync's kernels.
    problem = workload(64, head=64, mask="float16")
    declared = operator(problem.operator)
    strides = {each.name: each.strides() for each in declared.operands(problem)}
    assert WARPGROUPS.reads(problem, declared.geometry(problem, strides))
    backwards = strides | {"e": (0, 0, -64, 1)}
    assert not WARPGROUPS.reads(problem, declared.geometry(problem, backwards))


@pytest.mark.parametrize("dtype", sample(["bool", "float16", "float32"], 1))
def test_the_loop_reads_a_copied_mask_from_shared_memory(dtype):
    """By ldmatrix, or two elements at a time; no thread waits for global memory, and nothing is spilled."""
    problem = workload(1024, heads=16, head=64, mask=dtype, mask_axes=("queries", "keys"))
    program = WARPGROUPS.starters(problem, HOPPER)[0]
    _, code = machine_code(WARPGROUPS, problem, "sm_90", **dict(program.values))
    loop, keys = code.hot_loop, program["block_k"]
    assert "LDG" not in loop and (loop.get("LDSM", 0), loop.get("LDS", 0)) == {
        "bool": (0, keys // 4), "float16": (keys // 16, 0), "float32": (0, keys // 4)
    }[dtype]  # fmt: skip


def test_a_copied_mask_is_predicted_to_be_faster(needs_emulator):
    problem = workload(1024, batch=4, heads=16, head=64, mask="float16", mask_axes=("queries", "keys"))
    lattice = FamilySpace(WARPGROUPS, problem, HOPPER)
    program = WARPGROUPS.starters(problem, HOPPER)[0].replace(stages=4)
    loaded, copied = (lattice.explain(lattice.point(program.replace(mask_stages=n))) for n in (0, 2))
    assert copied["wavefronts"] < loaded["wavefronts"] and copied["seconds"] < 0.85 * loaded["seconds"]


@pytest.mark.parametrize(("group", "rows"), sample([(10, 64), (12, 128), (15, 128), (18, 64), (20, 192)], 2))
@pytest.mark.parametrize("mask", [{}, {"mask": "float16", "mask_axes": ("heads", "queries", "keys")}], ids=str)
def test_whole_queries_of_groups_that_divide_no_tile(group, rows, mask, needs_emulator):
    problem = workload(30, 40, heads=2 * group, kv_heads=2, head=64, causal=True, **mask)
    program = WARPGROUPS.starters(problem, HOPPER)[0].replace(block_q=rows, block_k=32, stages=2)
    lattice = FamilySpace(WARPGROUPS, problem, HOPPER)
    assert lattice.legal(lattice.point(program)[None])[0]
    each, run = candidate(WARPGROUPS, program, problem), Problem(Case("groups", problem), 5)
    run.run(each, build(each.source()), copies="late", order="reverse")
    assert 0 < run.check() <= 1


def test_groups_whose_queries_fill_no_tile_are_left_to_mma():
    assert all(WARPGROUPS.starters(workload(64, heads=n, kv_heads=1, head=64), HOPPER) for n in range(1, 21))
    for group in (21, 71):
        problem = workload(64, heads=group, kv_heads=1, head=64)
        assert FAMILY.starters(problem, HOPPER) and not WARPGROUPS.starters(problem, HOPPER)


def test_tiles_of_packed_sequences_have_whole_queries():
    """Seven heads of a group, as Qwen2 has: 18 queries of 128 rows; of other sequences no more tiles than they need."""
    problem = sequences.workload(8, 4096, 4096, heads=28, kv_heads=4, head=128, causal=True)
    program = WARPGROUPS.starters(problem, HOPPER)[0].replace(block_q=128)
    declared = operator(problem.operator)
    strides = {each.name: each.strides() for each in declared.operands(problem)}
    tiles = WARPGROUPS.tiling(program, declared.geometry(problem, strides)).tiles_m
    assert WARPGROUPS.launches(program, problem)[0].grid == 4 * tiles
    least = -(-4096 // 18)
    assert least <= tiles <= least + 9
