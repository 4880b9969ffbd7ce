"""Attention in float64, and the error bound of a correct kernel (derived in tolerance/attention.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.tolerance.attention import Scores, averaging_bound, cap_scores
from gensor_kernels.operators.tolerance.base import Magnitude
from gensor_kernels.operators.types.dtypes import decode

from .forms import VERIFIED_SOFTCAP, Form, diagonals

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


def averages_and_bound(
    workload: Workload, form: Form, arrays: Mapping[str, np.ndarray], structured: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return softmax averages of stored Q, K, V (and a mask, if any) with the bound on a kernel's error."""
    size, types = workload.size, workload.dtype
    shape = tuple(size[axis] for axis in ("batch", "heads", "queries", "head"))
    values, bound = np.zeros(shape), np.zeros(shape)
    group = size["heads"] // max(size["kv_heads"], 1)
    for entry in range(size["batch"]):
        for head in range(size["heads"]):
            q = decode(types["a"], arrays["a"][entry, head])
            k, v = (decode(types[name], arrays[name][entry, head // group]) for name in "bd")
            mask = None
            if form.mask:
                whole = np.broadcast_to(arrays["e"], (*shape[:3], size["keys"]))
                mask = decode(types["e"], whole[entry, head])
            operands = q, k, v, mask
            values[entry, head], bound[entry, head] = of_head(operands, form, diagonals(size), workload, structured)
    return values, bound


def of_head(
    operands: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None],
    form: Form,
    diagonals: tuple[int, int],
    workload: Workload,
    structured: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the softmax averages of a head with their bound; ``operands`` are its Q, K, V and mask in float64."""
    q, k, v, mask = operands
    dtype = workload.dtype["a"]
    scores = scores_of(q, k, max(workload.size["head"], 1) ** -0.5, dtype, structured)
    if form.capped:
        scores = cap_scores(scores, VERIFIED_SOFTCAP)
    return average_values(mask_scores(scores, form.mask, mask, diagonals), v, dtype, structured)


def scores_of(q: np.ndarray, k: np.ndarray, scale: float, dtype: str, structured: bool) -> Scores:
    """Return scale Q K^T in float64, with the error of a kernel's sums."""
    with np.errstate(all="ignore"):
        product, total = q @ k.T, np.abs(q) @ np.abs(k).T
        norm = np.clip(np.sqrt((q * q) @ (k * k).T), total / np.sqrt(max(q.shape[1], 1)), total)
        error = tolerance_base.accumulation_bound(
            product, Magnitude(total, norm), q.shape[1], dtype=dtype, accumulator="float32", structured=structured
        )
        return Scores(product * scale, error * scale)


def mask_scores(scores: Scores, kind: str, mask: np.ndarray | None, diagonals: tuple[int, int]) -> Scores:
    """Return scores after mask, window and diagonal: minus infinity where a query does not see a key."""
    values, error = scores
    with np.errstate(all="ignore"):
        if kind == "added":
            assert mask is not None
            # Scaling and adding round once each.
            values, error = values + mask, error + 2.0**-23 * (np.abs(values) + np.abs(mask))
        elif kind == "bool":
            values = np.where(mask == 0, -np.inf, values)
    queries, keys = values.shape
    first, end = (np.arange(queries)[:, None] + each for each in diagonals)
    seen = (first <= np.arange(keys)) & (np.arange(keys) < end)
    return Scores(np.where(seen, values, -np.inf), error)


def average_values(scores: Scores, v: np.ndarray, dtype: str, structured: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (softmax average of ``v``, bound on a kernel's error), zeros for a query without keys."""
    values = scores.values
    with np.errstate(all="ignore"):
        top = values.max(axis=1, keepdims=True, initial=-np.inf)
        raw = np.exp(values - np.where(top == -np.inf, 0.0, top))
        total = raw.sum(axis=1, keepdims=True)
        weights = np.where(total == 0, 0.0, raw / np.where(total == 0, 1.0, total))
        result = weights @ v
        bound = averaging_bound(
            result, weights, total, np.where(top == -np.inf, 0.0, top), scores, v, dtype, structured
        )
    return result, np.where(np.isfinite(result), bound, 0.0)
