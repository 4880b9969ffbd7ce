"""Kernels that compute attention and rotary embeddings, which drawn calls do not see, and rows without keys."""

import numpy as np
import pytest

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.lowerings.attention import _attention
from gensor_kernels.graph.lowerings.base import Constants, Run
from tests.public_cases import onnx_ops

from ..models import model

pytestmark = pytest.mark.usefixtures("emulator")


def attend(q, k, v, mask, **attributes):
    """Return the result of a node, and the families of the kernels that computed it."""
    node = Node("Attention", ("q", "k", "v", "m"), ("y",), attributes)
    run = Run(Constants((), {}), explains=True)
    (found,) = _attention(run, node, q, k, v, mask)
    return found, [each.family for each in run.explained]


@pytest.mark.parametrize(
    ("shape", "causal", "boolean"),
    [(None, 1, True), ((8, 8), 1, True), ((8, 8), 0, False), ((2, 1, 1, 8), 1, False), ((2, 4, 8, 8), 0, True)],
)
def test_masks_are_steps_and_rows_without_keys_give_zeros(shape, causal, boolean):
    """In float32 attention is a product with scale and masks, a softmax and a product."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 8, 16)).astype(np.float32) for heads in (4, 2, 2))
    keep = np.ones((8, 8), bool) if shape is None else rng.random(shape) < 0.5
    keep[..., :1, 0] = shape is None  # with causal, the first row sees no key
    mask = None if shape is None else keep if boolean else np.where(keep, 0, -np.inf).astype(np.float32)
    found, families = attend(q, k, v, mask, is_causal=causal)
    assert len(families) == 3 and None not in families
    wide = [np.repeat(each.astype(np.float64), 4 // each.shape[1], axis=1) for each in (q, k, v)]
    seen = np.broadcast_to(keep & (np.tri(8, dtype=bool) if causal else True), (2, 4, 8, 8))
    scores = np.where(seen, wide[0] @ wide[1].swapaxes(-1, -2) / 4, -np.inf)
    with np.errstate(invalid="ignore"):
        shares = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
    total = shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, shares / np.where(total == 0, 1, total) @ wide[2], 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_integers_of_a_mask_are_added(dtype):
    q, mask = np.random.default_rng(0).standard_normal((1, 2, 8, 16)).astype(dtype), np.arange(64).reshape(8, 8) % 5
    (found, _), (wanted, _) = (attend(q, q, q, each) for each in (mask, mask.astype(dtype)))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("dtype", "interleaved", "heads"), [("float16", 0, 0), ("float16", 1, 3), ("float32", 0, 3)])
def test_rotary_embeddings_of_constant_tables_are_one_kernel(dtype, interleaved, heads):
    """Two nodes share the tables' rows."""
    x = np.random.default_rng(0).standard_normal((2, 5, 48) if heads else (2, 3, 5, 16)).astype(dtype)
    angles = np.arange(9)[:, None] * 100.0 ** -(np.arange(8) / 8)
    tables = {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
    positions = np.array([[0, 1, 2, 3, 4], [8, 3, 3, 0, 1]])
    attributes = {"interleaved": interleaved, "num_heads": heads}
    text = f"RotaryEmbedding<interleaved = {interleaved}, num_heads = {heads}>"
    inputs = {"x": (dtype, x.shape), "p": ("int64", positions.shape)}
    made = model(f"y = {text}(x, cos, sin, p); z = {text}(y, cos, sin, p)", inputs, ["y", "z"], tables, opset=24)
    found, _ = made(x, positions)
    layers = made.explain(x, positions)
    assert [(each.operators, len(each.served)) for each in layers] == [("Gather", 0)] * 2 + [("Rotary", 1)] * 2
    wide = [each.astype(np.float64) for each in (x, *tables.values())]
    wanted = onnx_ops.run("RotaryEmbedding", *wide, positions, **attributes)
    np.testing.assert_allclose(found, wanted, rtol=np.finfo(dtype).eps, atol=2 * np.finfo(np.float32).eps)
