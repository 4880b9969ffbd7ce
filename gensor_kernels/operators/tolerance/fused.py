"""Error bounds of products with more than an epilogue: gated, normalised, after a prologue; all in float64.

*Gated.*  With errors e and e' of the products g and u after their biases, f(g + e) (u + e') differs from f(g) u by at
most |f(g)| e' + |u| E + E e', where E is base.step_bound of f: its Lipschitz constant times e, and its own roundings.
The product of both is rounded once more.  All arithmetic is in the accumulator's type, without rounding to the output's
type in between.

*Normalised.*  y = (x - mean) / s, s = sqrt(var + eps), of an x with errors e: with E = sqrt(mean(e^2)) the mean is off
by at most E, and so is s, which is a norm of x - mean.  So y is off by at most ((e + E) + |y| E) / (s - E) plus the
bound of rows.py for the norm of an exact x.  Without a mean (rmsnorm) the same bound holds a fortiori.

*After a prologue.*  A kernel computes f(a) in the accumulator's type with an error of at most E, the accumulated error
of the steps, and rounds it to a's dtype.  So the multiplied number is between the rounded values of f - E and f + E,
which for 16-bit types are nearly always equal.  The reference multiplies the rounded f; ``away`` is the largest
distance to it, and errors of products of away with |b| may add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_kernels.operators.types.dtypes import facts, round_to
from gensor_kernels.operators.types.epilogue import Step, step_function

from . import rows as tolerance_rows
from .base import step_bound

#: Values, and the bound on the error of each.
Bounded = tuple[np.ndarray, np.ndarray]


def gated_bound(gate: str, first: Bounded, second: Bounded, bias: np.ndarray | None, accumulator: str) -> Bounded:
    """Return f(g) u with its bound, of g and u with theirs; ``bias`` is (2, n), ``gate`` names f."""
    u = facts(accumulator).unit_roundoff
    if bias is not None:
        first, second = (
            _after(Step("bias", row), *each, accumulator) for row, each in zip(bias, (first, second), strict=True)
        )
    (g, wide), (other, error) = _after(Step(gate), *first, accumulator), second
    with np.errstate(all="ignore"):
        values = g * other
        bound = np.abs(g) * error + np.abs(other) * wide + wide * error + 2.0 * u * np.abs(values)
        bound = bound + facts(accumulator).smallest_subnormal
    return values, np.where(np.isfinite(values) & ~np.isnan(bound), bound, u * np.abs(values))


def norm_and_bound(
    norm: str,
    product: np.ndarray,
    bound: np.ndarray,
    before: Sequence[Step],
    accumulator: str,
    eps: float,
    *,
    structured: bool = False,
) -> Bounded:
    """Return the norm of the rows of ``before`` of the product, with its bound, of the product with its own."""
    x = product
    for step in before:
        x, bound = _after(step, x, bound, accumulator)
    with np.errstate(all="ignore"):
        mean = x.mean(axis=-1, keepdims=True) if norm == "layernorm" else 0.0
        scale = np.sqrt(np.square(x - mean).mean(axis=-1, keepdims=True) + eps)
        values = (x - mean) / scale
        error = np.sqrt(np.square(bound).mean(axis=-1, keepdims=True))
        room = scale - error
        own = tolerance_rows.bound(norm, x, values, accumulator, structured=structured, value=eps)
        found = own + np.where(room > 0, (bound + error + np.abs(values) * error) / room, np.inf)
    return values, np.where(np.isfinite(values) & ~np.isnan(found), found, 0.0)


def _after(step: Step, values: np.ndarray, bound: np.ndarray, accumulator: str) -> Bounded:
    """Return values and bound after one step in the accumulator's type."""
    u = facts(accumulator).unit_roundoff
    with np.errstate(all="ignore"):
        after = step_function(step, accumulator)(values)
        found = step_bound(step, values, after, np.broadcast_to(bound, values.shape), u, accumulator)
    return after, np.where(np.isnan(found) | ~np.isfinite(values), u * np.abs(after), found)


def apply_prologue(values: np.ndarray, steps: Sequence[Step], dtype: str, accumulator: str) -> Bounded:
    """Return (f(values) rounded to ``dtype``, away), float64 arrays of the shape of ``values``."""
    u = facts(accumulator).unit_roundoff
    bound = np.zeros_like(values)
    with np.errstate(all="ignore"):
        for step in steps:
            after = step_function(step, dtype)(values)
            bound = step_bound(step, values, after, bound, u, dtype)
            values, bound = after, np.where(np.isfinite(after), bound, 0.0)
        found = round_to(dtype, values)
        away = np.maximum(*(np.abs(round_to(dtype, values + side * bound) - found) for side in (-1.0, 1.0)))
    return found, np.where(np.isfinite(found), np.where(np.isnan(away), np.inf, away), 0.0)


def spread(away: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the error that ``away`` (..., m, k) adds to the bound on a product with ``b`` (..., k, n)."""
    with np.errstate(all="ignore"):
        found = away @ np.abs(b)
    return np.where(np.isnan(found), np.inf, found)
