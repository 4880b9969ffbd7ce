"""How far a product may lie from that of the float64 prologue in front of it.

A kernel computes f(a) in the accumulator's type with an error of at most E, the sum of what the steps add and of what
they make of each other's, and rounds it to a's dtype.  So it multiplies one of the numbers between those that f - E and
f + E are rounded to, which for 16-bit types is nearly always one and the same.  The reference multiplies f rounded;
``away`` is how far the others lie from that, and errors of products of away with |b| may add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.operators.declaration.prologue import sides
from gensor_kernels.operators.types.dtypes import facts, round_to
from gensor_kernels.operators.types.epilogue import Step, step_function

from .base import step_bound

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


def prepared(workload: Workload, values: np.ndarray, steps: Sequence[Step]) -> tuple[np.ndarray, np.ndarray]:
    """(f(values) rounded to the first operand's dtype, away), float64 arrays of its shape."""
    first, u = workload.dtype[sides(workload)[0]], facts(workload.accumulator).unit_roundoff
    bound = np.zeros_like(values)
    with np.errstate(all="ignore"):
        for step in steps:
            after = step_function(step, first)(values)
            bound = step_bound(step, values, after, bound, u, first)
            values, bound = after, np.where(np.isfinite(after), bound, 0.0)
        found = round_to(first, values)
        away = np.maximum(*(np.abs(round_to(first, values + side * bound) - found) for side in (-1.0, 1.0)))
    return found, np.where(np.isfinite(found), np.where(np.isnan(away), np.inf, away), 0.0)


def spread(away: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What ``away`` (..., m, k) adds to the bound on a product with ``b`` (..., k, n)."""
    with np.errstate(all="ignore"):
        found = away @ np.abs(b)
    return np.where(np.isnan(found), np.inf, found)
