"""The bound of sums that Hopper makes of 8-bit floats: a model of them stays below it, longer sums do not."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.operators.products.matmul import expect, workload
from gensor_kernels.operators.tolerance.base import check
from gensor_kernels.operators.types.dtypes import encode, round_to

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
@pytest.mark.parametrize("k", [16, 128, 1040])
def test_sums_of_128_terms_stay_within_the_bound(draw, k):
    same = ("float8_e4m3fn", "float8_e4m3fn")
    for types in (same, ("float8_e4m3fn", "float8_e5m2")):
        assert ratio(k, 128, DRAWS[draw], types=types) < 0.95
        assert ratio(k, 128, DRAWS[draw], structured=True, types=types) < 0.5


@pytest.mark.parametrize("draw", DRAWS)
def test_sums_of_all_terms_do_not(draw):
    assert ratio(2048, 1 << 20, DRAWS[draw], types=("float8_e4m3fn", "float8_e4m3fn")) > 1


def test_the_structured_bound_holds_where_one_term_drowns_the_others():
    def spiked(rng, shape):
        values = np.full(shape, 0.9375)
        values[(slice(None), 0) if shape[0] == ROWS else 0] = 96.0
        return values

    assert 0.5 < ratio(128, 128, spiked, structured=True) <= 1
