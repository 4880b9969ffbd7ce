"""The attention family beside its contract (test_contract.py): what it serves, splits, shares and skips."""

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.build.pool import candidate

FAMILY = FAMILIES["attention"]


@pytest.mark.parametrize(
    ("head", "arch"),
    [(32, "sm_75"), (64, "sm_87"), (80, "sm_90"), (96, "sm_87"), (128, "sm_75"), (128, "sm_90"), (256, "sm_87")],
)
def test_starters_of_usual_heads_do_not_spill(head, arch):
    problem = workload(512, heads=8, head=head)
    target = lookup(arch).target
    for program in FAMILY.starters(problem, lookup(arch))[:2]:
        binary = compile_cubin(candidate(FAMILY, program, problem).source(), target)
        assert binary.error is None, binary.error
        assert binary.entries["attention"].spill_bytes == 0, program.to_json()


def test_parts_of_the_keys_are_combined_by_a_second_launch():
    problem = workload(1, 1000, batch=3, heads=4, kv_heads=2, head=10)
    program = FAMILY.starters(problem, lookup("sm_80"))[0].replace(split_k=4, vector_c=4)
    # 3 * 4 rows of 10 elements, padded to 12, and two numbers each; pairs of outputs a thread.
    assert FAMILY.workspace(program, problem) == (4 * 12 * (12 + 2) * 4, False)
    main, combine = FAMILY.launches(program, problem)
    assert main.grid == 3 * 2 * 4
    assert (combine.entry, combine.grid, combine.block) == ("attention_combine", 1, 256)
    assert "split_reduce" in FAMILY.branches(program, problem)


def test_heads_that_share_keys_are_rows_of_one_block():
    problem = workload(1, 1024, heads=32, kv_heads=8, head=128)
    program = next(p for p in FAMILY.starters(problem, lookup("sm_90")) if p["block_q"] == 16)
    assert FAMILY.launches(program.replace(split_k=1), problem)[0].grid == 8


@pytest.mark.parametrize("causal", [True, "upper_left"])
def test_steps_that_no_row_sees_are_no_work(causal):
    lattice, whole = (FamilySpace(FAMILY, workload(1024, heads=4, causal=c), lookup("sm_87")) for c in (causal, False))
    program = FAMILY.starters(lattice.workload, lattice.arch)[0]
    steps, full = (x.explain(x.point(program))["iterations"] for x in (lattice, whole))
    blocks = np.arange(program["block_q"], 1025, program["block_q"])
    assert full == 1024 / program["block_k"]
    assert steps == np.mean(np.ceil(blocks / program["block_k"]))
    assert lattice.potential(lattice.point(program)[None]) < whole.potential(whole.point(program)[None])


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
    assert far["dram_bytes"] < full["dram_bytes"]
    potentials = [x.potential(x.point(program)[None]) for x in (lattices[1], whole)]
    assert potentials[0] < potentials[1]


@pytest.mark.parametrize(("arch", "head"), [("sm_80", 64), ("sm_80", 128), ("sm_90", 128)])
def test_a_soft_cap_is_two_special_functions_and_no_division(arch, head):
    """Per score: product, exponential, sum, reciprocal."""
    target, loops = lookup(arch).target, {}
    for capped in (False, True):
        problem = workload(1024, heads=8, head=head, window=(100, None), softcap=capped)
        program = FAMILY.starters(problem, lookup(arch))[0]
        binary = compile_cubin(candidate(FAMILY, program, problem).source(), target)
        assert binary.error is None and binary.entries["attention"].spill_bytes == 0
        code = disassemble(binary.cubin, target)
        if code is None:
            pytest.skip("nvdisasm is missing")
        loops[capped] = code["attention"].hot_loop
    scores = program["warp_q"] * program["block_k"] / 32
    special = (loops[True]["MUFU"] - loops[False]["MUFU"]) / scores
    every = (sum(loops[True].values()) - sum(loops[False].values())) / scores
    assert 1.9 <= special <= 2.1 and every <= 5.5, (special, every)


@pytest.mark.parametrize(
    ("problem", "arch", "reason"),
    [
        (workload(8, head=64, dtype="float32"), "sm_80", "two products and a softmax"),
        (
            workload(8, head=64, dtype="bfloat16"),
            "sm_75",
            "sm_75 has no tensor cores for bfloat16: cast",
        ),
        (workload(8, head=257), "sm_80", "heads of up to 256 elements, got 257: "),
        (workload(8, head=64, mask="float64"), "sm_80", "not float64: cast the mask"),
        (matmul(8, 8, 8), "sm_80", "no attention"),
    ],
)
def test_the_family_says_why_it_does_not_serve(problem, arch, reason):
    assert reason in str(FAMILY.serves(problem, lookup(arch)))


def test_attention_has_no_other_family():
    assert [x.family.name for x in Space(workload(1024, causal=True), lookup("sm_87")).families] == ["attention"]
