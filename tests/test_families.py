"""What family modules say of one Program: it compiles, its launches, workspace and constants."""

import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.source import bind, flatten
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.matmul import workload
from gensor_kernels.programs.space import Space

from .lattices import MMA, SIMT, every_space, random_legal, space


@every_space
def test_random_legal_programs_compile(index):
    lattice = space(index)
    for point in random_legal(lattice, 2, seed=index):
        program = lattice.program(point)
        source = bind(flatten(lattice.family.source), lattice.family.constants(program, lattice.workload))
        binary = compile_cubin(source, lattice.arch.target)
        assert binary.error is None, f"{program.to_json()}\n{binary.error}"
        assert lattice.family.name in binary.entries


@every_space
def test_launches_agree_with_the_terms(index):
    lattice = space(index)
    for point in random_legal(lattice, 20, seed=2):
        program = lattice.program(point)
        main, *rest = lattice.family.launches(program, lattice.workload)
        terms = lattice.explain(point)
        assert main.entry == lattice.family.name
        assert main.grid == terms["blocks"]
        assert main.block == 32 * terms["warps"]
        assert main.shared_bytes == terms["shared_bytes"] <= lattice.arch.smem_per_block
        workspace, zeroed = lattice.family.workspace(program, lattice.workload)
        assert not zeroed
        assert (program["split_k"] > 1) == bool(rest) == (workspace > 0) == (terms["after"] > 0)


def test_split_partial_sums_lie_in_rows_of_four():
    problem = workload(3, 5, 4096, dtype="float32")
    program = SIMT.starters(problem, lookup("sm_80"))[0].replace(split_k=4)
    assert SIMT.workspace(program, problem) == (4 * 3 * 8 * 4, False)
    reduce = SIMT.launches(program, problem)[1]
    assert (reduce.entry, reduce.grid, reduce.block) == ("contraction_reduce", 1, 256)
    assert SIMT.branches(program) >= {"split_reduce", "edge_k"}
    assert SIMT.tile(program)["split"] == 4


def test_a_compile_time_epilogue_binds_its_codes():
    problem = workload(64, 64, 64, epilogue=("bias", "relu"))
    program = MMA.starters(problem, lookup("sm_80"))[0]
    assert MMA.constants(program, problem)["EPILOGUE_CODES"] == 0
    assert MMA.constants(program.replace(epilogue_fixed=1), problem)["EPILOGUE_CODES"] == 2 | 5 << 5
    plain = workload(64, 64, 64)
    assert MMA.constants(program.replace(epilogue_fixed=1), plain)["EPILOGUE_CODES"] == 31


def test_families_say_why_they_do_not_serve():
    assert "float64" in str(MMA.serves(workload(8, 8, 8, dtype="float64"), lookup("sm_80")))
    assert "sm_75" in str(MMA.serves(workload(8, 8, 8, dtype="bfloat16"), lookup("sm_75")))
    assert "tf32" in str(MMA.serves(workload(8, 8, 8, dtype="float32", math="tf32"), lookup("sm_75")))
    served = Space(workload(8, 8, 8, dtype="float64"), lookup("sm_80"))
    assert [x.family.name for x in served.families] == ["contraction_simt"]
    with pytest.raises(KeyError):
        served.family("contraction_mma")
