"""float64 by Ozaki's scheme (contraction_sliced) keeps the bound of double sums on hostile inputs.

The bound is (k + 1) u of the sum of the terms' magnitudes, output by output. Where slices cannot promise it, a block
sums by multiply-adds, which is asserted too. `GENSOR_CAMPAIGN=full pytest -s tests/families/contraction/test_sliced.py`
runs longer sums and prints the errors and those of multiply-adds. The operands change with the commit.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices.emulator import Counters
from gensor_kernels.families.contraction.rewrite import ozaki
from gensor_kernels.families.core.source import flatten
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import SLICE_PRODUCTS, lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.tolerance.sliced import LEAST_LEADING, SLICE_BITS, SLICES, loss
from gensor_tuner.build.pool import Candidate, candidate
from tests.campaign_size import FULL, SEED
from tests.families.verified import multiplied

ROWS, COLUMNS = 40, 72
OZAKI = {"dtype": "float64", "math": "ozaki"}
LENGTHS = (2, 18, 400, 4096) if FULL else (2, 260)
Pair = tuple[np.ndarray, np.ndarray]
ROUNDOFF, TINY = 2.0**-53, 2.0**-1074


def normal(rng: np.random.Generator, k: int, a: Any = 0, b: Any = 0) -> Pair:
    return np.ldexp(rng.standard_normal((ROWS, k)), a), np.ldexp(rng.standard_normal((k, COLUMNS)), b)


def wide(rng: np.random.Generator, k: int, spread: int) -> Pair:
    return normal(rng, k, rng.integers(-spread, spread + 1, (ROWS, k)), rng.integers(-spread, spread + 1, (k, COLUMNS)))


def cancelling(rng: np.random.Generator, k: int) -> Pair:
    """Halves of k that cancel but for their last bits."""
    a, b = normal(rng, k)
    half = k // 2
    a[:, half : 2 * half] = a[:, :half]
    b[half : 2 * half] = -b[:half] * (1 + 2.0**-50 * rng.standard_normal(b[:half].shape))
    return a, b


def apart(rng: np.random.Generator, k: int) -> Pair:
    """Large elements of A meet small ones of B, and the other way round: only small products are left."""
    first = np.arange(k) % 2 == 0
    return normal(rng, k, np.where(first, 200, -200), np.where(first, -200, 200)[:, None])


def scaled(rng: np.random.Generator, k: int) -> Pair:
    return normal(rng, k, rng.integers(-400, 400, (ROWS, 1)), rng.integers(-400, 400, (1, COLUMNS)))


def sparse(rng: np.random.Generator, k: int) -> Pair:
    a, b = normal(rng, k)
    a[rng.random(a.shape) < 0.7] = 0
    a[3], b[:, 5] = 0, 0
    return a, b


#: name -> (operands, whether blocks must sum by multiply-adds; None: either may be)
HOSTILE: dict[str, tuple[Callable[[np.random.Generator, int], Pair], bool | None]] = {
    "normal": (normal, False),
    "one sign": (lambda rng, k: tuple(np.abs(x) for x in normal(rng, k)), False),  # type: ignore[return-value]
    "exponents within 2^8": (lambda rng, k: wide(rng, k, 4), None),
    "exponents within 2^40": (lambda rng, k: wide(rng, k, 20), None),
    "exponents within 2^600": (lambda rng, k: wide(rng, k, 300), True),
    "halves cancel": (cancelling, False),
    "large meet small": (apart, True),
    "rows and columns of all sizes": (scaled, False),
    "zeros": (sparse, None),
    "subnormal inputs": (lambda rng, k: normal(rng, k, -1060, 900), True),
    "small inputs, subnormal results": (lambda rng, k: normal(rng, k, -530, -535), False),
    "large": (lambda rng, k: normal(rng, k, 500, 500), False),
}


@cache
def kernel(name: str) -> Candidate:
    family, served = FAMILIES[name], workload(512, 512, 512, **OZAKI)
    program = min(family.starters(served, lookup("rtx-4090")), key=lambda p: p["block_m"] * p["block_n"])
    return candidate(family, program.replace(split_k=1), served)


def product(name: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Counters]:
    """The result of a family for matrices of an even number of columns, and what it counted."""
    return multiplied(kernel(name), a, b, **OZAKI)


def errors(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Errors in u of the sum of the terms' magnitudes, beyond k + 1 subnormal steps; exact in 64 bits or more."""
    left, right = a.astype(np.longdouble), b.astype(np.longdouble)
    slack = (a.shape[1] + 1) * np.longdouble(TINY)
    error = np.maximum(np.abs(found - left @ right) - slack, 0)
    total = np.abs(left) @ np.abs(right)
    return np.asarray(np.where(error == 0, 0, error / np.where(total == 0, 1, total) / ROUNDOFF), np.float64)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="the reference needs long double of 64 bits or more")
@pytest.mark.parametrize("name", HOSTILE)
def test_errors_keep_the_bound_of_double_sums(name):
    draw, again = HOSTILE[name]
    for k in LENGTHS:
        rng = np.random.default_rng([SEED, k, *name.encode()])
        with np.errstate(under="ignore"):
            a, b = draw(rng, k)
            found, counters = product("contraction_sliced", a, b)
            own = errors(found, a, b)
        assert own.max() <= k + 1, (k, own.max())
        if again is not None and k > 18:
            assert bool(counters.branches.get("again")) == again, dict(counters.branches)
        if FULL:
            plain = errors(product("contraction_simt", a, b)[0], a, b)
            rms = [float(np.sqrt(np.mean(x**2))) for x in (own, plain)]
            print(f"{name:32} k {k:5} slices {rms[0]:8.3f} {own.max():7.2f}  fma {rms[1]:8.3f} {plain.max():7.2f}")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_come_out_as_numpys(value):
    rng = np.random.default_rng(7)
    a, b = normal(rng, 64)
    a[3, 5], b[9, 11], a[:, 20] = value, value, 0
    b[20, 30] = np.inf  # times zero
    a[7] = 0
    found, _ = product("contraction_sliced", a, b)
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    assert np.array_equal(np.isnan(found), np.isnan(wanted)) and np.isnan(wanted).any()
    assert np.array_equal(found[np.isinf(wanted)], wanted[np.isinf(wanted)])
    finite = np.isfinite(wanted)
    assert np.allclose(found[finite], wanted[finite], rtol=1e-12, atol=1e-12)


def test_results_beyond_the_range_are_infinite_and_empty_sums_zero():
    a, b = np.full((16, 8), 1e200), np.full((8, 16), 1e200)
    b[:, 3] = -b[:, 3]
    found, counters = product("contraction_sliced", a, b)
    assert np.array_equal(found, np.where(np.arange(16) == 3, -np.inf, np.inf)[None, :].repeat(16, 0))
    assert not counters.branches.get("again")
    assert not product("contraction_sliced", np.zeros((16, 0)), np.zeros((0, 16)))[0].any()


def test_the_kernel_has_the_constants_that_the_bound_was_derived_with():
    text = flatten("contraction_sliced.cu")
    assert f"constexpr int SLICES = {SLICES}," in text and f"SLICE_BITS = {SLICE_BITS}," in text
    assert f"constexpr i32 LEAST_LEADING = {LEAST_LEADING};" in text
    assert loss(LEAST_LEADING) <= 0.9 and SLICE_PRODUCTS == 1 + SLICES * (SLICES + 1) // 2
    assert ozaki.MOST_K * SLICES * 64 * 64 < 2**31


def test_a_call_has_to_ask_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "own.db"))
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((40, 64)), rng.standard_normal((64, 48))
    with gensor_kernels.emulated("rtx-4090"):
        asked = gensor_kernels.explain(gensor_kernels.matmul, a, b, precision="ozaki")
        plain = gensor_kernels.explain(gensor_kernels.matmul, a, b)
    assert '"math":"ozaki"' in asked.workload and '"math":"ieee"' in plain.workload
    with pytest.raises(ValueError, match="ozaki"), gensor_kernels.emulated("rtx-4090"):
        gensor_kernels.matmul(a, b, precision="sliced")
