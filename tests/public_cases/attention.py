"""Attention, drawn: against ONNX's reference evaluator in float64, and with a soft cap against NumPy."""

from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts

from . import onnx_ops
from .drawing import Draw
from .references import agree, wide
from .serving import Served

U = facts("float32").unit_roundoff


def attention(draw: Draw, served: Served) -> None:
    if draw.extreme and draw.often(0.4):
        return sequences(draw, served)
    dtype, head = draw.pick(["float16", "bfloat16"]), draw.pick([16, 32, 64, 20, 7])
    dtype = draw.pick([dtype, dtype, "float32", "float64"]) if draw.extreme else dtype
    batch, kv_heads, group = draw.pick([1, 2, 3]), draw.pick([1, 2]), draw.pick([1, 2, 3])
    queries, keys = draw.pick([1, 1, 5, 17, 33]), draw.pick([1, 16, 17, 33, 70, 70])
    if draw.often(0.08):
        batch, keys = draw.pick([(0, keys), (batch, 0)])
    infinite, draw.special = draw.special == "inf", "" if draw.special == "inf" else draw.special
    q = draw.array((batch, kv_heads * group, queries, head), dtype)
    head_v = draw.pick([head, head, head, head, 24])
    k, v = (draw.array((batch, kv_heads, keys, each), dtype, special=False) for each in (head, head_v))
    if head_v != head:
        draw.traits.add("heads of another size")
    full = (batch, kv_heads * group, queries, keys)
    mask = None
    if draw.often(0.45):
        cut = [extent if draw.often(0.6) else 1 for extent in full][draw.pick([0, 0, 2]) :]
        kind = draw.pick(["bool", dtype])
        draw.traits.add("boolean mask" if kind == "bool" else "added mask")
        mask = draw.rng.integers(0, 3, cut) > 0 if kind == "bool" else draw.array(cut, kind, special=False)
        if draw.extreme and kind != "bool" and "nan" not in draw.traits and mask.flags.writeable and draw.often(0.5):
            mask[draw.rng.integers(0, 3, mask.shape) == 0] = -np.inf
    causal = False if infinite else draw.pick([False, False, True, "upper_left"])
    draw.traits.add(f"causal {causal}")
    window = draw.pick([None, None, (None, None), (3, 0), (20, -1), (None, 4), (0, 0), (40, 17)])
    window = None if infinite else window
    draw.traits.add("window" if window and window != (None, None) else "no window")
    softcap = None if infinite else draw.pick([None, None, None, 0, 1.5, 30.0, 50.0])
    if softcap:
        draw.traits.add("soft cap")
    if infinite and mask is None and not causal and not window and v.size and v.flags.writeable:
        v[tuple(draw.pick(range(extent)) for extent in v.shape)] = draw.pick([np.inf, -np.inf])
        draw.traits.add("inf")
    scale = draw.pick([None, 0.25, 2.0]) if softcap else draw.pick([None, 0.25])
    if draw.extreme:
        scale = draw.pick([scale, 0, 0.0, -0.25, 2.0, 1e-30])
    scale = None if infinite else scale  # a weight that underflows to 0 makes a NaN of inf
    shown = k
    if draw.extreme and mask is not None and mask.dtype == bool and mask.shape[-1] == keys and keys > 1:
        hidden = int(draw.rng.integers(keys))  # a key that no query sees, whatever stands there
        mask[..., hidden] = False
        k, shown = np.array(k), np.array(k)
        k[:, :, hidden], shown[:, :, hidden] = draw.pick([np.nan, np.inf, -np.inf]), 0
    out = draw.out((*q.shape[:3], head_v), dtype)
    more = {"window": window, "softcap": softcap}
    if draw.extreme and draw.often(0.08):
        draw.refused, mask, causal, more = _refusal(draw, full, mask, causal, more)
    sinks, logarithms = None if infinite else _sinks(draw, q), draw.often(0.3)
    more |= {"sinks": sinks, "return_lse": logarithms}
    found = served.call(gk.attention, q, k, v, mask, causal, scale, **more, out=out, nothing=keys == 0)
    added = _sum_of_masks(mask, causal, window or (None, None), full)
    values, bound = _reference(q, shown, v, added, scale, softcap, dtype, sinks)
    if logarithms:
        found, lse = found
        agree(lse, *_logarithms(q, shown, added, scale, softcap, sinks), "float32", "float32")
    agree(found, values, bound, dtype, ACCUMULATORS[dtype])


def _sinks(draw: Draw, q: np.ndarray) -> np.ndarray | None:
    """A number per head, of a type that kernels read or not, at any stride; -inf is no sink."""
    if not draw.often(0.35):
        return None
    draw.traits.add("sinks")
    sinks = draw.array((q.shape[1],), draw.pick(["float16", "bfloat16", "float32", "float64"]), special=False)
    if sinks.size and sinks.flags.writeable and draw.often(0.2):
        sinks[0] = -np.inf
    return sinks


def _logarithms(
    q: np.ndarray, k: np.ndarray, added: np.ndarray, scale: float | None, softcap: float | None,
    sinks: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The logarithms of the denominators, and a kernel's error: those of scores, of the largest one, and of sums."""
    factor = float(q.shape[-1] ** -0.5 if scale is None else scale)
    q, k = wide(q), np.repeat(wide(k), q.shape[1] // max(k.shape[1], 1), 1)
    scores, terms = factor * (q @ k.swapaxes(-1, -2)), abs(factor) * (np.abs(q) @ np.abs(k).swapaxes(-1, -2))
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    scores = np.where(np.isneginf(added), -np.inf, scores + added)
    sink = np.full((1, q.shape[1], 1), -np.inf) if sinks is None else wide(sinks)[None, :, None]
    top = np.maximum(scores.max(-1, initial=-np.inf), sink)
    base = np.where(np.isneginf(top), 0.0, top)
    values = base + np.log(np.exp(scores - base[..., None]).sum(-1) + np.exp(sink - base))
    known = np.where(np.isfinite(scores), np.abs(scores), 0.0).max(-1, initial=0.0)
    known = known + np.where(np.isfinite(sink), np.abs(sink), 0.0)
    bound = U * (2.5 * (q.shape[3] + 16) * terms.max(-1, initial=0.0) + 12 * known + 2.5 * k.shape[2] + 64)
    return values, np.where(np.isfinite(values), bound + 32 * U * (softcap or 0.0), 0.0)


def _refusal(draw: Draw, full: tuple[int, ...], mask: Any, causal: Any, more: dict[str, Any]) -> tuple[Any, ...]:
    """Why, and arguments that every way refuses."""
    return draw.pick(
        [
            ("an integer mask", np.ones(full, draw.pick([np.int32, np.uint8, np.int64])), causal, more),
            ("a mask of another shape", np.ones((*full[:3], full[3] + 2), bool), causal, more),
            ("a mask of five axes", np.ones((1, *full), bool), causal, more),
            ("an unknown word", mask, "lower", more),
            ("a window of three sides", mask, causal, more | {"window": (1, 2, 3)}),
            ("a window before the first key", mask, causal, more | {"window": (-2, 0)}),
            ("a negative soft cap", mask, causal, more | {"softcap": -1.0}),
            ("an infinite soft cap", mask, causal, more | {"softcap": np.inf}),
        ]
    )


def sequences(draw: Draw, served: Served) -> None:
    """Sequences of different lengths one after the other, and keys in pages."""
    dtype, head = draw.pick(["float16", "bfloat16", "float32"]), draw.pick([16, 32, 64, 20])
    softcap = draw.pick([None, 2.0, 30.0])
    draw.special = "" if draw.special == "inf" else draw.special
    kv_heads, group, count = draw.pick([1, 2]), draw.pick([1, 2]), draw.pick([1, 2, 3])
    ragged, paged, page = draw.often(0.6), draw.often(0.5), draw.pick([16, 32, 8, 64, 4, 1])
    paged = paged or not ragged
    count += draw.pick([0, 0, 33]) if ragged else 0  # more sequences than a warp has lanes
    few = [draw.pick([0, 1, 5, 17]) for _ in range(min(count, 3))]
    lengths = few + [0] * (count - len(few)) if ragged else [draw.pick([1, 5, 17])] * count
    many = [draw.pick([0, 1, 16, 17, 40]) for _ in range(count)]
    rows = sum(lengths) + draw.pick([0, 0, 3]) if ragged else lengths[0]
    q = draw.array((1 if ragged else count, kv_heads * group, rows, head), dtype)
    width = -(-max(many) // page) + draw.pick([0, 1]) if paged else 0
    pages = max(count * width, 1) + draw.pick([0, 2])
    shape = (pages, kv_heads, page) if paged else (1, kv_heads, sum(many) + draw.pick([0, 2]))
    head_v = draw.pick([head, head, 24])
    k, v = (draw.array((*shape, each), dtype, special=False) for each in (head, head_v))
    integer = draw.pick([np.int32, np.int64, np.uint8 if max(sum(many), sum(lengths)) < 256 else np.int32])
    keywords: dict[str, Any] = {"window": draw.pick([None, (3, 0), (None, 4)]), "softcap": softcap}
    if paged and draw.often(0.3):  # the order of FlashAttention's caches
        k, v = (np.ascontiguousarray(each.swapaxes(1, 2)).swapaxes(1, 2) for each in (k, v))
    if ragged:
        name, ends = draw.pick([("offsets", np.cumsum(lengths)), ("sizes", np.array(lengths))])
        keywords[name] = ends.astype(integer) if draw.often(0.7) else [int(each) for each in ends]
    table = draw.rng.permutation(pages)[: count * width].reshape(count, width)
    if paged:
        keywords |= {"block_table": table.astype(draw.pick([np.int32, np.int64])), "key_sizes": np.array(many, integer)}
    else:
        name, ends = draw.pick([("key_offsets", np.cumsum(many)), ("key_sizes", np.array(many))])
        keywords[name] = ends.astype(integer)
    if draw.often(0.12) and table.size:
        wrong: list[Any] = [("key_sizes", np.array([-1] * count)), ("key_sizes", np.array([10**6] * count))]
        wrong += [("key_sizes", np.array([0.5] * count)), ("key_sizes", np.array([2**32] * count))]
        for bad in (pages, -1, 2**31, 2**32, 2**32 + 1, -(2**32)) if all(many) else ():
            wrong.append(("block_table", np.where(np.arange(table.size).reshape(table.shape) == 0, bad, table)))
        name, value = draw.pick(wrong)
        if paged or name == "key_sizes":
            draw.refused = f"{name} that cannot be"
            keywords.pop("key_offsets", None)
            keywords[name] = value if served.emulated else "x"  # arrays on a GPU are not checked
    causal, scale = draw.pick([False, True, "upper_left"]), draw.pick([None, 0.25, 0.0])
    out = draw.out((*q.shape[:3], head_v), dtype)
    nothing = not any(a and b for a, b in zip(lengths, many, strict=True))
    found = served.call(gk.attention, q, k, v, None, causal, scale, out=out, nothing=nothing, **keywords)
    values, bound = np.zeros((*q.shape[:3], head_v)), np.zeros((*q.shape[:3], head_v))
    for number, (queries, keys) in enumerate(zip(lengths, many, strict=True)):
        first, begin = sum(lengths[:number]) if ragged else 0, sum(many[:number])
        place = (slice(0, 1) if ragged else slice(number, number + 1), slice(None), slice(first, first + queries))
        if paged:
            own = [np.concatenate(list(x[table[number]]), 1)[None, :, :keys] if width else x[:1, :, :0] for x in (k, v)]
        else:
            own = [x[:, :, begin : begin + keys] for x in (k, v)]
        full = (1, q.shape[1], queries, keys)
        added = _sum_of_masks(None, causal, keywords["window"] or (None, None), full)
        values[place], bound[place] = _reference(q[place], *own, added, scale, softcap, dtype)
    agree(found, values, bound, dtype, "float32")


def _reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float | None, softcap: float | None,
    dtype: str, sinks: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Values in float64, and a kernel's error. A sink is a further key, whose score is the sink's and whose value is
    0."""
    operands = [*map(wide, (q, k, v)), added]
    factor = float(q.shape[-1] ** -0.5 if scale is None else scale)
    values, bound = np.zeros((*q.shape[:3], v.shape[3])), np.zeros((*q.shape[:3], v.shape[3]))
    if k.shape[2] and q.size:
        values = _numpy(*operands, factor, softcap, sinks) if softcap or sinks is not None else _onnx(*operands, factor)
        bound = _bound(*operands, factor, softcap or 0.0, values, dtype)
    return values, np.where(np.isfinite(values), bound, 0.0)


def _sum_of_masks(mask: np.ndarray | None, causal: Any, window: tuple[Any, Any], full: tuple[int, ...]) -> np.ndarray:
    """The sum of all masks, which is added to the scores: -inf where a query does not see a key."""
    queries, keys = full[2:]
    added = np.zeros(full)
    if mask is not None:
        added = added + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else wide(mask))
    behind = np.arange(keys) - np.arange(queries)[:, None] - (0 if causal == "upper_left" else keys - queries)
    left, right = (full[2] + full[3] if side in (None, -1) else side for side in window)
    outside = (behind < -left) | (behind > (0 if causal else right))
    return np.where(outside, -np.inf, added)


def _numpy(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float, softcap: float | None,
    sinks: np.ndarray | None,
) -> np.ndarray:  # fmt: skip
    """NumPy's: scores between -softcap and softcap, to which masks are added, and sinks in the denominator."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = scale * (q @ k.swapaxes(-1, -2))
    scores = (softcap * np.tanh(scores / softcap) if softcap else scores) + added
    sink = np.full((1, q.shape[1], 1, 1), -np.inf) if sinks is None else wide(sinks)[None, :, None, None]
    top = np.maximum(scores.max(-1, keepdims=True), sink)
    top = np.where(top == -np.inf, 0.0, top)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True) + np.exp(sink - top)
    values = weights @ v / np.where(total == 0, 1.0, total)
    return np.where(np.isneginf(added).all(-1, keepdims=True), 0.0, values)


def _onnx(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float | None) -> np.ndarray:
    """ONNX's operator, whose scale is a positive float32; zeros for queries that see no key, which not all of its
    versions give."""
    more = {"scale": 1.0} if scale is not None and scale <= 1e-20 else {} if scale is None else {"scale": scale}
    q = q * scale if more == {"scale": 1.0} else q
    values = onnx_ops.run("Attention", q, k, v, added, softmax_precision=11, **more)
    return np.where(np.isneginf(added).all(-1, keepdims=True), 0.0, values)


def _bound(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, scale: float, softcap: float, values: np.ndarray,
    dtype: str,
) -> np.ndarray:  # fmt: skip
    """attention/reference.py's bound for any data: errors of scores, of rounded weights, of sums."""
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
    products = 2.5 * (head + 16) * U * abs(scale) * (np.abs(q) @ np.abs(k).swapaxes(-1, -2))
    error = w * (products + U * (2 * finite + 2 * np.abs(top) + 6 + 16 * softcap))
    spread = error @ v + error.sum(-1, keepdims=True) * np.abs(values)
    rounded = (r + 2.5 * (keys + 16) * U) * (w @ v) + (keys + 16) * U * np.abs(values)
    return spread + rounded + facts(dtype).smallest_subnormal / 2 * v.sum(-2, keepdims=True) / np.maximum(total, 1.0)


CASES = {"attention": attention}
