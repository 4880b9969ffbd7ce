"""Tensors without axes, of which NumPy makes scalars."""

import numpy as np
import pytest

import gensor_kernels

from ..models import model, node

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((2, 8), np.float32), RNG.standard_normal((8, 4), np.float32)
IMAGE, TAPS = RNG.standard_normal((1, 3, 4, 4), np.float32), RNG.standard_normal((2, 3, 1, 1), np.float32)
S = np.array(0.5, np.float32)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("op", "more", "x", "w", "expected"),
    [
        ("Gemm", {"beta": 0.5, "alpha": 2.0}, X, W, 2 * X @ W + 0.25),
        ("Gemm", {}, X, W, X @ W + 0.5),
        ("MatMul", {}, X, W, X @ W + 0.5),
        ("Conv", {}, IMAGE, TAPS, np.einsum("nchw,kc->nkhw", IMAGE, TAPS[..., 0, 0]) + 0.5),
    ],
)
def test_a_term_without_axes(op, more, x, w, expected, constant):
    if op == "Gemm":
        nodes = [node(op, ["x", "w", "s"], ["y"], **more)]
    else:
        nodes = [node(op, ["x", "w"], ["z"]), node("Add", ["z", "s"], ["y"])]
    given = {"x": ("float32", x.shape)} | ({} if constant else {"s": ("float32", ())})
    made = model(nodes, given, ["y"], {"w": w} | ({"s": S} if constant else {}))
    with gensor_kernels.emulated("sm_87"):
        np.testing.assert_allclose(made(x, *([] if constant else [S])), expected, rtol=1e-5, atol=1e-5)
