"""Attention of com.microsoft in its forms, lifted to the standard's Attention and TensorScatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_kernels.graph.lowerings.caches import GROWS

from .onnx_lifting import Step, foreign
from .onnx_quantised import product_of

#: Term that onnxruntime adds to scores of keys that a mask hides.
HIDDEN = -10000.0
#: Shape that merges the heads of a tensor (batch, rows, heads, size).
MERGED = (0, 0, -1)
#: Sizes of a tensor that is split into equal parts.
EQUAL: tuple[int, ...] = ()
#: Attributes of quantised caches.
QUANTISED = ("k_quant_type", "v_quant_type")


@foreign("Attention", "QAttention")
def _attention(step: Step) -> None:
    """Project the input to queries, keys and values, and attend; keys and values are one result."""
    if step.node.op_type == "Attention":
        x, weights, bias, mask, past, extra = (step.given(place) for place in range(6))
        projected = step.add("MatMul", x, weights)
        projected = step.add("Add", projected, bias) if bias else projected
    else:
        a, b, bias, scale, other, mask, zero, zeros, past = (step.given(place) for place in range(9))
        projected, extra = product_of(step, a, b, (scale, other), (zero, zeros), bias), ""
    if step.pop("do_rotary", 0) or step.pop("past_present_share_buffer", 0):
        raise step.refusal("rotary embeddings and caches of a fixed size are served in GroupQueryAttention")
    q, k, v = _split(step, projected, 3, -1, step.pop("qkv_hidden_sizes", EQUAL))
    caches = [step.add("Gather", past, step.constant(place)) if past else "" for place in (0, 1)]
    terms = _terms(step, mask, k, caches[0], extra)
    present = step.wanted(1)
    keys = [step.lifting.name() if present else "" for _ in caches]
    _become_attention(step, (q, k, v), terms, caches, keys)
    if present:
        parts = [step.follow("Unsqueeze", each, step.constant([0])) for each in keys]
        step.follow("Concat", *parts, result=present, axis=0)


@foreign("MultiHeadAttention")
def _multi_head(step: Step) -> None:
    q, k, v, bias, mask, extra, *caches = (step.given(place) for place in range(8))
    if step.given(9) or step.wanted(3):
        raise step.refusal("beams in caches, and scores as a result, are not served")
    in_heads = bool(v) and step.rank(1) == 4
    sizes = _bias_sizes(step) if bias and v and not in_heads else EQUAL
    if not k:
        q, k, v = (_merge(step, each) for each in _split(step, q, 3, 3))
    elif not v:
        k, v = (_merge(step, each) for each in _split(step, k, 2, 3))
    elif in_heads:  # of an encoder: the bias is in them
        k, v = (_merge(step, step.add("Transpose", each, perm=[0, 2, 1, 3])) for each in (k, v))
    if bias:
        first, *others = _split(step, bias, 3, 0, sizes)
        q = step.add("Add", q, first)
        if not in_heads:
            k, v = step.add("Add", k, others[0]), step.add("Add", v, others[1])
    terms = _terms(step, mask, k, caches[0], extra)
    _become_attention(step, (q, k, v), terms, caches, [step.wanted(1), step.wanted(2)])


@foreign("GroupQueryAttention")
def _group_query(step: Step) -> None:
    """Rotate queries and keys, append keys and values to a cache, and attend to the keys of each batch entry.

    `seqlens_k` is their number less one. A cache has a fixed size where the file gives past and present one size; else
    it grows by the new rows.
    """
    q, k, v, *pasts, counts, _, _, _, places, extra = (step.given(place) for place in range(11))
    heads, kv_heads = step.pop("num_heads"), step.pop("kv_num_heads")
    quantised = any(step.pop(each, "NONE") != "NONE" for each in QUANTISED)
    if step.given(11) or step.pop("smooth_softmax", 0) > 0 or step.wanted(3) or quantised:
        raise step.refusal("sinks, quantised caches, and scores as a result, are not served")
    if not k:
        q = step.add("Reshape", q, step.constant([0, 0, heads + 2 * kv_heads, -1]))
        q, k, v = (_merge(step, each) for each in _split(step, q, 3, 2, (heads, kv_heads, kv_heads)))
    rows = step.add("Shape", q, start=1, end=2)
    seen = step.add("Add", step.add("Cast", step.add("Reshape", counts, step.constant([-1])), to=7), step.constant([1]))
    begins = step.add("Max", step.add("Sub", seen, rows), step.constant([0]))
    if step.pop("do_rotary", 0):
        places = places or step.add("Add", step.add("Unsqueeze", begins, step.constant([1])), step.range(rows))
        angles = step.given(7), step.given(8), places
        how = {"interleaved": step.pop("rotary_interleaved", 0), "rotary_embedding_dim": _rotated_size(step, heads)}
        q = step.add("RotaryEmbedding", q, *angles, num_heads=heads, **how)
        k = step.add("RotaryEmbedding", k, *angles, num_heads=kv_heads, **how)
    window = step.pop("local_window_size", -1)
    more = {"is_causal": 1, "softcap": step.pop("softcap", 0.0), "left_window_size": window - 1 if window > 0 else None}
    keys = [step.wanted(1), step.wanted(2)]
    size, is_single = step.extent(pasts[0], 2), step.extent(pasts[0], 0) == 1
    is_fixed = size is not None and size == step.extent(keys[0], 2)
    step.set("num_heads", heads)
    if not pasts[0] or (is_single and not is_fixed):
        _become_attention(step, (q, k, v), [extra] if extra else [], pasts, keys, kv_heads, **more)
        return
    caches = []
    for cache, new, name in zip(pasts, (k, v), keys, strict=True):
        rows_of = _split_heads(step, new, kv_heads)
        cache = cache if is_fixed else step.add("Concat", cache, rows_of, axis=2)
        caches.append(name or step.lifting.name())
        grows = {} if is_fixed else {GROWS: 1}
        step.make(caches[-1], "TensorScatter", cache, rows_of, begins, axis=2, **grows)
    ends = step.add("Add", begins, rows)
    found = step.add(
        "Attention", _split_heads(step, q, heads), *caches, extra, "", "", ends, scale=_scale(step), **more
    )
    del step.node.output[1:]
    step.become("Reshape", step.add("Transpose", found, perm=[0, 2, 1, 3]), step.constant(MERGED))


def _rotated_size(step: Step, heads: int) -> int:
    """Return how many elements of a head are rotated, 0 for all: the table of angles may be narrower."""
    table, width = step.extent(step.given(7), 1), step.extent(step.given(0), 2)
    if not isinstance(table, int):
        return 0
    is_whole = isinstance(width, int) and step.given(1) and width == 2 * table * heads
    return 0 if is_whole else 2 * table


def _merge(step: Step, x: str) -> str:
    """Return a tensor (batch, rows, heads, size), with further axes of 1, as (batch, rows, heads x size)."""
    return step.add("Reshape", x, step.constant(MERGED))


def _split_heads(step: Step, x: str, heads: int) -> str:
    """Return a tensor (batch, rows, heads x size) as (batch, heads, rows, size)."""
    return step.add("Transpose", step.add("Reshape", x, step.constant([0, 0, heads, -1])), perm=[0, 2, 1, 3])


def _split(step: Step, x: str, count: int, axis: int, sizes: Sequence[int] = EQUAL) -> list[str]:
    if sizes:
        return step.add_several(count, "Split", x, step.constant(sizes), axis=axis)
    return step.add_several(count, "Split", x, axis=axis, num_outputs=count)


def _bias_sizes(step: Step) -> Sequence[int]:
    """Return the sizes of the biases of queries, keys and values, equal ones where the widths are not known."""
    width, total = step.extent(step.given(0), 2), step.extent(step.given(3), 0)
    if isinstance(width, int) and isinstance(total, int):
        return width, width, total - 2 * width
    return EQUAL


def _scale(step: Step) -> float | None:
    """Return the factor of scores; None, in the standard's words, for the root of a head's size."""
    return step.pop("scale", 0.0) or None


def _become_attention(
    step: Step,
    operands: Sequence[str],
    terms: Sequence[str],
    caches: Sequence[str],
    keys: Sequence[str],
    kv_heads: int = 0,
    **more: Any,
) -> None:
    """Let the node be an Attention of merged heads with terms of its scores, and the keys and values as results."""
    heads = step.pop("num_heads")
    attributes = {"is_causal": step.pop("unidirectional", 0), **more, "scale": _scale(step)}
    attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads or heads}
    mask = "" if not terms else terms[0] if len(terms) == 1 else step.add("Add", *terms)
    step.become("Attention", *operands, mask, *caches, **attributes)
    del step.node.output[1:]
    step.node.output.extend(keys if any(keys) else ())


def _terms(step: Step, mask: str, k: str, past: str, extra: str) -> list[str]:
    """Return the terms of the scores: of a mask in any of onnxruntime's forms, and one that is given."""
    least = step.pop("mask_filter_value", HIDDEN)
    terms = [extra] if extra else []
    if not mask:
        return terms
    rank = step.rank_of(mask)
    if rank == 1:  # the number of keys of each batch entry
        if not _is_batch(step, mask):
            raise step.refusal("masks by the first and the last key are not served")
        count = step.add("Shape", k, start=1, end=2)
        count = step.add("Add", count, step.add("Shape", past, start=2, end=3)) if past else count
        sizes = step.add("Unsqueeze", step.add("Cast", mask, to=7), step.constant([1]))
        seen = step.add("Less", step.range(count), sizes)
    else:
        seen = step.add("Cast", mask, to=9)
    if rank > 3:
        raise step.refusal("masks of four axes are not served; give them as attention_bias")
    axes = step.constant([1] if rank == 3 else [1, 2])
    shares = step.add(
        "Where", step.add("Unsqueeze", seen, axes), *(step.constant(each, np.float32) for each in (0, least))
    )
    return [step.add("CastLike", shares, k), *terms]


def _is_batch(step: Step, mask: str) -> bool:
    """Return whether a mask surely has one number for each batch entry, by the sizes that the file names."""
    own, batch = step.extent(mask, 0), step.extent(step.given(0), 0)
    return own == batch or not (isinstance(own, int) and isinstance(batch, int))
