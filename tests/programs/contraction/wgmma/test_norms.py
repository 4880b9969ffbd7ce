"""Rows normalised after contraction_wgmma: their sums in the workspace, a second launch that finishes them."""

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.normed import with_norm
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from tests.programs.lattices import WGMMA, random_legal
from tests.programs.warpgroups import ARCH


def workload(norm, m=512, n=768, k=768, **more):
    more.setdefault("epilogue", ("bias", "add", "mul", "bias"))
    return with_norm(norm, matmul.workload(m, n, k, **more), 2)


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
