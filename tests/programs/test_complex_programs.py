"""Complex kernels on CUDA and tensor cores: random and default Programs of both forms, which operators have them."""

import sys
import types

import pytest

from gensor_kernels import operators
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.expression.expression import SUM, Expression, axes, conjugate, tensor
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.sum_of_products import SumOfProducts
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.contraction import column
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.campaign_size import sample

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


@pytest.mark.parametrize("number", sample(range(len(CLASSES)), 1))
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
