"""Products of complex64 as products of reals."""

import math

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.calls.arguments import resolve
from gensor_kernels.dispatch.functions import complex_matmul, matmul
from gensor_kernels.machine.arch import lookup


def always(product, mode, arch):
    return product.inputs == product.dtype == np.complex64


@pytest.fixture
def of_reals(monkeypatch):
    """Small products too."""
    monkeypatch.setattr(matmul, "pays", always)


def draw(*shape, seed=0):
    parts = np.random.default_rng(seed).standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1]).astype("complex64")


OPERANDS = {
    "rows": (draw(5, 7), draw(7, 6)),
    "broadcast": (draw(3, 5, 7), draw(7, 6)),
    "transposed": (draw(7, 5).T, draw(6, 7).T),
    "steps": (draw(2, 5, 14)[..., ::2], draw(2, 7, 6)[:, ::-1]),
    "padded rows": (draw(5, 9)[:, 1:8], draw(7, 9)[:, 2:]),
    "one term": (draw(5, 3)[:, 1:2], draw(1, 6)),
    "a real operand": (draw(5, 7), draw(7, 6).real.copy()),
}


@pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
def test_products_of_reals_are_the_complex_ones(of_reals, operands):
    expected = np.matmul(*[each.astype("complex128") for each in operands])
    with gk.emulated("a100-80gb"):
        assert complex_matmul.WORDS in gk.explain(gk.matmul, *operands).staged
        found = gk.matmul(*operands)
        assert found.dtype == np.complex64 and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
        for out in (np.empty_like(found), np.empty(found.shape, "complex128"), np.empty_like(found.T).T):
            assert gk.matmul(*operands, out=out) is out
            np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize("value", [math.nan, math.inf, complex(math.inf, 1), complex(0, -math.inf), -0.0, 3e38])
def test_extreme_numbers_give_what_complex_multiply_adds_give(monkeypatch, value):
    a, b = draw(4, 8), draw(8, 4)
    a[1, 2] = b[3, 1] = value
    with gk.emulated("a100-80gb"):
        expected = gk.matmul(a, b)
    monkeypatch.setattr(matmul, "pays", always)
    with gk.emulated("a100-40gb"):  # without the plan of the other part
        found = gk.matmul(a, b)
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "part, side, dtype, mode, expected",
    [
        ("a100-80gb", 1024, "complex64", "ieee", True),
        ("h100-sxm", 1024, "complex64", "ieee", True),
        ("h100-sxm", 64, "complex64", "ieee", False),  # the copies take longer
        ("h100-sxm", 1024, "complex64", "3m", False),
        ("h100-sxm", 1024, "complex64", "tf32", False),
        ("h100-sxm", 1024, "complex128", "ieee", False),
        ("rtx-4090", 4096, "complex64", "ieee", False),  # tensor cores are slower by six products
        ("t4", 4096, "complex64", "ieee", False),
    ],
)
def test_large_products_of_fast_parts_pay(part, side, dtype, mode, expected):
    x = np.broadcast_to(np.zeros((), dtype), (side, side))
    assert complex_matmul.pays(resolve(x, x, None, ()), mode, lookup(part)) is expected


def test_vectors_and_epilogues_stay_complex(of_reals):
    a, b = draw(5, 7), draw(7, 6)
    with gk.emulated("a100-80gb"):
        for why in (gk.explain(gk.matmul, a[0], b), gk.explain(gk.matmul, a, b, alpha=2.0)):
            assert why.staged is None


def test_recordings_have_the_product_of_reals(of_reals, tmp_path):
    with gk.emulated("a100-80gb"), gk.record(tmp_path / "rows.csv"):
        gk.matmul(draw(5, 7), draw(7, 6))
    row = (tmp_path / "rows.csv").read_text().splitlines()[1]
    assert row.startswith("matmul,1,5,12,14,fp32")
