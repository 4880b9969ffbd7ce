"""Error bound of a user's kernel against his float64 reference, of which only the results are known.

A result that is made of K rounded numbers in any order without structure is off by at most 3 sqrt(K) u times their size
(base.py: seven standard deviations), and by some roundings more of functions and conversions.  Their size is not known
where they cancel: it is taken to be at least the root mean square of all results.  Integers are exact.
"""

from __future__ import annotations

import numpy as np

from gensor_kernels.operators.types.dtypes import facts

#: Roundings of functions, of products, and of the result's conversion, beyond those of the sum.
ROUNDINGS = 16.0


def own_bound(expected: np.ndarray, dtype: str, terms: int) -> np.ndarray:
    """Return the largest error of each result; `expected` is float64 or complex128, `terms` is K.

    Examples
    --------
    >>> float(own_bound(np.ones(4), "float32", 1)[0]) < 1.2e-6
    True
    """
    if np.dtype(dtype).kind not in "fc":
        return np.zeros(expected.shape)
    u = facts(dtype).unit_roundoff * (2.0 if dtype in ("float64", "complex128") else 1.0)  # the reference rounds, too
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    scale = np.sqrt(np.mean(finite * finite)) if finite.size else 0.0
    return (3.0 * np.sqrt(max(terms, 1)) + ROUNDINGS) * u * np.maximum(finite, scale)
