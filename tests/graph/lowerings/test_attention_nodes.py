"""Attention nodes in float32: products and a softmax with masks as steps; a row without keys gives zeros."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.lowerings.attention import _attention
from gensor_kernels.graph.lowerings.base import Constants, Run


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("shape", [None, (8, 8), (2, 1, 1, 8), (2, 4, 8, 8)])
@pytest.mark.parametrize("boolean", [True, False])
def test_masks_are_steps(shape, causal, boolean):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 8, 16)).astype(np.float32) for heads in (4, 2, 2))
    keep = np.ones((8, 8), bool) if shape is None else rng.random(shape) < 0.5
    keep[..., :1, 0] = shape is None  # with causal, the first row sees no key
    mask = None if shape is None else keep if boolean else np.where(keep, 0, -np.inf).astype(np.float32)
    node = Node("Attention", ("q", "k", "v", "m"), ("y",), {"is_causal": causal})
    with gensor_kernels.emulated("sm_87"):
        run = Run(Constants((), {}), explains=True)
        (found,) = _attention(run, node, q, k, v, mask)
    assert [each.family is not None for each in run.explained] == [True] * 3
    wide = [np.repeat(each.astype(np.float64), 4 // each.shape[1], axis=1) for each in (q, k, v)]
    seen = np.broadcast_to(keep & (np.tri(8, dtype=bool) if causal else True), (2, 4, 8, 8))
    scores = np.where(seen, wide[0] @ wide[1].swapaxes(-1, -2) / 4, -np.inf)
    with np.errstate(invalid="ignore"):
        shares = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
    total = shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, shares / np.where(total == 0, 1, total) @ wide[2], 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_integers_are_added_as_onnx_says(dtype):
    q = np.random.default_rng(0).standard_normal((1, 2, 8, 16)).astype(dtype)
    mask, node = np.arange(64).reshape(8, 8) % 5, Node("Attention", ("q", "k", "v", "m"), ("y",), {})
    with gensor_kernels.emulated("sm_87"):
        run = Run(Constants((), {}), explains=True)
        found, wanted = (_attention(run, node, q, q, q, each)[0] for each in (mask, mask.astype(dtype)))
    assert np.array_equal(found, wanted)
