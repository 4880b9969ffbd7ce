"""Error bound of a product after a prologue, against the same in float64.

A kernel computes f(a) in the accumulator's type with an error of at most E, the accumulated error of the steps, and
rounds it to a's dtype.  So the multiplied number is between the rounded values of f - E and f + E, which for 16-bit
types are nearly always equal.  The reference multiplies the rounded f; ``away`` is the largest distance to it, and
errors of products of away with |b| may add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_kernels.operators.types.dtypes import facts, round_to
from gensor_kernels.operators.types.epilogue import Step, step_function

from .base import step_bound


def apply_prologue(
    values: np.ndarray, steps: Sequence[Step], dtype: str, accumulator: str
) -> tuple[np.ndarray, np.ndarray]:
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
