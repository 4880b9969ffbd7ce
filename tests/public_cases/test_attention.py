"""Attention, drawn: against ONNX's reference evaluator in float64, and with a soft cap against NumPy."""

from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import facts

from . import onnx_ops
from .counts import CASES
from .drawing import ARRAYS, Cases, Draw
from .references import agree, wide
from .serving import Served

U = facts("float32").unit_roundoff


def attention(draw: Draw, served: Served) -> None:
    dtype, head = draw.pick(["float16", "bfloat16"]), draw.pick([16, 32, 64, 20, 7])
    batch, kv_heads, group = draw.pick([1, 2, 3]), draw.pick([1, 2]), draw.pick([1, 2, 3])
    queries, keys = draw.pick([1, 1, 5, 17, 33]), draw.pick([1, 16, 17, 33, 70, 70])
    if draw.often(0.08):
        batch, keys = draw.pick([(0, keys), (batch, 0)])
    infinite, draw.special = draw.special == "inf", "" if draw.special == "inf" else draw.special
    q = draw.array((batch, kv_heads * group, queries, head), dtype)
    k, v = (draw.array((batch, kv_heads, keys, head), dtype, special=False) for _ in "kv")
    full = (batch, kv_heads * group, queries, keys)
    mask = None
    if draw.often(0.45):
        cut = [extent if draw.often(0.6) else 1 for extent in full][draw.pick([0, 0, 2]) :]
        kind = draw.pick(["bool", dtype])
        draw.traits.add("boolean mask" if kind == "bool" else "added mask")
        mask = draw.rng.integers(0, 3, cut) > 0 if kind == "bool" else draw.array(cut, kind, special=False)
    causal = draw.pick([False, False, True, "upper_left"])
    draw.traits.add(f"causal {causal}")
    window = draw.pick([None, None, (None, None), (3, 0), (20, -1), (None, 4), (0, 0), (40, 17)])
    draw.traits.add("window" if window and window != (None, None) else "no window")
    softcap = draw.pick([None, None, None, 0, 1.5, 30.0, 50.0])
    if softcap:
        draw.traits.add("soft cap")
    if infinite and mask is None and not causal and not window and v.size and v.flags.writeable:
        v[tuple(draw.pick(range(extent)) for extent in v.shape)] = draw.pick([np.inf, -np.inf])
        draw.traits.add("inf")
    scale = draw.pick([None, 0.25, 2.0]) if softcap else draw.pick([None, 0.25])
    out = draw.out(q.shape, dtype)
    more = {"window": window, "softcap": softcap}
    found = served.call(gk.attention, q, k, v, mask, causal, scale, **more, out=out, nothing=keys == 0)
    assert out is None or found is out
    added = _added(mask, causal, window or (None, None), full)
    operands = [*map(wide, (q, k, v)), added]
    values, bound = np.zeros(q.shape), np.zeros(q.shape)
    if keys and q.size:
        values = _capped(*operands, scale or head**-0.5, softcap) if softcap else _onnx(*operands, scale)
        bound = _bound(*operands, scale or head**-0.5, softcap or 0.0, values, dtype)
    bound = np.where(np.isfinite(values), bound, 0.0)
    agree(found, tolerance_base.expect(values, bound, accumulator="float32", output=dtype))


def _added(mask: np.ndarray | None, causal: Any, window: tuple[Any, Any], full: tuple[int, ...]) -> np.ndarray:
    """What is added to the scores, -inf where a query does not see a key."""
    queries, keys = full[2:]
    added = np.zeros(full)
    if mask is not None:
        added = added + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else wide(mask))
    behind = np.arange(keys) - np.arange(queries)[:, None] - (0 if causal == "upper_left" else keys - queries)
    left, right = (full[2] + full[3] if side in (None, -1) else side for side in window)
    outside = (behind < -left) | (behind > (0 if causal else right))
    return np.where(outside, -np.inf, added)


def _capped(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float, softcap: float) -> np.ndarray:
    """NumPy's: scores between -softcap and softcap, to which masks are added."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = softcap * np.tanh(scale * (q @ k.swapaxes(-1, -2)) / softcap) + added
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0.0, top))
    total = weights.sum(-1, keepdims=True)
    values = weights @ v / np.where(total == 0, 1.0, total)
    return np.where(np.isneginf(added).all(-1, keepdims=True), 0.0, values)


def _onnx(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float | None) -> np.ndarray:
    """ONNX's operator; zeros for queries that see no key, which not all of its versions give."""
    more = {} if scale is None else {"scale": scale}
    values = onnx_ops.run("Attention", q, k, v, added, softmax_precision=11, **more)
    return np.where(np.isneginf(added).all(-1, keepdims=True), 0.0, values)


def _bound(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float, softcap: float, values: np.ndarray,
    dtype: str,
) -> np.ndarray:  # fmt: skip
    """tolerance/attention.py's bound for any data: errors of scores, of rounded weights, of sums."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.abs(np.repeat(v, group, 1))
    head, keys, r = q.shape[3], k.shape[2], facts(dtype).unit_roundoff
    scores = scale * (q @ k.swapaxes(-1, -2))
    scores = (softcap * np.tanh(scores / softcap) if softcap else scores) + added
    top = scores.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    p = np.exp(scores - top)
    total = np.maximum(p.sum(-1, keepdims=True), 1e-300)
    w = p / total
    finite = np.where(w > 0, np.abs(scores), 0.0)
    products = 2.5 * (head + 16) * U * scale * (np.abs(q) @ np.abs(k).swapaxes(-1, -2))
    error = w * (products + U * (2 * finite + 2 * np.abs(top) + 6 + 16 * softcap))
    spread = error @ v + error.sum(-1, keepdims=True) * np.abs(values)
    rounded = (r + 2.5 * (keys + 16) * U) * (w @ v) + (keys + 16) * U * np.abs(values)
    return spread + rounded + facts(dtype).smallest_subnormal / 2 * v.sum(-2, keepdims=True) / np.maximum(total, 1.0)


def test_attention(served):
    cases = Cases("attention", CASES["attention"])
    cases.run(lambda draw: attention(draw, served))
    masks = ("boolean mask", "added mask", "causal True", "causal upper_left", "causal False", "window", "soft cap")
    cases.require(*ARRAYS, "float16", "bfloat16", "nan", "inf", "out", *masks)
