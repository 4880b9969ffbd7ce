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


def tensor_core(a, b, block, extra_bits, bits=23):
    """Blocks of terms aligned with the accumulator to the largest exponent and cut, as tensor cores do."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], block):
        terms = a[:, start : start + block, None] * b[None, start : start + block]
        terms = np.concatenate([total[:, None], terms], axis=1)
        largest = np.abs(terms).max(axis=1, keepdims=True)
        quantum = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - bits - extra_bits)
        summed = truncate(terms, quantum).sum(axis=1)
        size = np.where(summed != 0, np.abs(summed), 1.0)
        total = truncate(summed, np.exp2(np.floor(np.log2(size)) - bits))
    return total


def summed_in(accumulator, order=None):
    """Return a kernel that rounds every multiply-add."""
    return lambda a, b: sequential(a, b, accumulator, order and order(a.shape[1]))


def factors_in(dtype):
    """Return a kernel that rounds the factors, and sums in float32."""
    return lambda a, b: sequential(round_to(dtype, a), round_to(dtype, b), "float32")


def cores(part):
    return lambda a, b: tensor_core(a, b, *TENSOR_CORES[part])


def tf32_cores(a, b):
    return tensor_core(round_to("tf32", a), round_to("tf32", b), 4, 0)


TENSOR_CORES = {"V100": (4, 0), "T4": (4, 1), "A100": (8, 1), "H100": (16, 2)}
SINGLE, TF32 = {"dtype": "float32"}, {"dtype": "float32", "math": "tf32"}
HALVES = [{"dtype": dtype, "out": "float32"} for dtype in ("float16", "bfloat16")]
#: Options of a Workload, and a right kernel.
RIGHT = {
    "forwards": (SINGLE, summed_in("float32")),
    "backwards": (SINGLE, summed_in("float32", lambda k: range(k)[::-1])),
    "strided": (SINGLE, summed_in("float32", lambda k: np.argsort(np.arange(k) % 7, kind="stable"))),
    "split 5": (SINGLE, lambda a, b: split(a, b, "float32", 5)),
    "pairwise": (SINGLE, pairwise),
    "tf32": (TF32, tf32_cores),
} | {f"{each['dtype']} of {part}": (each, cores(part)) for each in HALVES for part in TENSOR_CORES}
CANCELLING, RANDOM_SIGNS = (normal, wide), (normal, sparse, wide)
#: Options of a Workload, a kernel that is wrong, data that show it, and the least ratio of errors to the bound.
WRONG = {
    "tf32": (SINGLE, tf32_cores, RANDOM_SIGNS, 4),
    "factors of tf32": (SINGLE, factors_in("tf32"), RANDOM_SIGNS, 4),
    # In sums of one sign, the roundings of the sum exceed those of TF32: verification uses random signs.
    "tf32, one sign": (SINGLE, tf32_cores, (positive,), 1.2),
    "factors of tf32, one sign": (SINGLE, factors_in("tf32"), (positive,), 1.2),
    "factors of bfloat16": (TF32, factors_in("bfloat16"), RANDOM_SIGNS, 1),
    "doubles in float32": ({"dtype": "float64"}, summed_in("float32"), (normal,), 1),
}
for short in ("float16", "bfloat16"):
    WRONG |= {f"{each['dtype']} in {short}": (each, summed_in(short), DATA, 1.5) for each in (*HALVES, SINGLE)}
    # Where C is stored as coarsely as the accumulator, elements that cancel show it.
    stored = [{"dtype": each["dtype"]} for each in HALVES]
    WRONG |= {f"{each['dtype']} as {short}": (each, summed_in(short), CANCELLING, 1.5) for each in stored}


def verdict(actual, a, b, w, **options):
    return check(encode(w.dtype["c"], actual), matmul.expect(a, b, w, **options))


def passes(actual, a, b, w):
    """Whether a result is within both bounds, of any operands and of structured ones."""
    return all(verdict(actual, a, b, w, structured=structured).ok for structured in (False, True))


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(name):
    options, kernel = RIGHT[name]
    for data, k in CASES:
        a, b, x, y = operands(data, options["dtype"], k)
        assert passes(kernel(x, y), a, b, matmul.workload(M, N, k, **options)), (data, k)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_fail(name):
    options, kernel, shown_by, least = WRONG[name]
    for data, k in [(data, k) for data, k in CASES if data in shown_by and k > 1]:
        a, b, x, y = operands(data, options["dtype"], k)
        result = verdict(kernel(x, y), a, b, matmul.workload(M, N, k, **options))
        assert not result.ok and result.ratio > least, (data, k, result.message)


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

ROWS = 24


def summed(a, b, kept):
    """A B as tensor cores sum it, 32 terms at a time; sums are added in float32 after ``kept`` terms."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(0, a.shape[1], kept):
        total = total + tensor_core(a[:, k : k + kept], b[k : k + kept], 32, 0, bits=13).astype(np.float32)
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
