"""The rows family: its lattice, its terms and launches, what it compiles to, and Programs verified on the emulator."""

from functools import lru_cache

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.source import bind, flatten
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators import operator
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.rows.views import workload
from gensor_kernels.programs.registry import program_from_json
from gensor_kernels.programs.rows.shape import OPERATIONS, view
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.search.graph import Graph
from gensor_tuner.verify.verify import verify
from tests.dispatch.rows_harness import ROWS

from .lattices import random_legal

#: arch, operator, shape, axes, dtype, epilogue: every form, layout, dtype and accumulator
SERVED = [
    ("sm_87", "reduce_sum", (4096, 1024), (1,), "float32", ""),
    ("sm_90", "reduce_mean", (1000, 300), (0,), "float16", "relu"),
    ("sm_75", "reduce_max", (64, 77, 5), (1,), "float32", ""),
    ("sm_80", "reduce_sum", (8, 16, 33, 64), (0, 2), "float64", ""),
    ("sm_87", "reduce_prod", (8, 16, 33, 20), (1, 3), "bfloat16", ""),
    ("sm_89", "argmax", (512, 1000), (1,), "float16", ""),
    ("sm_90", "argmin", (512, 1000), (0,), "int8", ""),
    ("sm_87", "reduce_sum", (100, 999), (1,), "int32", ""),
    ("sm_87", "l2_norm", (1, 4096, 1024), (1, 2), "float32", ""),
    ("sm_90", "reduce_var", (300, 2048), (1,), "float32", ""),
    ("sm_80", "logsumexp", (300, 2048), (0,), "float32", "scale"),
    ("sm_87", "softmax", (4096, 4096), (1,), "float16", ""),
    ("sm_75", "softmax", (100, 197), (1,), "float16", ""),
    ("sm_120", "log_softmax", (16, 1000, 64), (1,), "float32", ""),
    ("sm_90", "layernorm", (1024, 768), (1,), "float16", "mul_bias"),
    ("sm_87", "rmsnorm", (512, 4096), (1,), "bfloat16", "mul"),
    ("sm_87", "rmsnorm", (512, 100), (0,), "float64", ""),
    ("sm_87", "elementwise", (128, 256, 14, 14), (), "float32", "relu"),
]
IDS = [f"{name}-{dtype}-{arch}" for arch, name, _, _, dtype, _ in SERVED]
every = pytest.mark.parametrize("index", range(len(SERVED)), ids=IDS)


@lru_cache
def space(index: int) -> FamilySpace:
    arch, name, shape, axes, dtype, epilogue = SERVED[index]
    return FamilySpace(ROWS, workload(name, shape, axes, dtype, epilogue=epilogue), lookup(arch))


@every
def test_codes_programs_and_levels(index):
    lattice = space(index)
    points = random_legal(lattice, 40)
    assert (lattice.decode(lattice.encode(points)) == points).all()
    for point in points[:5]:
        program = lattice.program(point)
        assert (lattice.point(program) == point).all()
        assert program_from_json(program.to_json()) == program
    starters = lattice.family.starters(lattice.workload, lattice.arch)
    assert 4 <= len(starters) <= 8
    assert lattice.legal(np.array([lattice.point(program) for program in starters])).all()
    assert lattice.legal(lattice.start()[None])[0]


@every
def test_launches_and_tiling_agree_with_the_terms(index):
    lattice = space(index)
    given, w = operator(lattice.workload.operator), lattice.workload
    strides = {each.name: each.strides() for each in given.operands(w)}
    geometry = given.geometry(w, strides)
    for point in random_legal(lattice, 20, seed=2):
        program = lattice.program(point)
        main, *rest = ROWS.launches(program, w)
        terms = lattice.explain(point)
        assert (main.entry, main.block) == ("rows", 32 * terms["warps"])
        assert main.grid == terms["blocks"]
        assert main.shared_bytes == terms["shared_bytes"] <= lattice.arch.smem_per_block
        tiling = ROWS.tiling(program, geometry)
        assert tiling.tiles_m * tiling.tiles_n * tiling.split == main.grid
        assert (tiling.split - 1) * tiling.k_per_split < geometry.sizes[2] <= tiling.split * tiling.k_per_split
        workspace, zeroed = ROWS.workspace(program, w)
        assert not zeroed
        assert (program["split_k"] > 1) == bool(rest) == (workspace > 0) == (terms["after"] > 0)
        if rest:
            maps = view(w).maps
            assert (rest[0].entry, rest[0].grid) == ("rows_reduce", main.grid // (1 if maps else tiling.split))


@every
def test_what_is_legal_compiles_without_spills(index):
    lattice = space(index)
    target = lattice.arch.target
    for point in random_legal(lattice, 2, seed=index):
        program = lattice.program(point).replace(min_blocks=0)
        binary = compile_cubin(bind(flatten(ROWS.source), ROWS.constants(program, lattice.workload)), target)
        assert binary.error is None, f"{program.to_json()}\n{binary.error}"
        assert "warning" not in binary.log
        assert all(entry.spill_bytes == 0 for entry in binary.entries.values()), program.to_json()


@pytest.mark.parametrize("target", ["sm_75", "sm_87", "sm_90a"])
@pytest.mark.parametrize("index", [0, 1, 11, 14])
def test_starters_compile_for_every_generation(index, target):
    lattice = space(index)
    program = ROWS.starters(lattice.workload, lattice.arch)[1]
    binary = compile_cubin(bind(flatten(ROWS.source), ROWS.constants(program, lattice.workload)), target)
    assert binary.error is None and binary.spill_bytes == 0


@every
def test_starters_and_random_programs_are_right(index):
    lattice = space(index)
    programs = ROWS.starters(lattice.workload, lattice.arch)
    chosen = [*programs[index % 3 :: 3], *map(lattice.program, random_legal(lattice, 2, seed=index))]
    for program in chosen:
        verdict = verify(candidate(ROWS, program, lattice.workload), lattice.workload)
        assert verdict.outcome == "ok", f"{program.to_json()}\n{verdict.detail}"
        assert verdict.counters["bank_conflicts"] == 0 or program["keep"] == 2


@pytest.mark.parametrize("index", [0, 3, 11, 13])
def test_reachability_equals_enumeration(index):
    lattice = space(index)
    kept = {"threads_k": (1, 8, 32, 128), "threads_m": (1, 4, 32), "split_k": (1, 2, 8), "min_blocks": (0, 2)}
    small = FamilySpace(ROWS, lattice.workload, lattice.arch, restrict=kept)
    graph = Graph(small)
    codes = []
    for begin in range(0, graph.size, 1 << 17):
        points = graph.decode(np.arange(begin, min(begin + (1 << 17), graph.size)))
        codes.append(graph.encode(points[small.legal(points)]))
    legal = np.sort(np.concatenate(codes))
    assert legal.size > 100
    assert np.array_equal(graph.reachable(graph.decode(legal[-1:])), legal)


@pytest.mark.parametrize(
    ("arch", "name", "shape", "axes", "dtype"),
    [
        ("sm_87", "softmax", (4096, 8192), (1,), "float16"),
        ("sm_90", "softmax", (4096, 8192), (1,), "float16"),
        ("sm_87", "reduce_sum", (65536, 1024), (1,), "float32"),
        ("sm_90", "reduce_sum", (1024, 65536), (0,), "float32"),
        ("sm_90", "l2_norm", (1, 4096, 1024), (1, 2), "float32"),
        ("sm_87", "layernorm", (4096, 1024), (1,), "float16"),
    ],
)
def test_the_best_default_is_near_the_bound(arch, name, shape, axes, dtype):
    part, w = lookup(arch), workload(name, shape, axes, dtype)
    lattice = FamilySpace(ROWS, w, part)
    points = random_legal(lattice, 4000, seed=1)
    assert lattice.potential(points).min() * 1e6 <= 2 * bound_us(w, part)


def test_one_row_alone_is_split():
    w, arch = workload("l2_norm", (1, 4096, 1024), (1, 2), "float32"), lookup("sm_90")
    lattice = FamilySpace(ROWS, w, arch)
    points = random_legal(lattice, 4000, seed=1)
    columns = lattice.columns(points)
    seconds = lattice.potential(points)
    assert columns["split_k"][int(np.argmin(seconds))] >= 16
    assert seconds[columns["split_k"] == 1].min() > 3 * seconds.min()


def test_who_serves_what():
    arch = lookup("sm_87")
    assert "no rows" in str(ROWS.serves(matmul(8, 8, 8), arch))
    assert "no epilogue" in str(ROWS.serves(workload("argmax", (8, 8), (1,), "float32", epilogue="relu"), arch))
    served = Space(workload("softmax", (8, 8), (1,), "float32"), arch)
    assert [each.family.name for each in served.families] == ["rows"]


def test_operations_are_numbered_as_in_the_source():
    text = flatten("rows.cu")
    names = {"l2_norm": "L2_NORM", "var": "VARIANCE"}
    for name, code in OPERATIONS.items():
        assert f" {names.get(name, name.upper())} = {code}" in text
