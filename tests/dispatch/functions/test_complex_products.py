"""Products of complex64 as products of reals."""

import math

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions import complex_products, contraction, matmul
from gensor_kernels.machine.arch import lookup
from gensor_tuner.cli.tuning import rows_for
from gensor_tuner.shapes.reader import read_shapes


def always(sizes, dtypes, mode, arch):
    return set(dtypes) == {np.dtype("complex64")}


@pytest.fixture
def of_reals(monkeypatch):
    """Small products too."""
    for module in (matmul, contraction):
        monkeypatch.setattr(module, "pays", always)


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
        assert complex_products.WORDS in gk.explain(gk.matmul, *operands).staged
        found = gk.matmul(*operands)
        assert found.dtype == np.complex64 and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
        for out in (np.empty_like(found), np.empty(found.shape, "complex128"), np.empty_like(found.T).T):
            assert gk.matmul(*operands, out=out) is out
            np.testing.assert_array_equal(out, found)


CONTRACTIONS = {
    "ij,jk->ik": ((5, 7), (7, 6)),
    "ij,jk->ki": ((5, 7), (7, 6)),
    "ji,jk": ((7, 5), (7, 6)),
    "bij,bkj->bik": ((2, 5, 7), (2, 6, 7)),
    "abc,dcb->da": ((4, 3, 5), (6, 5, 3)),
    "abij,jc->abic": ((2, 3, 4, 5), (5, 6)),
    "iij,jk->ik": ((4, 4, 5), (5, 6)),
    "ij,ij->": ((4, 4), (4, 4)),
}


@pytest.mark.parametrize("text", CONTRACTIONS)
def test_contractions_of_reals_are_the_complex_ones(of_reals, text):
    a, b = (draw(*shape, seed=seed) for seed, shape in enumerate(CONTRACTIONS[text]))
    expected = np.einsum(text, a.astype("complex128"), b.astype("complex128"))
    with gk.emulated("a100-80gb"):
        assert complex_products.WORDS in gk.explain(gk.einsum, text, a, b).staged
        found = gk.einsum(text, a, b)
        assert found.dtype == np.complex64
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_a_result_of_any_layout_conjugates_and_diagonals(of_reals):
    a, b = draw(5, 7), draw(7, 6, seed=1)
    with gk.emulated("a100-80gb"):
        out = np.empty((6, 5), "complex64").T
        assert gk.dot(a, b, out=out) is out
        np.testing.assert_allclose(out, a @ b, rtol=0, atol=2e-5)
        np.testing.assert_allclose(gk.vdot(a, a[::-1]), np.vdot(a, a[::-1]), rtol=0, atol=2e-5)
        assert gk.explain(gk.einsum, "ij,kjj->ik", a, draw(6, 7, 7)).staged is None


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
    dtypes = np.dtype(dtype), np.dtype(dtype)
    assert complex_products.pays((1, side, side, side), dtypes, mode, lookup(part)) is expected


def test_rows_of_shapes_files_are_tuned_as_the_runtime_serves_them(tmp_path):
    file, a, b = tmp_path / "rows.csv", draw(1024, 1024), draw(1024, 512)
    file.write_text("op,m,n,k,dtype\nmatmul,1024,512,1024,complex64\nmatmul,1,512,1024,complex64\nsoftmax,,,,\n")
    rows = read_shapes(file)
    assert rows_for(lookup("t4"), rows) == rows
    found, *same = rows_for(lookup("a100-80gb"), rows)
    assert same == rows[1:] and found.name == rows[0].name
    with gk.emulated("a100-80gb"):
        assert gk.explain(gk.matmul, a, b).workload == found.workload.key()


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
