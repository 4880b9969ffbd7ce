"""Complex types: values and bounds in float64, Programs of both forms, and what the machine model says of them."""

import json
import sys
import types

import numpy as np
import pytest

from gensor_kernels import operators
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.expression.expression import SUM, Expression, axes, conjugate, tensor
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.sum_of_products import SumOfProducts
from gensor_kernels.operators.tolerance.base import Expected, check
from gensor_kernels.operators.types.dtypes import encode, join_parts, round_to
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv

from .lattices import SIMT
from .verified import is_right

M, N = 20, 24


def normal(rng, *shape):
    return join_parts(rng.standard_normal((*shape, 2)))


def nearly_real(rng, *shape):
    return rng.standard_normal(shape) + 1e-6j * rng.standard_normal(shape)


def positive(rng, *shape):
    return join_parts(rng.uniform(0.0, 1.0, (*shape, 2)))


def four_products(a, b, accumulator):
    """Every real multiply-add rounded to ``accumulator``."""
    total = np.zeros((a.shape[0], b.shape[1], 2))
    for i in range(a.shape[1]):
        x, y = a[:, i, None], b[None, i]
        first = np.stack([x.real * y.real, x.real * y.imag], -1)
        second = np.stack([-x.imag * y.imag, x.imag * y.real], -1)
        total = round_to(accumulator, round_to(accumulator, total + first) + second)
    return join_parts(total)


def three_products(a, b, accumulator):
    """Gauss's formula in the same way."""
    factors = [(a.real, b.real), (a.imag, b.imag), tuple(round_to(accumulator, x.real + x.imag) for x in (a, b))]
    sums = [np.zeros((a.shape[0], b.shape[1])) for _ in factors]
    for i in range(a.shape[1]):
        sums = [round_to(accumulator, s + np.outer(x[:, i], y[i])) for s, (x, y) in zip(sums, factors, strict=True)]
    real, imaginary, mixed = sums
    first = round_to(accumulator, mixed - real)
    return join_parts(np.stack([round_to(accumulator, real - imaginary), round_to(accumulator, first - imaginary)], -1))


def verdict(found, a, b, dtype, math="ieee", structured=False, steps=()):
    w = matmul.workload(M, N, a.shape[1], dtype=dtype, math=math, epilogue=[step.name for step in steps])
    return check(
        encode(dtype, found), matmul.expect(encode(dtype, a), encode(dtype, b), w, steps, structured=structured)
    )


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("k", [1, 7, 64, 1025])
@pytest.mark.parametrize("data", [normal, nearly_real, positive])
def test_right_products_pass_their_bound(data, k, structured):
    rng = np.random.default_rng(k)
    a, b = (round_to("complex64", data(rng, *shape)) for shape in ((M, k), (k, N)))
    four, three = four_products(a, b, "float32"), three_products(a, b, "float32")
    assert verdict(four, a, b, "complex64", structured=structured).ok
    assert verdict(three, a, b, "complex64", "3m", structured).ok
    assert verdict(four, a, b, "complex64", "3m", structured).ok


def test_three_products_do_not_pass_for_four():
    rng = np.random.default_rng(3)
    a, b = (round_to("complex64", nearly_real(rng, *shape)) for shape in ((M, 64), (64, N)))
    assert not verdict(three_products(a, b, "float32"), a, b, "complex64").ok


@pytest.mark.parametrize("k", [7, 64, 1025])
@pytest.mark.parametrize("math", ["ieee", "3m"])
def test_shorter_accumulators_fail(math, k):
    rng = np.random.default_rng(k)
    product = four_products if math == "ieee" else three_products
    for dtype, wrong in (("complex64", "bfloat16"), ("complex64", "float16"), ("complex128", "float32")):
        a, b = (round_to(dtype, normal(rng, *shape)) for shape in ((M, k), (k, N)))
        assert not verdict(product(a, b, wrong), a, b, dtype, math).ok
    a, b = (round_to("complex64", normal(rng, *shape)) for shape in ((M, k), (k, N)))
    assert not verdict(a @ b.conj(), a, b, "complex64", math).ok
    off = (a @ b) * (1 + 1e-4j)
    assert not verdict(off, a, b, "complex64", math).ok


def test_nan_and_infinity_are_compared_part_by_part():
    values = np.array([complex(np.inf, 1), complex(np.nan, 2), 3 - 4j])
    wanted = Expected(values, np.full(3, 0.1 + 0.1j), "complex128")
    assert check(values, wanted).ok
    for index, wrong in (
        (0, complex(-np.inf, 1)),
        (0, complex(np.inf, 2)),
        (1, 5 + 2j),
        (1, complex(2, np.nan)),
        (2, 3),
    ):
        changed = values.copy()
        changed[index] = wrong
        assert not check(changed, wanted).ok
    lost = wanted._replace(lost=True)
    assert check(np.array([complex(np.nan, 1), complex(np.inf, 2), 3 - 4j]), lost).ok
    assert not check(np.array([complex(7, 1), complex(np.inf, 2), 3 - 4j]), lost).ok
    assert "[2, 1]" in check(np.array([values[0], values[1], 3 + 9j]), wanted).message


def test_infinite_operands_in_both_forms():
    rng = np.random.default_rng(4)
    a, b = (round_to("complex64", normal(rng, *shape)) for shape in ((M, 16), (16, N)))
    a[2, 3], b[5, 6] = complex(np.inf, 1), complex(0, np.nan)
    with np.errstate(all="ignore"):
        four, three = four_products(a, b, "float32"), three_products(a, b, "float32")
        assert verdict(four, a, b, "complex64").ok and verdict(three, a, b, "complex64", "3m").ok
        assert np.isnan(four[:, 6]).all() and not np.isfinite(four[2].view(float)).any()


def test_workloads_say_what_is_conjugated_and_which_products_are_allowed():
    w = matmul.workload(8, 4, 6, dtype="complex128", trans_a=True, conjugate="ab", math="3m")
    assert dict(w.layout) == {"a": "m*", "b": "n*", "c": "n"} and w.layouts["a"] == "m" and w.conjugated["b"]
    assert Workload.from_json(w.key()) == w and w.kind == "complex128 3m"
    assert w.flops() == 8 * 8 * 4 * 6
    plain = matmul.workload(8, 4, 6, dtype="complex128")
    assert w.class_key() != plain.class_key()
    with pytest.raises(ValueError, match="'layout' of c"):
        bad = json.loads(plain.key())
        bad["layout"]["c"] = "n*"
        matmul.OPERATOR.operands(Workload.from_json(json.dumps(bad)))


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
        assert is_right(SIMT, SIMT.starters(w, lookup("sm_87"))[-1], w).worst > 0
    assert SIMT.constants(SIMT.starters(gram, lookup("sm_87"))[0], gram)["A_CONJUGATE"] == 1
    operators.operator.cache_clear()
