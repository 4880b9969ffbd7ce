"""The attention family in addition to its contract (test_contract.py): what it serves, splits, shares and skips."""

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate

FAMILY = FAMILIES["attention"]


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
