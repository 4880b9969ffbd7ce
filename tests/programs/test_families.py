"""What contraction_mma and contraction_simt say of one Program, and their potential where they compete."""

import numpy as np
import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.contraction import column
from gensor_kernels.programs.space import FamilySpace, Space
from tests.programs.workloads.contraction_harness import Case, Kernel, Problem, mma_launch, simt_launch

from .lattices import MMA, SIMT, fastest

RESOURCES = {MMA: mma_launch, SIMT: simt_launch}


def test_split_partial_sums_lie_in_rows_of_four():
    problem = workload(3, 5, 4096, dtype="float32")
    program = SIMT.starters(problem, lookup("sm_80"))[0].replace(split_k=4)
    assert SIMT.workspace(program, problem) == (4 * 3 * 8 * 4, False)
    reduce = SIMT.launches(program, problem)[1]
    assert (reduce.entry, reduce.grid, reduce.block) == ("contraction_reduce", 1, 256)
    assert SIMT.branches(program, problem) >= {"split_reduce", "edge_k"}
    assert SIMT.tile(program)["split"] == 4


def test_families_say_why_they_do_not_serve():
    assert "complex64" in str(MMA.serves(workload(8, 8, 8, dtype="complex64"), lookup("sm_80")))
    assert "sm_75" in str(MMA.serves(workload(8, 8, 8, dtype="bfloat16"), lookup("sm_75")))
    assert "tf32" in str(MMA.serves(workload(8, 8, 8, dtype="float32", math="tf32"), lookup("sm_75")))
    floats = workload(512, 512, 512, dtype="float32")
    assert "faster" in str(MMA.serves(floats, lookup("rtx-4090"))) and "faster" in str(
        MMA.serves(floats, lookup("a10"))
    )
    assert "384" in str(MMA.serves(floats.with_sizes(k=383), lookup("sm_80")))
    assert "plain sums" in str(MMA.serves(workload(512, 512, 512, dtype="float32", out="float16"), lookup("sm_80")))
    served = Space(workload(17, 17, 8, dtype="float64"), lookup("sm_86"))
    assert [x.family.name for x in served.families] == ["contraction_simt"]
    with pytest.raises(KeyError):
        served.family("contraction_mma")


@pytest.mark.parametrize(
    ("part", "least"), [("a100-40gb", 2.4), ("h100-sxm", 1.5), ("orin-nano-8gb", 1.35), ("b200", 1.35)]
)
def test_parts_of_floats_are_predicted_faster_where_the_rates_allow_it(part, least):
    """Six products on tensor cores against one multiply-add: starters of both families, 4096^3."""
    problem, arch = workload(4096, 4096, 4096, dtype="float32"), lookup(part)
    in_parts, plain = (fastest(family, problem, arch) for family in (MMA, SIMT))
    assert plain / in_parts >= least
    assert 2 * 4096**3 / in_parts <= arch.fastest("float32")


def conflicts_per_iteration(program, problem, family):
    """Shared-memory conflicts of one main-loop iteration of one block, counted by the emulator."""
    kernel = Kernel(family.name, family.constants(program, problem), RESOURCES[family])
    few, many = (
        Problem(kernel, Case(program["block_m"], program["block_n"], program["block_k"] * count)).run(races=False)
        for count in (2, 4)
    )
    return (many.bank_conflicts - few.bank_conflicts) / 2


@pytest.mark.parametrize("layout", ["kn", "mk"])
@pytest.mark.parametrize("swizzle", [0, 1])
def test_fragment_conflicts_are_those_the_emulator_counts(layout, swizzle):
    problem = workload(96, 48, 64, trans_a=layout[0] == "m", trans_b=layout[1] == "k")
    lattice = FamilySpace(MMA, problem, lookup("sm_80"))
    program = MMA.starters(problem, lookup("sm_80"))[0]
    program = program.replace(block_m=96, block_n=48, block_k=32, warp_m=48, warp_n=24, swizzle=swizzle)
    columns = lattice.columns(lattice.point(program)[None])
    reads = columns[column.READ_CLOCKS["a"]] + columns[column.READ_CLOCKS["b"]]
    ideal = (48 + 24) * 32 * 2 / 128
    modelled = float((reads - ideal)[0] * columns[column.DOWN][0] * columns[column.ACROSS][0])
    assert (modelled == 0) == bool(swizzle)
    assert conflicts_per_iteration(program, problem, MMA) == modelled


@pytest.mark.parametrize(("thread_n", "vthread_n", "free"), [(8, 2, True), (8, 1, False)])
def test_virtual_threads_avoid_conflicts(thread_n, vthread_n, free):
    problem = workload(32, 64, 32, dtype="float32", trans_a=True)
    lattice = FamilySpace(SIMT, problem, lookup("sm_80"))
    program = SIMT.starters(problem, lookup("sm_80"))[0].replace(
        block_m=32, block_n=64, block_k=8, thread_m=4, thread_n=thread_n, vthread_m=1, vthread_n=vthread_n, lanes_m=4
    )
    assert lattice.legal(lattice.point(program)[None])[0]
    columns = lattice.columns(lattice.point(program)[None])
    modelled = float(np.round((columns[column.READ_CLOCKS["a"]] + columns[column.READ_CLOCKS["b"]] - 4 - 8)[0]))
    assert (modelled == 0) == free
    warps = 2
    assert conflicts_per_iteration(program, problem, SIMT) == modelled * 8 * warps
