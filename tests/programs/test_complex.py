"""Complex types: values and bounds in float64, Programs of both forms, and what the machine model says of them."""

import json

import numpy as np
import pytest

from gensor_kernels.dispatch.observe.record_file import Served, update, workload_row
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance.base import Expected, check
from gensor_kernels.operators.types.dtypes import decode, encode, facts, joined, parts, round_to
from gensor_kernels.operators.types.epilogue import Step, apply
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core import params
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.shapes.reader import read_shapes

SIMT = FAMILIES["contraction_simt"]
M, N = 20, 24


def normal(rng, *shape):
    return joined(rng.standard_normal((*shape, 2)))


def nearly_real(rng, *shape):
    return rng.standard_normal(shape) + 1e-6j * rng.standard_normal(shape)


def positive(rng, *shape):
    return joined(rng.uniform(0.0, 1.0, (*shape, 2)))


def four_products(a, b, accumulator):
    """Every real multiply-add rounded to ``accumulator``."""
    total = np.zeros((a.shape[0], b.shape[1], 2))
    for i in range(a.shape[1]):
        x, y = a[:, i, None], b[None, i]
        first = np.stack([x.real * y.real, x.real * y.imag], -1)
        second = np.stack([-x.imag * y.imag, x.imag * y.real], -1)
        total = round_to(accumulator, round_to(accumulator, total + first) + second)
    return joined(total)


def three_products(a, b, accumulator):
    """Gauss's formula in the same way."""
    factors = [(a.real, b.real), (a.imag, b.imag), tuple(round_to(accumulator, x.real + x.imag) for x in (a, b))]
    sums = [np.zeros((a.shape[0], b.shape[1])) for _ in factors]
    for i in range(a.shape[1]):
        sums = [round_to(accumulator, s + np.outer(x[:, i], y[i])) for s, (x, y) in zip(sums, factors, strict=True)]
    real, imaginary, mixed = sums
    first = round_to(accumulator, mixed - real)
    return joined(np.stack([round_to(accumulator, real - imaginary), round_to(accumulator, first - imaginary)], -1))


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


def test_values_round_and_come_back_part_by_part():
    z = normal(np.random.default_rng(0), 50)
    assert np.array_equal(round_to("complex64", z), z.astype(np.complex64)) and facts("complex64").itemsize == 8
    assert np.array_equal(joined(parts(z)), z) and encode("complex64", z).dtype == np.complex64
    assert np.array_equal(decode("complex64", encode("complex64", z)), round_to("complex64", z))
    odd = joined(np.array([np.inf, np.nan]))
    assert np.isinf(odd.real) and np.isnan(odd.imag) and np.isinf(round_to("complex64", odd).real)


def test_epilogues_count_real_operands_as_complex():
    v, x = np.array([1 + 2j, 3 - 1j]), np.array([2.0, 0.0])
    steps = [
        Step("scale", None, 1j),
        Step("mul", x),
        Step("add", x),
        Step("mask", np.array([1, 0]), -1.0),
        Step("cast"),
    ]
    assert np.array_equal(apply(v, steps, "complex64"), [-2 + 2j, -1])
    for name in ("relu", "tanh"):
        with pytest.raises(UnsupportedError, match=f"'{name}' is not defined for complex"):
            matmul.workload(8, 8, 8, dtype="complex64", epilogue=[name])
    assert params.pack_step(params.Step(1, 0.5 - 2j))[:8] == np.float64(-2).tobytes()


def test_workloads_say_what_is_conjugated_and_which_products_are_allowed():
    w = matmul.workload(8, 4, 6, dtype="complex128", trans_a=True, conjugate="ab", math="3m")
    assert dict(w.layout) == {"a": "m*", "b": "n*", "c": "n"} and w.layouts["a"] == "m" and w.conjugated["b"]
    assert Workload.from_json(w.key()) == w and w.kind == "complex128 3m"
    assert w.flops() == 8 * 8 * 4 * 6
    plain = matmul.workload(8, 4, 6, dtype="complex128")
    assert w.class_key() != plain.class_key()
    for wrong in ({"dtype": "float32", "math": "3m"}, {"dtype": "float64", "conjugate": "a"}, {"out": "complex64"}):
        with pytest.raises(UnsupportedError):
            matmul.workload(8, 8, 8, **wrong)
    with pytest.raises(ValueError, match="'layout' of c"):
        bad = json.loads(plain.key())
        bad["layout"]["c"] = "n*"
        matmul.OPERATOR.operands(Workload.from_json(json.dumps(bad)))


def test_bounds_count_eight_operations_to_a_multiply_add():
    arch = lookup("sm_86")  # which forms float32 products by multiply-adds alone
    real, whole = (matmul.workload(2048, 2048, 2048, dtype=dtype) for dtype in ("float32", "complex64"))
    assert roofline.bound_us(whole, arch) == pytest.approx(4 * roofline.bound_us(real, arch))
    three = matmul.workload(2048, 2048, 2048, dtype="complex64", math="3m")
    assert roofline.bound_us(three, arch) == pytest.approx(3 * roofline.bound_us(real, arch))
    space = FamilySpace(SIMT, three, arch)
    programs = SIMT.starters(three, arch)
    seconds = space.potential(np.array([space.point(p) for p in programs]))
    assert {p["form"] for p in programs} == {3, 4} and (seconds * 1e6 >= roofline.bound_us(three, arch)).all()


def test_rows_of_shapes_files_come_back(tmp_path):
    wanted = [
        matmul.workload(64, 32, 16, dtype="complex64", epilogue="scale_bias"),
        matmul.workload(64, 32, 16, dtype="complex128", math="3m", trans_a=True, conjugate="a", batch=2),
        matmul.workload(63, 31, 17, dtype="complex64", trans_b=True, conjugate="b"),
    ]
    path = tmp_path / "shapes.csv"
    update(path, {workload_row(w, Served(3, "h200")): 1 for w in wanted})
    assert {row.workload for row in read_shapes(path)} == set(wanted)
    lines = [
        "op,m,n,k,dtype,acc,epilogue,layout_a",
        "matmul,8,8,8,complex64,complex64,none,",
        "matmul,8,8,8,complex64,fp32,,",
    ]
    lines += ["matmul,8,8,8,complex64,fp64,,", "matmul,8,8,8,complex64,,relu,", "matmul,8,8,8,fp32,,,k*"]
    path.write_text("\n".join(lines) + "\n")
    first, second, wide, relu, real = read_shapes(path)
    assert first.workload == second.workload == matmul.workload(8, 8, 8, dtype="complex64")
    assert "float64" in wide.unsupported and "not defined for complex" in relu.unsupported
    assert "column 'layout_a': 'k*' is not one of m, k, s" in real.error
