"""Two results of one call: the same but for rounding, or not."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.devices import agreement
from gensor_kernels.devices.agreement import sample

RNG = np.random.default_rng(0)
DTYPES, E4M3 = ("float16", "float32", "float64"), ml_dtypes.float8_e4m3fn


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


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float64", "complex64", "complex128"])
def test_patterns_of_nan_and_infinities_are_compared(dtype):
    dtype = np.dtype(dtype)
    special = (-1.0, np.nan, np.inf, -np.inf)
    for ours, theirs, part in itertools.product(special, special, "real imag".split() if dtype.kind == "c" else ("",)):
        result, expected = np.ones((8, 8), dtype), np.ones((8, 8), dtype)
        for array, value in ((result, ours), (expected, theirs)):
            array[:2] = value if not part else complex(value, 2) if part == "real" else complex(2, value)
        assert agree(np, result, expected) == (ours is theirs), (ours, theirs, part)


FEW = np.where(np.arange(4096).reshape(64, 64) % 3, 1.0, np.inf)
NORMAL = RNG.standard_normal((128, 128)).astype(np.float32)
COMPLEX = RNG.standard_normal((64, 64)) + 1j * RNG.standard_normal((64, 64))


def where(array, place, value):
    found = array.copy()
    found[place] = value
    return found


#: name -> (result, expected, whether they agree)
CASES = {
    "8-bit floats are not compared": (np.ones(4, E4M3), np.zeros(4, E4M3), True),
    "integers are not compared": (np.zeros(4, np.int64), np.ones(4, np.int64), True),
    "nothing": (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), True),
    "the same": (NORMAL.copy(), NORMAL, True),
    "a tile without results": (where(NORMAL, np.s_[:16, :16], np.nan), NORMAL, False),
    "one of few rows is zero": (where(NORMAL[:7], 3, 0), NORMAL[:7], False),
    "complex": (COMPLEX.astype(np.complex64), COMPLEX.astype(np.complex64), True),
    "conjugated": (COMPLEX.conj(), COMPLEX, False),
    "a tenth more among infinities": (FEW * 1.1, FEW, True),
    "twice as much among infinities": (FEW * 2, FEW, False),
    "few NaN of both": (where(FEW, np.s_[0, :20], np.nan), where(FEW, np.s_[0, :20], np.nan), True),
}


@pytest.mark.parametrize("most", [1 << 22, 1000])
def test_results_agree(monkeypatch, most):
    """Large results are sampled."""
    monkeypatch.setattr(agreement, "MOST", most)
    for name, (result, expected, same) in CASES.items():
        assert agree(np, result, expected) is same, name


@pytest.mark.parametrize("most", [1 << 22, 4096])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_wrong_edge_is_found_in_a_large_result(axis, most, monkeypatch):
    """One row of a thousand: less than a hundredth of the whole."""
    monkeypatch.setattr(agreement, "MOST", most)
    right = RNG.standard_normal((1001, 1003)).astype(np.float32)
    wrong = right.copy()
    wrong[(slice(None),) * axis + (-1,)] = 0
    assert agree(np, right + np.float32(1e-3), right) and not agree(np, wrong, right)


def test_slices_of_a_large_result_are_of_all_places_of_a_tile(monkeypatch):
    monkeypatch.setattr(agreement, "MOST", 4096)
    right = RNG.standard_normal((1 << 16, 16)).astype(np.float32)
    for place in range(16):
        wrong = right.copy()
        wrong[place::16] = 1
        assert not agree(np, wrong, right)
