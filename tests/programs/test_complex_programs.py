"""Complex kernels on CUDA and tensor cores: random and default Programs of both forms, which operators have them."""

import sys
import types

import numpy as np
import pytest

from gensor_kernels import operators
from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import archs, lookup
from gensor_kernels.operators.expression.expression import SUM, Expression, axes, conjugate, tensor
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.sum_of_products import SumOfProducts
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.contraction import column
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.verify.verify import verify

from .lattices import MMA, SIMT, random_legal

CLASSES = [
    {"dtype": "complex64", "math": "3m", "conjugate": "a"},
    {"dtype": "complex64", "math": "3m", "trans_a": True, "trans_b": True, "conjugate": "b"},
    {"dtype": "complex128", "math": "3m", "trans_b": True},
    {"dtype": "complex128", "conjugate": "ab", "trans_a": True},
]


def small(space, count, seed):
    """Random legal points that the emulator runs quickly: blocks of at most 64 x 64, at most 256 threads."""
    points = random_legal(space, 600, seed)
    c = space.columns(points)
    most = 256 if space.family is SIMT else 8  # threads, or warps
    keep = (c["block_m"] * c["block_n"] <= 4096) & (c[column.DOWN] * c[column.ACROSS] <= most) & (c["split_k"] <= 4)
    return points[keep & (c["raster"] <= 2)][:count]


@pytest.mark.parametrize("number", range(len(CLASSES)))
def test_random_legal_programs_are_right(number):
    extents = (96, 80, 64) if number % 2 else (95, 79, 63)  # vectors, or element by element
    w = matmul.workload(*extents, **CLASSES[number])
    arch = lookup(("sm_87", "sm_90")[number // 2])
    space = FamilySpace(SIMT, w, arch)
    forms = set()
    for point in small(space, 4, number):
        program = space.program(point)
        found = verify(candidate(SIMT, program, w), w, use_cache=False)
        assert found.outcome == "ok" and 0 < found.worst <= 1, (program, found)
        forms.add(program["form"])
    assert forms == ({3, 4} if w.math == "3m" else {4})


@pytest.mark.parametrize(("number", "forms"), [(2, {3, 4}), (3, {4})])
def test_random_legal_programs_of_tensor_cores_are_right(number, forms):
    w, arch = matmul.workload(95, 79, 63, **CLASSES[number]), lookup(("sm_80", "sm_90")[number % 2])
    space = FamilySpace(MMA, w, arch)
    programs = {program["form"]: program for program in map(space.program, small(space, 8, seed=1))}
    assert programs.keys() == forms
    for program in programs.values():
        found = verify(candidate(MMA, program, w), w, use_cache=False)
        assert found.outcome == "ok" and 0 < found.worst <= 1, (program, found)


def test_tensor_cores_multiply_complex_numbers_of_doubles_where_they_multiply_doubles():
    double, single = matmul.workload(64, 64, 64, dtype="complex128"), matmul.workload(64, 64, 64, dtype="complex64")
    assert {arch.name for arch in archs() if MMA.serves(double, arch) is None} == {"sm_80", "sm_90"}
    assert "complex64" in str(MMA.serves(single, lookup("sm_80")))
    image = conv.workload(n=1, h=9, w=8, c=16, k_out=16, r=3, s=3, dtype="complex128", layout="nchw")
    assert MMA.serves(image, lookup("sm_80")) is None
    assert "complex" in str(FAMILIES["contraction_packed"].serves(image, lookup("sm_80")))


@pytest.mark.parametrize("part", ["a100-40gb", "h100-sxm"])
def test_tensor_cores_are_predicted_to_double_the_rate_of_complex_products(part):
    """Starters of both families, both forms."""
    problem, arch = matmul.workload(2048, 2048, 2048, dtype="complex128", math="3m"), lookup(part)
    seconds = {}
    for family in (MMA, SIMT):
        space, starters = FamilySpace(family, problem, arch), family.starters(problem, arch)
        each = space.potential(np.array([space.point(program) for program in starters]))
        seconds[family] = {
            form: min(s for p, s in zip(starters, each, strict=True) if p["form"] == form) for form in (3, 4)
        }
    assert seconds[SIMT][4] / seconds[MMA][4] > 1.8 and min(seconds[SIMT].values()) / seconds[MMA][3] > 1.8
    assert seconds[MMA][3] < 0.9 * seconds[MMA][4]


def test_starters_compile_without_spills():
    requests, targets = [], ("sm_75", "sm_87", "sm_90")
    for number, each in enumerate(CLASSES):
        w = matmul.workload(1024, 1024, 1024, **each)
        for target in targets[number % 2 :: 2] if number < 2 else targets[:2]:
            arch = lookup(target)
            # Without the promise ptxas may spill a few bytes to reach a round number of registers.
            programs = [p.replace(min_blocks=1) for p in SIMT.starters(w, arch)[:4]]
            requests += [(candidate(SIMT, p, w).source(), arch.target) for p in programs]
    w, arch = matmul.workload(1024, 1024, 1024, **CLASSES[2]), lookup("sm_90")
    requests += [(candidate(MMA, program, w).source(), arch.target) for program in MMA.starters(w, arch)[1:2]]
    for binary in compile_many(requests):
        assert binary.error is None and binary.spill_bytes == 0, (binary.target, binary.error, binary.spill_bytes)


def declared_conjugate():
    """C[i, j] = sum over k of conj(A[k, i]) B[k, j]: Gram's matrix of two bases."""
    i, j, k = axes("i j k")
    a, b = tensor("a", k, i), tensor("b", k, j)
    return Expression("c", (i, j), conjugate(a[k, i]) * b[k, j], SUM)


def test_other_operators_take_complex_numbers_or_say_that_they_do_not(monkeypatch):
    module = types.ModuleType(f"{operators.__name__}.gram")
    module.OPERATOR = SumOfProducts("gram", declared_conjugate)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(operators.MODULES, "gram", "gram")
    gram = module.OPERATOR.workload({"i": 40, "j": 36, "k": 52}, "complex64")
    window = conv.workload(n=1, h=9, w=8, c=16, k_out=16, r=3, s=3, dtype="complex128", math="3m")
    for w in (gram, window):
        assert w.flops() % 8 == 0
        found = verify(candidate(SIMT, SIMT.starters(w, lookup("sm_87"))[-1], w), w, use_cache=False)
        assert found.outcome == "ok" and 0 < found.worst <= 1, found
    assert SIMT.constants(SIMT.starters(gram, lookup("sm_87"))[0], gram)["A_CONJUGATE"] == 1
    operators.operator.cache_clear()


def test_ops_without_complex_kernels_say_so(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text("op,shape,axes,dtype\nreduce_sum,8x16,1,complex64\nsoftmax,8x16,1,complex128\n")
    for row in read_shapes(path):
        with pytest.raises(UnsupportedError, match=r"rows of complex(64|128) are not folded"):
            Space(row.workload, lookup("sm_87"))
