"""Attention and rotary embeddings."""

from __future__ import annotations

import math
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.attention import attention
from gensor_kernels.dispatch.api.matmul import matmul
from gensor_kernels.dispatch.api.norms import elementwise, softmax

from .base import Lowering, Run, Tensor, is_served, name_of, refusal
from .caches import Pages, pages_of
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node


def _attention(
    run: Run,
    node: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor = None,
    past_key: Tensor = None,
    past_value: Tensor = None,
    valid: Tensor = None,
) -> Tensor:
    """Compute softmax(softcap(scale * q @ k.T) + mask) @ v; a query that sees no key gives zeros.

    `valid` is the number of keys of each batch entry in a cache with room for more. Heads of 16 bits are one kernel,
    which reads these numbers on the device, others a product, a softmax and a product.
    """
    xp, q, k, v, mask, past_key, past_value = run.together(q, k, v, mask, past_key, past_value)
    if mask is not None and mask.dtype.kind in "iu":  # ONNX adds them, `attention` refuses them
        mask = mask.astype(q.dtype)
    merged, past = q.ndim == 3, 0
    if merged:
        heads, kv_heads = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
        q, k, v = _heads(q, heads), _heads(k, kv_heads), _heads(v, kv_heads)
    fresh = k.shape[2]
    if past_key is not None:
        past = past_key.shape[2]
        k, v = xp.concatenate([past_key, k], axis=2), xp.concatenate([past_value, v], axis=2)
    if mask is not None and mask.shape[-1] < k.shape[2]:
        pads = [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])]
        mask = xp.pad(mask, pads, mode="constant", constant_values=False if mask.dtype == np.bool_ else -np.inf)
    scale = node.attribute("scale")
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    whole = past == 0 or fresh == q.shape[2]
    is_fused = name_of(q) in ("float16", "bfloat16") and len(node.outputs) < 4 and _is_uniform(q, k, v) and scale > 0
    pages = pages_of(k, v) if is_fused and valid is not None and mask is None and k.size and q.size else None
    scores = None
    if pages is not None:
        y = _attend_cache(run, node, q, pages, valid, scale)
    elif is_fused and valid is None and whole:
        y = _attend(run, node, q, k, v, mask, scale, "lower_right" if past else "upper_left")
    elif valid is None and len(node.outputs) < 4 and not node.attribute("softcap") and _is_step(q, mask):
        y = _in_steps(run, node, q, k, v, mask, scale, past)
    else:
        offset = past if valid is None else valid.reshape(-1, 1, 1, 1) - q.shape[2]
        y, scores = _compose(run, node, q, k, v, mask, scale, offset, valid)
    if merged or node.attribute("heads_last"):
        y = y.transpose(0, 2, 1, 3)  # a view of memory in this order, where one kernel computes
    if merged:
        y = y.reshape(*y.shape[:2], -1)
    return (y, k, v, scores)[: len(node.outputs)]


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _is_uniform(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether all heads have one size and one dtype, as one kernel needs."""
    return q.shape[3] == k.shape[3] == v.shape[3] and q.dtype == k.dtype == v.dtype


def _windows(node: Node) -> tuple[int, int]:
    return node.attributes.get("left_window_size", -1), node.attributes.get("right_window_size", -1)


def _options(run: Run, node: Node, q: Tensor) -> dict[str, Any]:
    """Return a window, a cap of scores, and memory for a result with the axis of rows before that of heads."""
    more: dict[str, Any] = {}
    if max(_windows(node)) >= 0:
        more["window"] = _windows(node)
    if cap := node.attribute("softcap"):
        more["softcap"] = cap
    if node.attribute("heads_last") or node.attribute("q_num_heads"):
        batch, heads, queries, size = q.shape
        more["out"] = run.xp.empty((batch, queries, heads, size), q.dtype).transpose(0, 2, 1, 3)
    return more


def _attend(run: Run, node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, corner: str) -> Tensor:
    causal, more = corner if node.attribute("is_causal") else False, _options(run, node, q)
    if "window" in more and corner == "upper_left" and not causal and q.shape[2] != k.shape[2]:
        raise refusal(node, "a window over keys of another number than the queries needs is_causal or past keys")
    return run.call(attention, q, k, v, mask, scale=scale, causal=causal, **more)


def _attend_cache(run: Run, node: Node, q: Tensor, pages: Pages, valid: Tensor, scale: float) -> Tensor:
    """Attend to the valid keys of a cache in one kernel."""
    return run.call(
        attention,
        *(q, pages.keys, pages.values),
        causal=bool(node.attribute("is_causal")),
        scale=scale,
        key_sizes=run.device(valid),
        block_table=run.device(pages.table),
        **_options(run, node, q),
    )


def _is_step(q: Tensor, mask: Tensor) -> bool:
    """Return whether a mask, if there is one, can be a step of an epilogue."""
    return is_served(q) and (mask is None or mask.dtype in (np.bool_, q.dtype))


def _in_steps(run: Run, node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, past: int) -> Tensor:
    """Compute a product with scale and masks, a softmax, and a product that gives zeros to rows without keys."""
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1:3]
    grouped = (batch, kv_heads, heads // kv_heads)
    steps: list[Any] = [("scale", float(scale))]
    hidden = _key_mask(np, node, queries, keys, past, None)
    visible = None if hidden is None else ~hidden
    if visible is not None:
        steps.append(("mask", run.device(visible), -np.inf))
    if mask is not None:
        split = (1, 1) if mask.ndim < 3 or mask.shape[-3] == 1 else grouped[1:]
        lead = mask.shape[0] if mask.ndim == 4 else 1
        wide = mask.reshape((lead, *split, *((1,) * (2 - mask.ndim) + tuple(mask.shape))[-2:]))
        boolean = mask.dtype == np.bool_
        steps.append(("mask", run.device(wide), -np.inf) if boolean else ("add", run.device(wide)))
        own = wide if boolean else wide > -np.inf
        visible = own if visible is None else own & run.together(own, visible)[2]
    last: list[Any] = []
    if visible is not None:
        last.append(("mask", run.device(visible.any(axis=-1, keepdims=True)), 0.0))
    scores = run.call(matmul, q.reshape(*grouped, queries, size), k[:, :, None].swapaxes(-1, -2), epilogue=steps)
    shares = run.call(softmax, scores)
    found = run.call(matmul, shares, v[:, :, None], **({"epilogue": last} if last else {}))
    return found.reshape(batch, heads, queries, -1)


def _compose(
    run: Run,
    node: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    scale: float,
    offset: int | Tensor,
    valid: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the result, and the scores that the node returns."""
    xp = run.together(q)[0]
    batch, heads, queries, size = q.shape
    kv_heads, keys = k.shape[1:3]
    grouped = (batch, kv_heads, heads // kv_heads)
    raw = run.call(
        matmul,
        *(q.reshape(*grouped, queries, size), k[:, :, None].swapaxes(-1, -2)),
        epilogue=[("scale", float(scale))],
    ).reshape(batch, heads, queries, keys)
    cap = node.attribute("softcap")
    capped = (cap * xp.tanh(wide(xp, raw) / cap)).astype(raw.dtype) if cap else raw
    hidden = _key_mask(run.together(valid)[0], node, queries, keys, offset, valid)
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
    return y.reshape(batch, heads, queries, -1), steps[node.attribute("qk_matmul_output_mode")]


def _key_mask(xp: ModuleType, node: Node, queries: int, keys: int, offset: int | Tensor, valid: Tensor) -> Tensor:
    """Return where a key is hidden, as booleans of `xp` that broadcast to the scores, or None if none is."""
    own = xp.arange(queries)[:, None] + offset
    key = xp.arange(keys)
    left, right = _windows(node)
    found: list[Any] = []
    if node.attribute("is_causal"):
        found.append(key > own)
    if left >= 0:
        found.append(key < own - left)
    if right >= 0:
        found.append(key > own + right)
    if valid is not None:
        found.append(key >= offset + queries)
    hidden = None
    for each in found:
        hidden = each if hidden is None else hidden | each
    return hidden


def _rotary(run: Run, node: Node, x: Tensor, cosine: Tensor, sine: Tensor, positions: Tensor = None) -> Tensor:
    """Rotate pairs of the first elements of each head by an angle per position.

    A pair (a, b) becomes (a * cos - b * sin, b * cos + a * sin): two chains of operations on a view with an axis of
    pairs.
    """
    xp, x, cosine, sine, positions = run.together(x, cosine, sine, positions)
    merged = x.ndim == 3
    heads = x.reshape(*x.shape[:2], node.attribute("num_heads"), -1) if merged else x.transpose(0, 2, 1, 3)
    size = node.attribute("rotary_embedding_dim") or heads.shape[3]
    if positions is not None:
        cosine, sine = cosine[positions], sine[positions]
    axis = 4 if node.attribute("interleaved") else 3
    sine = sine[..., : size // 2]
    sine = xp.stack([-sine, sine], axis=axis - 1 if axis == 3 else -1)
    cosine, sine = xp.expand_dims(cosine[:, :, None, : size // 2], axis), sine[:, :, None]
    result = xp.empty(heads.shape, x.dtype)
    pairs, found = (_pairs_of(each[..., :size], axis) for each in (heads, result))
    exchanged = xp.flip(pairs, axis)
    if is_served(x):
        turned = run.call(elementwise, exchanged, [("mul", run.device(sine))])
        run.call(elementwise, pairs, [("mul", run.device(cosine)), ("add", turned)], out=found)
    else:
        found[...] = pairs * cosine + exchanged * sine
    if size < heads.shape[3]:
        result[..., size:] = heads[..., size:]
    return result.reshape(x.shape) if merged else result.transpose(0, 2, 1, 3)


def _pairs_of(heads: Tensor, axis: int) -> Tensor:
    """Return a view of heads with a separate axis of pairs."""
    half = heads.shape[3] // 2
    return heads.reshape(*heads.shape[:3], *((2, half) if axis == 3 else (half, 2)))


def _rotate_pairs(run: Run, node: Node, x: Tensor, ratio: Tensor, sine: Tensor) -> Tensor:
    """Rotate pairs of elements of each head: (x * ratio + swapped x) * sine, in one kernel (rewrites/rotations.py)."""
    merged = x.ndim == 3
    x = run.device(x)
    heads = x.reshape(*x.shape[:2], node.attribute("num_heads"), -1) if merged else x.transpose(0, 2, 1, 3)
    half, interleaved = heads.shape[3] // 2, node.attribute("interleaved")
    pairs = (half, 2) if interleaved else (2, half)
    split = heads.reshape(*heads.shape[:3], *pairs)
    swapped = split[..., ::-1] if interleaved else split[..., ::-1, :]
    ratio, sine = (each.reshape(*each.shape[:2], 1, *pairs) for each in map(run.device, (ratio, sine)))
    found = run.call(elementwise, split, [("mul", ratio), ("add", swapped), ("mul", sine)])
    return found.reshape(x.shape) if merged else found.reshape(heads.shape).transpose(0, 2, 1, 3)


LOWERINGS: dict[str, Lowering] = {"Attention": _attention, "Rotary": _rotate_pairs, "RotaryEmbedding": _rotary}
