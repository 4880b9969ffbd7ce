"""Bank conflicts of contraction_mma, contraction_simt and gemv: the model's, and the emulator's."""

import numpy as np
import pytest

from gensor_kernels.devices.emulator import build
from gensor_kernels.families.contraction import column
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.problem import Problem

from .lattices import MMA, SIMT
from .verified import is_right
from .workloads import space


def conflicts_per_iteration(program, problem, family):
    """Shared-memory conflicts of one main-loop iteration of one block, counted by the emulator."""
    each = candidate(family, program.replace(split_k=1), problem)
    library, tile = build(each.source()), {axis: program[f"block_{axis}"] for axis in "mn"}

    def conflicts(steps):
        sized = Problem(Case("any", problem.with_sizes(**tile, k=program["block_k"] * steps)), 7)
        return sized.run(each, library, copies="late", order="forward").bank_conflicts

    return (conflicts(4) - conflicts(2)) / 2


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


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_best_gemv_of_aligned_half_types_has_no_conflicts(index):
    lattice = space("gemv", index)
    starters = lattice.family.starters(lattice.workload, lattice.arch)
    seconds = lattice.potential(np.array([lattice.point(program) for program in starters]))
    verdict = is_right(lattice.family, starters[int(seconds.argmin())], lattice.workload)
    assert verdict.counters["bank_conflicts"] == 0
