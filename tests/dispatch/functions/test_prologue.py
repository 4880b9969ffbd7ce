"""Prologues, operations on an operand as kernels read it: tolerance, the space, refusals.

tests/public_cases draws calls.
"""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.operators.types.dtypes import round_to
from tests.campaign_size import sample
from tests.public_cases.references import ACTIVATIONS


def prepare(x, steps, dtype="float64"):
    """`x` after a prologue in float64, rounded once to `dtype`; `steps` are (name, value or None)."""
    v = np.asarray(x, np.float64)
    for name, value in steps:
        if value is None:
            v = ACTIVATIONS[name](v)
        else:
            v = v + value if name == "bias" else v * np.asarray(value, np.float64)
    return round_to(np.dtype(dtype).name, v)


def test_prologues_that_kernels_do_not_take_are_computed_before_them():
    rng = np.random.default_rng(4)
    x, b = rng.standard_normal((12, 32)).astype(np.float32), rng.standard_normal((32, 16)).astype(np.float32)
    rows, shift = rng.standard_normal((12, 1)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    positive, single = np.maximum(x, 0), x.astype(np.complex64)
    both = positive @ b
    with gk.emulated("sm_87"):
        for result, wanted in (
            (gk.matmul(x, b, prologue=[("mul", rows)]), (x * rows) @ b),
            (gk.matmul(x, b, prologue=[("mul", x), "silu"]), prepare(x, [("mul", x), ("silu", None)]) @ b),
            (
                gk.matmul(x, b, prologue=[("mul", shift), ("bias", shift), ("mul", shift)]),
                (x * shift + shift) * shift @ b,
            ),
            (gk.matmul(x, b, activation="swiglu", prologue=["relu"]), ACTIVATIONS["silu"](both[:, :8]) * both[:, 8:]),
            (gk.matmul(x, b[:, 0], prologue=["relu"]), positive @ b[:, 0]),
            (gk.matmul(x, b, prologue=[]), x @ b),
            (gk.matmul(single, b, prologue=[("scale", 1j)]), (1j * x) @ b),
            (gk.einsum("ik,kj->ij", single, b, prologue=[("scale", 1j)]), (1j * x) @ b),
            (gk.einsum("ik,kl,jl->ij", x, b, b, prologue=["relu"]), both @ b.T),
            (gk.einsum("ij->ji", x, prologue=["relu"]), positive.T),
            (gk.einsum(x, [0, 1], b, [1, 2], [0, 2], prologue=["relu"]), both),
            (gk.einsum("ik,kj->ij", x[:0], b, prologue=["relu"]), both[:0]),
        ):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
        assert "2 calls" in gk.explain(gk.einsum, "ik,kl,jl->ij", x, b, b, prologue=["relu"]).reason


#: (subscripts, shapes of a and b, prologue with shapes of its arrays, whether kernels take it)
EINSUMS = [
    ("bshd,hde->bse", (2, 9, 4, 8), (4, 8, 24), [("mul", (4, 8)), ("bias", (8,)), ("gelu", None)], True),
    ("mk,kn->nm", (17, 16), (16, 24), [("mul", (16,)), ("relu", None)], True),
    ("bik,bkj->bji", (2, 9, 16), (2, 16, 8), [("mul", (16,)), ("relu", None)], True),
    ("iik,kj->ij", (5, 5, 16), (16, 8), [("mul", (16,)), ("relu", None)], True),
    ("kl,lkn->n", (6, 8), (8, 6, 16), [("bias", (6, 1)), ("tanh", None)], False),  # k in two orders: copied
    ("ik,jk->ij", (9, 16), (8, 16), [("bias", (9, 1)), ("silu", None)], False),
    ("ikl,jk->ij", (9, 16, 3), (8, 16), [("relu", None)], False),  # summed alone, after the prologue
    ("bik,bkj->bij", (2, 9, 16), (2, 16, 8), [("mul", (2, 1, 16))], False),
    ("je,jb->je", (3, 8), (3, 4), [("mul", (1,)), ("bias", (1,))], False),  # an axis of b alone is summed
]


@pytest.mark.parametrize(("text", "first", "second", "listed", "is_kernels"), sample(EINSUMS, 4))
def test_prologues_of_einsum(text, first, second, listed, is_kernels):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (first, second))
    steps = [(n, None if shape is None else rng.standard_normal(shape).astype(np.float32)) for n, shape in listed]
    items = [n if value is None else (n, value) for n, value in steps]
    with gk.emulated("sm_87"):
        result, why = gk.einsum(text, a, b, prologue=items), gk.explain(gk.einsum, text, a, b, prologue=items)
    assert ('"prologue"' in (why.workload or "")) == is_kernels
    np.testing.assert_allclose(result, np.einsum(text, prepare(a, steps), b), rtol=1e-5, atol=1e-4)


def test_depthwise_and_one_dimensional_calls():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 6, 15)).astype(np.float32), rng.standard_normal((6, 1, 3)).astype(np.float32)
    by_column = rng.standard_normal((6, 15)).astype(np.float32)
    padded = np.pad(x * by_column, ((0, 0), (0, 0), (1, 1)))
    with gk.emulated("sm_87"):
        result = gk.conv1d(x, w, padding=1, groups=6, prologue=[("mul", by_column)])
        image, filters = x.reshape(2, 6, 3, 5), w.reshape(6, 1, 3, 1)
        why = gk.explain(gk.conv2d, image, filters, groups=6, prologue=[("mul", x[0, :, 0]), "relu"])
    assert why.family == "window" and '"depthwise_conv2d_prologue' in why.workload
    np.testing.assert_allclose(
        result, sum(padded[:, :, s : s + 15] * w[:, 0, s, None] for s in range(3)), rtol=1e-4, atol=1e-5
    )
