"""Attention and rotary embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.attention import attention
from gensor_kernels.dispatch.api.elementwise import elementwise
from gensor_kernels.dispatch.api.matmul import matmul
from gensor_kernels.dispatch.api.norms import softmax

from .base import Lowering, Run, attribute, is_served, name_of, refused
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node


def _attention(
    run: Run,
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    valid: Any = None,
) -> Any:
    """Compute softmax(softcap(scale * q @ k.T) + mask) @ v; a query that sees no key gives zeros.

    `valid` is the number of keys of each batch entry that count. Sixteen-bit heads are one kernel, others a product, a
    softmax and a product.
    """
    xp, q, k, v, mask, past_key, past_value = run.together(q, k, v, mask, past_key, past_value)
    merged, past = q.ndim == 3, 0
    if merged:
        heads, kv_heads = attribute(node, "q_num_heads"), attribute(node, "kv_num_heads")
        q, k, v = _heads(q, heads), _heads(k, kv_heads), _heads(v, kv_heads)
    fresh = k.shape[2]
    if past_key is not None:
        past = past_key.shape[2]
        k, v = xp.concatenate([past_key, k], axis=2), xp.concatenate([past_value, v], axis=2)
    if mask is not None and mask.shape[-1] < k.shape[2]:
        pads = [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])]
        mask = xp.pad(mask, pads, mode="constant", constant_values=False if mask.dtype == np.bool_ else -np.inf)
    scale = attribute(node, "scale") or 1 / math.sqrt(q.shape[3])
    whole = past == 0 or fresh == q.shape[2]
    if name_of(q) in ("float16", "bfloat16") and len(node.outputs) < 4 and valid is None and whole and _alike(q, k, v):
        y = _fused(run, node, q, k, v, mask, scale, "lower_right" if past else "upper_left")
        scores = None
    else:
        offset = past if valid is None else run.host(valid).reshape(-1, 1, 1, 1) - q.shape[2]
        y, scores = _composed(run, node, q, k, v, mask, scale, offset, valid)
    if merged or attribute(node, "heads_last", 0):
        y = y.transpose(0, 2, 1, 3)  # a view of memory in this order, where one kernel computes
    if merged:
        y = y.reshape(*y.shape[:2], -1)
    return (y, k, v, scores)[: len(node.outputs)]


def _heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _alike(q: Any, k: Any, v: Any) -> bool:
    """Return whether one kernel takes the heads: one size of head, one dtype."""
    return q.shape[3] == k.shape[3] == v.shape[3] and q.dtype == k.dtype == v.dtype


def _windows(node: Node) -> tuple[int, int]:
    return attribute(node, "left_window_size", -1), attribute(node, "right_window_size", -1)


def _fused(run: Run, node: Node, q: Any, k: Any, v: Any, mask: Any, scale: float, corner: str) -> Any:
    left, right = _windows(node)
    more: dict[str, Any] = {"causal": corner if attribute(node, "is_causal", 0) else False}
    if max(left, right) >= 0:
        if corner == "upper_left" and not more["causal"] and q.shape[2] != k.shape[2]:
            raise refused(node, "a window over keys of another number than the queries needs is_causal or past keys")
        more["window"] = (left, right)
    if cap := attribute(node, "softcap", 0.0):
        more["softcap"] = cap
    if q.ndim == 4 and (attribute(node, "heads_last", 0) or attribute(node, "q_num_heads")):
        batch, heads, queries, size = q.shape
        more["out"] = run.xp.empty((batch, queries, heads, size), q.dtype).transpose(0, 2, 1, 3)
    return run.call(attention, q, k, v, mask, scale=scale, **more)


def _composed(
    run: Run, node: Node, q: Any, k: Any, v: Any, mask: Any, scale: float, offset: Any, valid: Any
) -> tuple[Any, Any]:
    """Return the result, and the scores that the node is asked for."""
    xp = run.together(q)[0]
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1:3]
    grouped = (batch, kv_heads, heads // kv_heads)
    raw = run.call(
        matmul,
        *(q.reshape(*grouped, queries, size), k[:, :, None].swapaxes(-1, -2)),
        epilogue=[("scale", float(scale))],
    ).reshape(batch, heads, queries, keys)
    cap = attribute(node, "softcap", 0.0)
    capped = (cap * xp.tanh(wide(xp, raw) / cap)).astype(raw.dtype) if cap else raw
    hidden = _hidden(xp, node, queries, keys, offset, valid)
    biased = capped
    if mask is not None:
        biased = xp.where(mask, biased, -np.inf) if mask.dtype == np.bool_ else biased + mask
    if hidden is not None:
        biased = xp.where(xp.asarray(hidden), -np.inf, biased)
    biased = biased.astype(raw.dtype, copy=False)
    seen = xp.isfinite(biased.max(axis=-1, keepdims=True))
    shares = run.call(softmax, xp.where(seen, biased, 0).astype(raw.dtype, copy=False))
    shares = xp.where(seen, shares, 0).astype(raw.dtype, copy=False)
    y = run.call(matmul, shares.reshape(*grouped, queries, keys), v[:, :, None])
    steps = (raw, capped, biased, shares)
    return y.reshape(batch, heads, queries, -1), steps[attribute(node, "qk_matmul_output_mode", 0)]


def _hidden(xp: Any, node: Node, queries: int, keys: int, offset: Any, valid: Any) -> Any:
    """Return where a key does not count, as booleans of NumPy that broadcast to the scores; None if all do."""
    own = np.arange(queries)[:, None] + offset
    key = np.arange(keys)
    left, right = _windows(node)
    found: list[Any] = []
    if attribute(node, "is_causal", 0):
        found.append(key > own)
    if left >= 0:
        found.append(key < own - left)
    if right >= 0:
        found.append(key > own + right)
    if valid is not None:
        count = np.asarray(offset) + queries
        found.append(key >= count)
    hidden = None
    for each in found:
        hidden = each if hidden is None else hidden | each
    return hidden


def _rotary(run: Run, node: Node, x: Any, cosine: Any, sine: Any, positions: Any = None) -> Any:
    """Rotate pairs of the first elements of each head by an angle per position.

    A pair (a, b) becomes (a * cos - b * sin, b * cos + a * sin): two chains of operations on a view in which pairs are
    an axis. With the attribute `signed`, the sine has (-sin, sin) of all pairs.
    """
    xp, x, cosine, sine, positions = run.together(x, cosine, sine, positions)
    merged = x.ndim == 3
    heads = x.reshape(*x.shape[:2], attribute(node, "num_heads"), -1) if merged else x.transpose(0, 2, 1, 3)
    size = attribute(node, "rotary_embedding_dim", 0) or heads.shape[3]
    if positions is not None:
        cosine, sine = cosine[positions], sine[positions]
    axis = 4 if attribute(node, "interleaved", 0) else 3
    if not attribute(node, "signed", 0):
        sine = sine[..., : size // 2]
        sine = xp.stack([-sine, sine], axis=axis - 1 if axis == 3 else -1)
    else:
        sine = sine.reshape(*sine.shape[:2], 2, size // 2)
    cosine, sine = xp.expand_dims(cosine[:, :, None, : size // 2], axis), sine[:, :, None]
    result = xp.empty(heads.shape, x.dtype)
    pairs, found = (_paired(each[..., :size], axis) for each in (heads, result))
    exchanged = xp.flip(pairs, axis)
    if is_served(x):
        turned = run.call(elementwise, exchanged, [("mul", run.device(sine))])
        run.call(elementwise, pairs, [("mul", run.device(cosine)), ("add", turned)], out=found)
    else:
        found[...] = pairs * cosine + exchanged * sine
    if size < heads.shape[3]:
        result[..., size:] = heads[..., size:]
    return result.reshape(x.shape) if merged else result.transpose(0, 2, 1, 3)


def _paired(heads: Any, axis: int) -> Any:
    """Return a view of heads whose pairs are an axis of their own."""
    half = heads.shape[3] // 2
    return heads.reshape(*heads.shape[:3], *((2, half) if axis == 3 else (half, 2)))


LOWERINGS: dict[str, Lowering] = {"Attention": _attention, "RotaryEmbedding": _rotary}
