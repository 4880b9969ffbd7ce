"""The tolerance passes every correct kernel and no kernel with a shorter accumulator or operand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.matmul import expect, workload
from gensor_kernels.operators.tolerance.base import Expected, check
from gensor_kernels.operators.types.dtypes import decode, encode, round_to
from gensor_kernels.operators.types.epilogue import OPERATIONS, Step, apply

M, N = 24, 20
KS = (1, 7, 64, 513)


def normal(rng, *shape):
    return rng.standard_normal(shape)


def positive(rng, *shape):
    return rng.uniform(0.0, 1.0, shape)


def sparse(rng, *shape):
    return rng.standard_normal(shape) * (rng.random(shape) < 0.1)


def wide(rng, *shape):
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)


DATA = (normal, positive, sparse, wide)
#: Every kind of data at ordinary sums, and a long sum of each sign pattern.
CASES = [*((data, k) for data in DATA for k in KS), (normal, 4096), (positive, 4096)]


def operands(data, dtype, k, seed=0):
    rng = np.random.default_rng([seed, k])
    a, b = encode(dtype, data(rng, M, k)), encode(dtype, data(rng, k, N))
    return a, b, decode(dtype, a), decode(dtype, b)


def sequential(a, b, accumulator, order=None):
    """A B with every multiply-add rounded to ``accumulator`` (float32, float16 or bfloat16)."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for i in order if order is not None else range(a.shape[1]):
        total = round_to(accumulator, total + np.outer(a[:, i], b[i]))
    return total


def split(a, b, accumulator, parts):
    chunks = np.array_split(np.arange(a.shape[1]), parts)
    total = np.zeros((a.shape[0], b.shape[1]))
    for chunk in chunks:
        total = round_to(accumulator, total + sequential(a[:, chunk], b[chunk], accumulator))
    return total


def pairwise(a, b):
    terms = round_to("float32", a[:, :, None] * b[None])
    while terms.shape[1] > 1:
        if terms.shape[1] % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[:, :1])], axis=1)
        terms = round_to("float32", terms[:, ::2] + terms[:, 1::2])
    return terms[:, 0]


def truncate(values, quantum):
    return np.trunc(values / quantum) * quantum


def tensor_core(a, b, block, extra_bits):
    """Blocks of terms aligned with the accumulator to the largest exponent and cut, as tensor cores do."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], block):
        terms = a[:, start : start + block, None] * b[None, start : start + block]
        terms = np.concatenate([total[:, None], terms], axis=1)
        largest = np.abs(terms).max(axis=1, keepdims=True)
        quantum = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - 23 - extra_bits)
        summed = truncate(terms, quantum).sum(axis=1)
        size = np.where(summed != 0, np.abs(summed), 1.0)
        total = truncate(summed, np.exp2(np.floor(np.log2(size)) - 23))
    return total


RIGHT = {
    "forwards": lambda a, b: sequential(a, b, "float32"),
    "backwards": lambda a, b: sequential(a, b, "float32", range(a.shape[1])[::-1]),
    "strided": lambda a, b: sequential(a, b, "float32", np.argsort(np.arange(a.shape[1]) % 7, kind="stable")),
    "split 5": lambda a, b: split(a, b, "float32", 5),
    "pairwise": pairwise,
}
TENSOR_CORES = {"V100": (4, 0), "T4": (4, 1), "A100": (8, 1), "H100": (16, 2)}


def verdict(actual, a, b, w, **options):
    return check(encode(w.dtype["c"], actual), matmul.expect(a, b, w, **options))


def passes(actual, a, b, w):
    """Whether a result is within both bounds, of any operands and of structured ones."""
    return all(verdict(actual, a, b, w, structured=structured).ok for structured in (False, True))


@pytest.mark.parametrize("kernel", sorted(RIGHT))
def test_correct_float32_kernels_pass(kernel):
    for data, k in CASES:
        a, b, x, y = operands(data, "float32", k)
        assert passes(RIGHT[kernel](x, y), a, b, matmul.workload(M, N, k, dtype="float32")), (data, k)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensor_cores_pass_although_they_truncate(dtype):
    for data, k in CASES:
        a, b, x, y = operands(data, dtype, k)
        w = matmul.workload(M, N, k, dtype=dtype, out="float32")
        for part, (block, extra_bits) in TENSOR_CORES.items():
            assert passes(tensor_core(x, y, block, extra_bits), a, b, w), (part, data, k)


def test_tf32_products_pass_where_allowed_and_fail_elsewhere():
    for data, k in CASES:
        a, b, x, y = operands(data, "float32", k)
        actual = tensor_core(round_to("tf32", x), round_to("tf32", y), 4, 0)
        assert passes(actual, a, b, matmul.workload(M, N, k, dtype="float32", math="tf32")), (data, k)
        exact_products = sequential(round_to("tf32", x), round_to("tf32", y), "float32")
        for kernel in (actual, exact_products):
            result = verdict(kernel, a, b, matmul.workload(M, N, k, dtype="float32"))
            # In sums of one sign, the roundings of the sum exceed those of TF32: verification uses random signs.
            assert not result.ok and result.ratio > (1.2 if data is positive else 4), (data, k, result.message)


def test_bfloat16_products_fail_where_tf32_is_allowed():
    for data, k in CASES:
        a, b, x, y = operands(data, "float32", k)
        actual = sequential(round_to("bfloat16", x), round_to("bfloat16", y), "float32")
        w = matmul.workload(M, N, k, dtype="float32", math="tf32")
        assert data is positive or not verdict(actual, a, b, w).ok, (data, k)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("accumulator", ["float16", "bfloat16"])
def test_short_accumulators_fail(accumulator, dtype):
    """Also where C is stored as coarsely as the accumulator: elements that cancel show it."""
    for data, k in [case for case in CASES if case[1] > 1]:
        a, b, x, y = operands(data, dtype, k)
        # Without cancellation, a short sum's roundings are within a few roundings of a coarse C.
        for out in {dtype, "float32"} if data in (normal, wide) else {"float32"}:
            result = verdict(sequential(x, y, accumulator), a, b, matmul.workload(M, N, k, dtype=dtype, out=out))
            assert not result.ok and result.ratio > 1.5, (data, k, out, result.message)


def test_a_float32_accumulator_fails_for_float64():
    for k in KS:
        a, b, x, y = operands(normal, "float64", k)
        w = matmul.workload(M, N, k, dtype="float64")
        assert verdict(x @ y, a, b, w).ok and not verdict(sequential(x, y, "float32"), a, b, w).ok


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_a_missing_term_fails(dtype):
    for k in KS:
        rng = np.random.default_rng(k)
        a, b = (encode(dtype, 4 * rng.standard_normal(shape)) for shape in ((M, k), (k, N)))
        w = matmul.workload(M, N, k, dtype=dtype)
        assert verdict(matmul.reference(a, b), a, b, w).ok
        assert not verdict(matmul.reference(a[:, :-1], b[:-1]), a, b, w).ok, k


ACTIVATIONS = sorted(set(OPERATIONS) - {"cast"})


@pytest.mark.parametrize("out", ["float16", "float32", "bfloat16"])
def test_epilogues_in_float32_pass_and_in_half_fail(out):
    k = 200
    a, b, x, y = operands(normal, "float16", k, seed=1)
    product = tensor_core(x, y, 8, 1)
    for name in ACTIVATIONS:
        rng = np.random.default_rng(2)
        operand = rng.integers(0, 2, (M, N)) if name == "mask" else normal(rng, M, N)
        operand = decode("float16", encode("float16", operand))
        steps = [Step("scale", scalar=0.05), Step(name, operand, -1.25)]
        w = matmul.workload(M, N, k, out=out, epilogue=["scale", name])
        for rounding in ("float32", "bfloat16"):
            value = product
            for step in steps:
                value = round_to(rounding, apply(round_to(rounding, value), [step], out))
            result = verdict(value, a, b, w, steps=steps)
            assert result.ok == (rounding == "float32"), (name, rounding, result.message)


def test_a_cast_in_the_middle_may_round_to_a_neighbour():
    k = 64
    a, b, x, y = operands(normal, "float16", k)
    steps = [Step("cast"), Step("add", np.ones((M, N)))]
    w = matmul.workload(M, N, k, epilogue=["cast", "add"])
    actual = apply(sequential(x, y, "float32"), steps, "float16")
    assert verdict(actual, a, b, w, steps=steps).ok
    assert not verdict(actual + 0.03, a, b, w, steps=steps).ok


def test_integers_are_exact():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((M, 300), (300, N)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    w = matmul.workload(M, N, 300, dtype="int8")
    result = check(exact.astype(np.int32), matmul.expect(a, b, w))
    assert (result.ok, result.ratio) == (True, 0.0)
    exact[3, 4] += 1
    assert not check(exact.astype(np.int32), matmul.expect(a, b, w)).ok
    exact[3, 4] -= 1
    wrapped = matmul.workload(M, N, 300, dtype="int8", out="int8")
    assert check(exact.astype(np.int8), matmul.expect(a, b, wrapped)).ok
    bias = rng.integers(-(2**20), 2**20, N)
    steps = [Step("bias", bias)]
    biased = matmul.workload(M, N, 300, dtype="int8", epilogue=["bias"])
    expected = matmul.expect(a, b, biased, steps, integer_steps=1)
    assert check((exact + bias).astype(np.int32), expected).ok
    assert not check((exact + bias + (exact == exact.max())).astype(np.int32), expected).ok
    scaled = matmul.workload(M, N, 300, dtype="int8", out="float16", epilogue=["scale"])
    expected = matmul.expect(a, b, scaled, [Step("scale", scalar=1e-3)])
    assert check((exact.astype(np.float32) * np.float32(1e-3)).astype(np.float16), expected).ok


def test_nan_and_infinities_are_compared_by_position():
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    expected = Expected(values, np.full(4, 1e-3), "float32")
    assert check(values.astype(np.float32), expected).ok
    for index, wrong in [(0, 1.0), (0, np.inf), (1, -np.inf), (1, 3e38), (2, np.nan), (3, np.nan), (3, np.inf)]:
        actual = values.astype(np.float32)
        actual[index] = wrong
        result = check(actual, expected)
        assert not result.ok and result.ratio == np.inf, (index, wrong)
        assert f"at [{index}]" in result.message


def test_infinite_operands_through_an_epilogue():
    a = np.array([[np.inf, 1.0], [-np.inf, 1.0], [np.nan, 1.0], [1.0, 2.0]], np.float32)
    b = np.ones((2, 3), np.float32)
    w = matmul.workload(4, 3, 2, dtype="float32", epilogue="relu_tanh")
    expected = matmul.expect(a, b, w, [Step("relu"), Step("tanh")])
    right = np.tanh(np.maximum(a @ b, 0)).astype(np.float32)
    assert check(right, expected).ok
    assert not check(np.nan_to_num(right), expected).ok
    assert not check(np.where(right == 0, np.float32(1e-3), right), expected).ok


def test_overflow_of_the_output_type():
    expected = Expected(np.array([65519.0, 65521.0, 7e4, -7e4]), np.full(4, 40.0), "float16")
    for stored in ([65504, 65504, np.inf, -np.inf], [np.inf, np.inf, np.inf, -np.inf]):
        assert check(np.array(stored, np.float16), expected).ok
    for stored in ([65504, 65504, 65504, -np.inf], [np.inf, np.inf, np.inf, np.inf], [np.nan, 65504, np.inf, -np.inf]):
        assert not check(np.array(stored, np.float16), expected).ok


def test_where_the_accumulator_overflows_on_the_way_any_value_is_right():
    a, b = np.array([[3e38, 3e38, -3e38]], np.float32), np.ones((3, 1), np.float32)
    w = matmul.workload(1, 1, 3, dtype="float32")
    for stored in (np.inf, np.nan, 3e38):
        assert check(np.array([[stored]], np.float32), matmul.expect(a, b, w)).ok


def test_subnormal_results_of_a_right_kernel_pass():
    a, b = np.full((1, 3), 2.0**-20, np.float16), np.full((3, 1), 2.0**-6, np.float16)
    w = matmul.workload(1, 1, 3)
    result = check((a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16), matmul.expect(a, b, w))
    assert result.ok, result.message


# ---- The bound of sums that Hopper makes of 8-bit floats: a model of them stays below it, longer sums do not

ROWS, BLOCK = 24, 32


def cut(values, unit):
    return np.trunc(values / unit) * unit


def summed(a, b, kept):
    """A B as tensor cores sum it, 32 terms at a time; sums are added in float32 after ``kept`` terms."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    own = np.zeros(total.shape)
    for k in range(0, a.shape[1], BLOCK):
        terms = a[:, k : k + BLOCK, None] * b[None, k : k + BLOCK]
        largest = np.maximum(np.abs(terms).max(axis=1), np.abs(own))
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 14)
        own = cut(terms, unit[:, None]).sum(axis=1) + cut(own, unit)
        own = cut(own, np.ldexp(1.0, np.frexp(own)[1] - 14))
        if (k + BLOCK) % kept == 0 or k + BLOCK >= a.shape[1]:
            total, own = total + own.astype(np.float32), np.zeros(own.shape)
    return total


def ratio(k, kept, draw, structured=False, types=("float8_e4m3fn", "float8_e5m2")):
    rng = np.random.default_rng(k)
    a, b = (round_to(kind, draw(rng, shape)) for kind, shape in zip(types, ((ROWS, k), (k, ROWS)), strict=True))
    w = workload(ROWS, ROWS, k, dtype=types[0], dtype_b=types[1])
    w = replace(w, accumulator="float22")
    expected = expect(encode(types[0], a), encode(types[1], b), w, structured=structured)
    return check(summed(a, b, kept), expected).ratio


DRAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: np.abs(rng.standard_normal(shape)),
    "uniform": lambda rng, shape: rng.random(shape),
    "shifted": lambda rng, shape: rng.standard_normal(shape) + 0.5,
}


@pytest.mark.parametrize("draw", DRAWS)
def test_sums_of_128_terms_stay_within_the_bound(draw):
    for k, second in itertools.product((16, 128, 1040), ("float8_e4m3fn", "float8_e5m2")):
        types = ("float8_e4m3fn", second)
        assert ratio(k, 128, DRAWS[draw], types=types) < 0.95, (k, types)
        assert ratio(k, 128, DRAWS[draw], structured=True, types=types) < 0.5, (k, types)


def test_sums_far_out_in_the_tail_stay_within_the_bound():
    same, rows, columns, k = "float8_e4m3fn", 64, 512, 256
    rng = np.random.default_rng(9)  # which draws a sum farther off than any of a million of an H100's
    a, b = (round_to(same, rng.standard_normal(shape)) for shape in ((rows, k), (k, columns)))
    w = replace(workload(rows, columns, k, dtype=same), accumulator="float22")
    error = summed(a, b, 128) - a @ b
    scale = 2.0**-13 * (6 * np.sqrt(a**2 @ b**2) + 16 * np.abs(a @ b))  # seven standard deviations of a normal error
    assert np.max(np.abs(error) / scale) > 1.4
    assert check(summed(a, b, 128), expect(encode(same, a), encode(same, b), w)).ratio < 0.8


@pytest.mark.parametrize("draw", DRAWS)
def test_sums_of_all_terms_do_not(draw):
    assert ratio(2048, 1 << 20, DRAWS[draw], types=("float8_e4m3fn", "float8_e4m3fn")) > 1


def test_the_structured_bound_holds_where_one_term_drowns_the_others():
    def spiked(rng, shape):
        values = np.full(shape, 0.9375)
        values[(slice(None), 0) if shape[0] == ROWS else 0] = 96.0
        return values

    assert 0.5 < ratio(128, 128, spiked, structured=True) <= 1


def test_shapes_have_to_agree():
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        check(np.zeros((2, 3)), Expected(np.zeros((3, 2)), np.zeros((3, 2)), "float32"))
    assert check(np.zeros((0, 3), np.float32), Expected(np.zeros((0, 3)), np.zeros((0, 3)), "float32")).ok
