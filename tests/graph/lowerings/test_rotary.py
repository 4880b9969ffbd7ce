"""Rotary embeddings, against their definition in float64 and onnx's reference."""

import numpy as np
import pytest

import gensor_kernels
from tests.public_cases import onnx_ops

from ..models import model, node


def tables(positions, half, dtype):
    angles = np.arange(positions)[:, None] * 100.0 ** -(np.arange(half) / half)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("merged", [False, True])
def test_rotary_embeddings_are_one_kernel(dtype, interleaved, merged):
    batch, heads, rows, head = 2, 3, 5, 16
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, rows, heads * head) if merged else (batch, heads, rows, head)).astype(dtype)
    cosine, sine = tables(9, head // 2, dtype)
    positions = np.array([[0, 1, 2, 3, 4], [8, 3, 3, 0, 1]])
    attributes = {"interleaved": interleaved, **({"num_heads": heads} if merged else {})}
    nodes = [
        node("RotaryEmbedding", ["x", "cos", "sin", "p"], ["y"], **attributes),
        node("RotaryEmbedding", ["y", "cos", "sin", "p"], ["z"], **attributes),
    ]
    inputs = {"x": (dtype, x.shape), "p": ("int64", positions.shape)}
    made = model(nodes, inputs, ["y", "z"], {"cos": cosine, "sin": sine}, opset=24)
    with gensor_kernels.emulated("sm_87"):
        found, _ = made(x, positions)
        layers = made.explain(x, positions)
    assert [layer.operators for layer in layers] == ["Gather", "Gather", "Rotary", "Rotary"]
    assert [len(layer.served) for layer in layers] == [0, 0, 1, 1]
    wide = [each.astype(np.float64) for each in (x, cosine, sine)]
    wanted = onnx_ops.run("RotaryEmbedding", *wide, positions, **attributes)
    rounding = np.finfo(dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=rounding, atol=2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("attributes", [{"rotary_embedding_dim": 8}, {}])
def test_others_run_through_the_array_library(attributes):
    """Rotations of a part of each head, and tables that a call gives."""
    x = np.random.default_rng(1).standard_normal((1, 2, 3, 16)).astype(np.float32)
    cosine, sine = tables(3, 4 if attributes else 8, np.float32)
    given, constants = {"x": x, "p": np.arange(3)[None]}, {"cos": cosine, "sin": sine}
    if not attributes:
        given, constants = given | constants, {}
    inputs = {name: (each.dtype.name, each.shape) for name, each in given.items()}
    made = model([node("RotaryEmbedding", ["x", "cos", "sin", "p"], ["y"], **attributes)], inputs, ["y"], constants, 24)
    with gensor_kernels.emulated("sm_87"):
        found = made(**given)
    wanted = onnx_ops.run("RotaryEmbedding", x, cosine, sine, given["p"], **attributes)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
