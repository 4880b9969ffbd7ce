"""Two results of one call: the same but for rounding, or not."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.devices import agreement
from gensor_kernels.devices.agreement import sample

RNG = np.random.default_rng(0)
DTYPES = ("float16", "float32", "float64")


def agree(xp, result, expected):
    return agreement.agree(xp, result, sample(expected))


def product(dtype, k=512):
    a, b = (RNG.standard_normal(shape).astype(dtype) for shape in ((96, k), (k, 80)))
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


def test_roundings_agree_and_lost_terms_do_not():
    """Every second step of k was lost in some tiles: the effect of a wait that ptxas left out on an H100."""
    for dtype in DTYPES:
        a, b, exact = product(dtype)
        assert agree(np, (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype), exact.astype(dtype))
        assert agree(np, exact.astype(np.float16).astype(dtype), exact.astype(dtype))
        wrong = exact.copy()
        wrong[:16] = (a.astype(np.float64)[:16, ::2]) @ b.astype(np.float64)[::2]
        assert not agree(np, wrong.astype(dtype), exact.astype(dtype))


def test_bfloat16_is_compared_by_its_bits(monkeypatch):
    *_, exact = product("float32")
    right, wrong = (each.astype(ml_dtypes.bfloat16) for each in (exact + 0.01, np.where(exact > 0, exact, 0)))
    for most in (1 << 22, 1000):
        monkeypatch.setattr(agreement, "MOST", most)
        assert agree(np, right, exact.astype(ml_dtypes.bfloat16))
        assert not agree(np, wrong, exact.astype(ml_dtypes.bfloat16))


def test_types_that_are_not_compared():
    ones = np.ones((64, 64), ml_dtypes.float8_e4m3fn)
    assert agree(np, ones, np.zeros_like(ones))
    assert agree(np, np.zeros(4, np.int64), np.ones(4, np.int64))
    assert agree(np, np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))


def test_a_tile_without_results_does_not_agree():
    exact = RNG.standard_normal((128, 128)).astype(np.float32)
    wrong = exact.copy()
    wrong[:16, :16] = np.nan
    assert not agree(np, wrong, exact) and agree(np, exact, exact)


def test_complex_numbers():
    exact = RNG.standard_normal((64, 64)) + 1j * RNG.standard_normal((64, 64))
    assert agree(np, exact.astype(np.complex64), exact.astype(np.complex64)) and not agree(np, exact.conj(), exact)


def test_large_results_are_sampled(monkeypatch):
    monkeypatch.setattr(agreement, "MOST", 1000)
    exact = RNG.standard_normal((7, 4000)).astype(np.float32)
    wrong = exact.copy()
    wrong[3] = 0
    assert not agree(np, wrong, exact) and agree(np, exact.copy(), exact)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float64", "complex64", "complex128"])
def test_patterns_of_nan_and_infinities_are_compared(dtype):
    dtype = np.dtype(dtype)
    special = (-1.0, np.nan, np.inf, -np.inf)
    for ours, theirs, part in itertools.product(special, special, "real imag".split() if dtype.kind == "c" else ("",)):
        result, expected = np.ones((8, 8), dtype), np.ones((8, 8), dtype)
        for array, value in ((result, ours), (expected, theirs)):
            array[:2] = value if not part else complex(value, 2) if part == "real" else complex(2, value)
        assert agree(np, result, expected) == (ours is theirs), (ours, theirs, part)


def test_finite_elements_are_compared_among_others():
    expected = np.where(np.arange(4096).reshape(64, 64) % 3, 1.0, np.inf)
    assert agree(np, expected.copy(), expected) and agree(np, expected * 1.1, expected)
    assert not agree(np, expected * 2, expected)
    few = expected.copy()
    few[0, :20] = np.nan
    assert agree(np, few, expected)
