"""Error bound of a normalised row, against the norm of the float64 product.

y = (x - mean) / s, s = sqrt(var + eps), of an x with errors e: with E = sqrt(mean(e^2)) the mean is off by at most E,
and so is s, which is a norm of x - mean.  So y is off by at most ((e + E) + |y| E) / (s - E) plus the bound of
tolerance/rows.py for the norm of an exact x.  Without a mean (rmsnorm) the same bound holds a fortiori.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import Step, step_function

from . import rows as tolerance_rows
from .base import step_bound


def norm_and_bound(
    norm: str,
    product: np.ndarray,
    bound: np.ndarray,
    before: Sequence[Step],
    accumulator: str,
    eps: float,
    *,
    structured: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """(norm of the rows of ``before`` of the product, bound on a kernel's error) from (product, bound), float64."""
    u, x = facts(accumulator).unit_roundoff, product
    with np.errstate(all="ignore"):
        for step in before:
            after = step_function(step, accumulator)(x)
            bound = step_bound(step, x, after, np.broadcast_to(bound, x.shape), u, accumulator)
            x, bound = after, np.where(np.isnan(bound) | ~np.isfinite(x), u * np.abs(after), bound)
        mean = x.mean(axis=-1, keepdims=True) if norm == "layernorm" else 0.0
        scale = np.sqrt(np.square(x - mean).mean(axis=-1, keepdims=True) + eps)
        values = (x - mean) / scale
        error = np.sqrt(np.square(bound).mean(axis=-1, keepdims=True))
        room = scale - error
        own = tolerance_rows.bound(norm, x, values, accumulator, structured=structured, value=eps)
        found = own + np.where(room > 0, (bound + error + np.abs(values) * error) / room, np.inf)
    return values, np.where(np.isfinite(values) & ~np.isnan(found), found, 0.0)
