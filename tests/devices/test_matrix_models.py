"""The emulator's mma.sync, ldmatrix and shuffle against the fragment layouts of the PTX ISA (section 9.7.14)."""

import itertools
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.devices.emulator import KernelFault
from tests.doubles.emulated_kernels import execute, toy

MULTIPLY = toy("fragments")
LANES = np.arange(32)
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
GROUP, MEMBER = LANES // 4, LANES % 4


@dataclass(frozen=True)
class Shape:
    """An instruction; `a`, `b` and `c` give the place of element i of every lane, as the PTX ISA prints it."""

    name: str
    mode: int
    m: int
    k: int
    dtype: type
    sum_dtype: type
    dtype_b: type | None = None  # where it is another one

    def a(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        if self.name == "m16n8k16":
            upper = i < 2 or 4 <= i < 6
            return GROUP + (0 if upper else 8), MEMBER * 2 + (i & 1) + (8 if i >= 4 else 0)
        if self.name == "m16n8k8":
            return GROUP + (0 if i < 2 else 8), MEMBER * 2 + (i & 1)
        if self.name == "m16n8k8_tf32":
            return GROUP + (0 if i in (0, 2) else 8), MEMBER + (0 if i in (0, 1) else 4)
        if self.name == "m16n8k32":
            upper = i < 4 or 8 <= i < 12
            return GROUP + (0 if upper else 8), MEMBER * 4 + (i & 3) + (16 if i >= 8 else 0)
        if self.dtype is np.float64 and self.m == 16:
            return GROUP + 8 * (i % 2), MEMBER + 2 * (i - i % 2)
        return GROUP, MEMBER * 4 + i if self.name == "m8n8k16" else MEMBER

    def b(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        rows = {
            "m16n8k16": MEMBER * 2 + (i & 1) + (8 if i >= 2 else 0),
            "m16n8k8": MEMBER * 2 + i,
            "m16n8k8_tf32": MEMBER + (4 if i == 1 else 0),
            "m16n8k32": MEMBER * 4 + (i & 3) + (16 if i >= 4 else 0),
            "m8n8k16": MEMBER * 4 + i,
        }
        return rows.get(self.name, MEMBER + 4 * i), GROUP

    def c(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return GROUP + (0 if i < 2 else 8), MEMBER * 2 + (i & 1)


SHAPES = [
    Shape("m16n8k16", 0, 16, 16, np.float16, np.float32),
    Shape("m16n8k16", 1, 16, 16, ml_dtypes.bfloat16, np.float32),
    Shape("m16n8k8", 2, 16, 8, np.float16, np.float32),
    Shape("m16n8k8_tf32", 3, 16, 8, np.float32, np.float32),
    Shape("m16n8k32", 4, 16, 32, np.int8, np.int32),
    Shape("m8n8k16", 5, 8, 16, np.int8, np.int32),
    Shape("m16n8k32", 6, 16, 32, E4M3, np.float32),
    Shape("m16n8k32", 7, 16, 32, E4M3, np.float32, E5M2),
    Shape("m16n8k32", 8, 16, 32, E5M2, np.float32, E4M3),
    Shape("m16n8k32", 9, 16, 32, E5M2, np.float32),
]


DOUBLES = [
    Shape("m8n8k4_f64", 0, 8, 4, np.float64, np.float64),
    Shape("m16n8k8_f64", 1, 16, 8, np.float64, np.float64),
    Shape("m16n8k16_f64", 2, 16, 16, np.float64, np.float64),
    Shape("m16n8k4_f64", 3, 16, 4, np.float64, np.float64),
]


def fragments(matrix: np.ndarray, place, per_lane: int) -> np.ndarray:
    return np.stack([matrix[place(i)] for i in range(per_lane)], axis=1).copy()


def multiply(shape, a: np.ndarray, b: np.ndarray, c: np.ndarray, kernel: str = MULTIPLY) -> np.ndarray:
    operands = [fragments(x, place, x.size // 32) for x, place in ((a, shape.a), (b, shape.b), (c, shape.c))]
    d = np.zeros_like(operands[2])
    counters = execute(kernel, [*operands, d], mode=shape.mode)
    assert counters["matrix_multiplies"] == 1
    result = np.full((shape.m, 8), -999, shape.sum_dtype)
    for i in range(d.shape[1]):
        result[shape.c(i)] = d[:, i]
    return result


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.name}-{shape.mode}-{np.dtype(shape.dtype).name}")
def test_fragments_lie_as_documented(shape):
    """Small integers multiply exactly, so any misplaced element shows."""
    rng = np.random.default_rng(shape.mode)
    most = 60 if shape.mode < 6 else 5  # 8-bit floats hold few integers, and few bits of their sums are kept
    a = rng.integers(-most, most, (shape.m, shape.k)).astype(shape.dtype)
    b = rng.integers(-most, most, (shape.k, 8)).astype(shape.dtype_b or shape.dtype)
    c = rng.integers(-15 * most, 15 * most, (shape.m, 8)).astype(shape.sum_dtype)
    want = a.astype(np.int64) @ b.astype(np.int64) + c.astype(np.int64)
    assert np.array_equal(multiply(shape, a, b, c), want)


@pytest.mark.parametrize("shape", DOUBLES, ids=lambda shape: shape.name)
def test_sums_of_doubles_are_chains_of_multiply_adds(shape):
    rng = np.random.default_rng(shape.mode)
    a, b = rng.standard_normal((shape.m, shape.k)), rng.standard_normal((shape.k, 8))
    want = rng.standard_normal((shape.m, 8))
    found = multiply(shape, a, b, want, toy("double_fragments"))
    for k in range(shape.k):
        for i, j in np.ndindex(want.shape):  # float() of a Fraction rounds once, to nearest
            want[i, j] = float(Fraction(a[i, k]) * Fraction(b[k, j]) + Fraction(want[i, j]))
    assert np.array_equal(found, want)


def test_eight_bit_floats_keep_nan_and_infinity():
    for shape, special in ((SHAPES[6], [np.nan]), (SHAPES[9], [np.nan, np.inf, -np.inf])):
        for value in special:
            a, b = np.zeros((16, 32), shape.dtype), np.ones((32, 8), shape.dtype)
            a[5, 17] = value
            found = multiply(shape, a, b, np.zeros((16, 8), np.float32))
            assert np.array_equal(found[5], np.full(8, value, np.float32), equal_nan=True)
            assert not found[:5].any() and not found[6:].any()


def test_every_half_is_read_right():
    """Subnormals, infinities and NaN included: a column of ones picks each value out of a diagonal of A."""
    shape = SHAPES[0]
    bits = np.concatenate([np.arange(0, 0x0410, 5), np.arange(0x0400, 0x7C00, 97), [0x7BFF, 0x7C00, 0x7E01]])
    for chunk in np.resize(np.concatenate([bits, bits | 0x8000]), (48, 16)).astype(np.uint16).view(np.float16):
        a, b = np.zeros((16, 16), np.float16), np.ones((16, 8), np.float16)
        a[:, 3] = chunk
        want = np.repeat(chunk[:, None].astype(np.float32), 8, axis=1)
        assert np.array_equal(multiply(shape, a, b, np.zeros((16, 8), np.float32)), want, equal_nan=True)


def test_tf32_ignores_the_low_bits():
    shape = SHAPES[3]
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)
    cut_a, cut_b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b))
    result = multiply(shape, a, b, np.zeros((16, 8), np.float32))
    assert np.allclose(result, cut_a @ cut_b, rtol=0, atol=4e-7 * 8)
    assert not np.allclose(result, a.astype(np.float64) @ b, rtol=0, atol=1e-5)


def cut(value: float, bits: int, largest: float) -> float:
    unit = 2.0 ** (np.floor(np.log2(abs(largest))) - bits + 1)
    return np.trunc(value / unit) * unit


@pytest.mark.parametrize("shape", [*SHAPES[:4], *SHAPES[6:]], ids=lambda shape: f"{shape.name}-{shape.mode}")
def test_products_are_aligned_to_the_largest_and_cut(shape):
    """Products and the sum so far are cut at the largest one's 24 bits, added and cut again, four at a time; 8-bit
    floats at 14 bits, all 32 at once.
    """
    rng = np.random.default_rng(shape.mode)
    eight = shape.mode >= 6
    bits, block, spread = (14, 32, 3) if eight else (24, 4, 6)
    a, b = (
        (rng.standard_normal(size) * 2.0 ** rng.integers(-spread, spread + 1, size)).astype(dtype)
        for size, dtype in (((16, shape.k), shape.dtype), ((shape.k, 8), shape.dtype_b or shape.dtype))
    )
    a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) if x.dtype == np.float32 else x for x in (a, b))
    c = rng.standard_normal((16, 8)).astype(np.float32)
    want = c.astype(np.float64)
    for i, j in np.ndindex(16, 8):
        for k in range(0, shape.k, block):
            terms = [want[i, j], *(a[i, k : k + block].astype(np.float64) * b[k : k + block, j].astype(np.float64))]
            total = sum(cut(term, bits, max(terms, key=abs)) for term in terms)
            want[i, j] = cut(total, bits, total) if total else 0.0
    found = multiply(shape, a, b, c)
    assert np.array_equal(found, want.astype(np.float32))
    assert not np.array_equal(found, (a.astype(np.float64) @ b.astype(np.float64) + c).astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES[4:6], ids=["m16n8k32", "m8n8k16"])
def test_int32_sums_wrap_around(shape):
    a, b = np.full((shape.m, shape.k), -128, np.int8), np.full((shape.k, 8), -128, np.int8)
    c = np.full((shape.m, 8), 2**31 - 1, np.int32)
    want = (2**31 - 1 + shape.k * 128 * 128 + 2**31) % 2**32 - 2**31
    assert np.all(multiply(shape, a, b, c) == want)


LOAD = toy("matrix_loads")


def test_ldmatrix_distributes_rows_or_columns():
    memory = np.arange(256, dtype=np.uint16).reshape(32, 8)
    for matrices, transposed in itertools.product((1, 2, 4), (0, 1)):
        result = np.zeros((32, matrices, 2), np.uint16)
        counters = execute(LOAD, [memory, result], n=matrices, mode=transposed, shared=512)
        assert counters["matrix_loads"] == 1 and counters.bank_conflicts == 0
        for m in range(matrices):
            tile = memory[8 * m : 8 * m + 8][np.arange(8) ^ 1]  # the kernel gives the rows in pairs swapped
            tile = tile.T if transposed else tile
            assert np.array_equal(result[:, m], tile.reshape(32, 2))


@pytest.mark.parametrize("matrices", [1, 2])
@pytest.mark.parametrize(("moved", "what"), [("512", "byte 512 of 512"), ("8", "misaligned")])
def test_ldmatrix_needs_valid_addresses_of_lanes_without_a_row(matrices, moved, what):
    rows = f"(thread_index() ^ 1) % (8 * N) * 16 + (thread_index() == 31 ? {moved} - (30 % (8 * N)) * 16 : 0)"
    kernel = LOAD.replace("(thread_index() ^ 1) % (8 * N) * 16", rows)
    with pytest.raises(KernelFault, match=f"{what}") as caught:
        execute(kernel, [np.zeros(256, np.uint16), np.zeros((32, matrices, 2), np.uint16)], n=matrices, shared=512)
    assert "16-byte shared access" in caught.value.message


def test_shuffle_exchanges_lanes():
    for mask in (1, 2, 4, 8, 16, 31):
        x, y = np.random.default_rng(3).standard_normal(32).astype(np.float32), np.zeros(32)
        counters = execute(LOAD, [x, y], entry="shuffle", n=mask)
        assert np.array_equal(y, x[LANES ^ 1 ^ mask]) and counters["shuffles"] == 2
