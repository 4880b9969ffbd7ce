"""Attention as expressions: scores, then their softmax average; attention.py says what the names mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression

#: operator by kind of mask: none, booleans that keep, numbers that are added
NAMES = {"": "attention", "bool": "attention_masked", "added": "attention_biased"}
CAUSAL = {"none": 0, "lower_right": 1, "upper_left": 2}
#: Bits of the size ``mask_axes``: the axes along which a mask varies; along the others it is broadcast.
MASK_AXES = {"batch": 8, "heads": 4, "queries": 2, "keys": 1}


def diagonal(sizes: Mapping[str, int]) -> int:
    """Query i sees the keys below i + this."""
    return {0: sizes["keys"], 1: sizes["keys"] - sizes["queries"] + 1, 2: 1}[sizes["causal"]]


def declare(kind: str, **sizes: int) -> tuple[Expression, ...]:
    """Scores, then their softmax average of V; ``kind`` is that of the mask: "", "bool" or "added"."""
    from gensor_kernels.operators.expression.expression import (
        SOFTMAX_AVERAGE,
        SUM,
        Axis,
        Expression,
        axes,
        result,
        tensor,
        where,
    )

    batch, heads, kv_heads, i, j, d = axes("batch heads kv_heads queries keys head")
    q, k = tensor("a", batch, heads, i, d), tensor("b", batch, kv_heads, j, d)
    v = tensor("d", batch, kv_heads, j, d)
    group = heads // max(sizes["heads"] // max(sizes["kv_heads"], 1), 1)
    scores = Expression("scores", (batch, heads, i, j), q[batch, heads, i, d] * k[batch, group, j, d], SUM)
    score = scores[batch, heads, i, j] * max(sizes["head"], 1) ** -0.5
    if kind:
        varies = [axis for axis in (batch, heads, i, j) if sizes["mask_axes"] & MASK_AXES[axis.name]]
        full: list[Axis] = [batch, heads, i, j]
        mask = tensor("e", *(axis if axis in varies else 1 for axis in full))
        value = mask[tuple(axis if axis in varies else 0 for axis in full)]
        score = score + value if kind == "added" else where(_equal(value, 0.0), -math.inf, score)
    if sizes["causal"]:
        score = where(j < i + diagonal(sizes), score, -math.inf)
    average = Expression(
        "c",
        (batch, heads, i, d),
        (score, v[batch, group, j, d]),
        SOFTMAX_AVERAGE,
        map=where(_equal(result("sumexp"), 0.0), 0.0, result()),
    )
    return scores, average


def _equal(left: object, right: object) -> object:
    from gensor_kernels.operators.expression.values import apply

    return apply("equal", left, right)


def seen_pairs(sizes: Mapping[str, int]) -> int:
    """Pairs of a query and a key that it sees, masks left aside."""
    queries, keys, first = sizes["queries"], sizes["keys"], diagonal(sizes)
    if not sizes["causal"]:
        return queries * keys
    # Query i sees clip(first + i, 0, keys): none at first, then ever more, then all.
    none = min(max(1 - first, 0), queries)
    rising = min(max(keys - first, none), queries) - none
    return rising * (2 * (first + none) + rising - 1) // 2 + (queries - none - rising) * keys
