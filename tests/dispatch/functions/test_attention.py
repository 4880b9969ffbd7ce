"""attention: the library's own path against PyTorch, and what does not fit; tests/public_cases draws calls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.dispatch.functions.attention import Parameters, composed
from tests.doubles.device import FakeDevice

functional = pytest.importorskip("torch.nn.functional")


def reference(q, k, v, mask, causal, scale):
    import torch

    batch, heads, queries, _ = q.shape
    kv_heads, keys = k.shape[1:3]
    group = heads // kv_heads
    tensors = [torch.from_numpy(np.array(each, np.float64)) for each in (q, k, v)]
    tensors[1:] = [each.repeat_interleave(group, 1) for each in tensors[1:]]
    added = torch.zeros(batch, heads, queries, keys, dtype=torch.float64)
    if mask is not None and mask.dtype == bool:
        added = added.masked_fill(~torch.from_numpy(np.broadcast_to(mask, added.shape).copy()), -np.inf)
    elif mask is not None:
        added = added + torch.from_numpy(mask.astype(np.float64))
    if causal:
        last = torch.arange(queries)[:, None] + (0 if causal == "upper_left" else keys - queries)
        added = added.masked_fill(torch.arange(keys)[None] > last, -np.inf)
    return functional.scaled_dot_product_attention(*tensors, attn_mask=added, scale=scale).numpy()


@st.composite
def calls(draw):
    heads, group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    batch, queries, keys = (
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 5, 17])),
        draw(st.sampled_from([17, 33, 70])),
    )
    rng, head = np.random.default_rng(draw(st.integers(0, 99))), draw(st.sampled_from([16, 32, 64]))
    q = rng.standard_normal((batch, heads * group, queries, head)).astype(np.float16)
    k, v = (rng.standard_normal((batch, heads, keys, head)).astype(np.float16) for _ in range(2))
    kind = draw(st.sampled_from(["none", "none", "bool", "added"]))
    mask = None
    if kind == "bool":
        mask = rng.integers(0, 2, (queries, keys)).astype(bool)
        mask[:, 0] = True
    if kind == "added":
        mask = rng.standard_normal((batch, 1, queries, keys)).astype(np.float32)
    causal = False if kind == "bool" else draw(st.sampled_from([False, True, "upper_left"]))
    return q, k, v, mask, causal, draw(st.sampled_from([None, 0.5]))


@settings(max_examples=40)
@given(calls())
def test_the_library_computes_the_same(call):
    *arrays, mask, causal, scale = call
    q, k, v = (each.astype(np.float64) for each in arrays)
    found = composed(FakeDevice(), (q, k, v, mask), Parameters(causal, scale), None)
    np.testing.assert_allclose(found, reference(*call), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("shapes", "more", "words"),
    [
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 6, 16)), {}, "k and v have the shapes"),
        (((1, 3, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "no multiple of the 2"),
        (((2, 4, 16), (2, 5, 16), (2, 5, 16)), {}, "takes \\(batch, heads, rows, head\\)"),
        (((1, 2, 4, 32), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "batch and head must be equal"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"causal": "left"}, "causal is False, True"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"mask": np.ones((3, 5), bool)}, "does not broadcast"),
    ],
)
def test_what_does_not_fit(shapes, more, words):
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.attention(*arrays, **more)
