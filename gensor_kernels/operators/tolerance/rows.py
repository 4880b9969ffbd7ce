"""Error bound of a reduction or map of rows, against the float64 reference; base.py defines the terms.

A row of k elements is reduced in at most ``SERIAL`` serial steps of a thread, each of which adds a sum of pairs, and in
log2 of lanes, warps and parts: an element passes through at most L = min(k, SERIAL) + 64 roundings for any k (a
legality rule of the families).  With u the accumulator's unit roundoff, a = L u bounds the relative
growth for any data, and a = 3 sqrt(L) u for data without order (base.py: seven standard deviations).

* sum: a P, with P = sum |x| for any data and hypot(sum, sqrt(sum x^2)) otherwise; a mean divides it by k.
* cumsum, cumprod: those of the sum and the product of the elements up to each one, k their number.
* product: (a + k u) |p|, every factor rounding the product once, while no partial product leaves the normal range.
* l2_norm: sums of squares have terms of one sign, S; sqrt halves the relative error.
* variance: joining means loses a of each; the squares of their differences lose 2 a kappa more, kappa =
  sqrt(1 + mean^2 / var) being the condition of the variance (Chan, Golub and LeVeque, Algorithms for computing the
  sample variance, Am. Stat. 37, 1983, table 1 with pairwise summation), and (a max |x|)^2 where var itself vanishes.
* sums of exponentials: each exponent is off by u |x - max|, exp by 8 u; every new maximum rescales the sum so far.
  For data without order, a running maximum changes about ln k times; for any data up to L times.

Maximum, minimum and their positions are exact.
"""

from __future__ import annotations

import numpy as np

from gensor_kernels.operators.types.dtypes import facts

from .base import FUNCTION_ROUNDINGS

#: Steps of one thread that follow each other; kernels take no more (families/rows/family.py).
SERIAL = 1024
#: Joins within a step, between lanes, warps and parts.
JOINS = 64


class Growth:
    """``u`` of the accumulator, and ``a``: how far roundings add up over rows of k elements, relative to the sum."""

    def __init__(self, accumulator: str, k: int, structured: bool):
        kind = facts(accumulator)
        # The reference itself is computed in float64.
        self.u = kind.unit_roundoff * (2.0 if accumulator == "float64" else 1.0)
        length = min(k, SERIAL) + JOINS
        self.a = (length if structured else 3.0 * np.sqrt(length)) * self.u
        self.rescalings = length if structured else 16.0 + np.log(max(k, 1))
        self.tiny, self.largest = kind.smallest_subnormal, kind.maximum
        self.k, self.structured = k, structured

    def sum(self, x: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Error of the sum ``value`` of ``x`` (..., k)."""
        total = np.abs(x).sum(axis=-1)
        scale = total if self.structured else np.minimum(np.hypot(value, np.sqrt((x * x).sum(axis=-1))), total)
        return np.where(total < self.largest / 2, self.a * scale + self.k * self.tiny, np.inf)

    def squares(self, x: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Error of the sum of squares ``total``."""
        return np.where(total < self.largest / 2, (self.a + 2 * self.u) * total + self.k * self.tiny, np.inf)

    def mean(self, x: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Error of the mean ``value``, however it was found."""
        return self.sum(x, value * self.k) / max(self.k, 1) + 3.0 * self.u * np.abs(value)

    def product(self, x: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Error of the product ``value``; unbounded where a partial product may overflow or go under."""
        with np.errstate(all="ignore"):
            logs = np.log2(np.abs(x))
            low, high = np.minimum(logs, 0).sum(axis=-1), np.maximum(logs, 0).sum(axis=-1)
        limit = np.log2(self.largest) - 2
        factors = (self.k if self.structured else 3.0 * np.sqrt(self.k)) * self.u
        relative = (factors + self.a) * np.abs(value) + self.tiny
        return np.where((high < limit) & ((low > -limit) | (value == 0)), relative, np.inf)

    def variance(self, x: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Error of the mean square deviation ``value``."""
        most = np.abs(x).max(axis=-1, initial=0.0)
        kappa = np.sqrt(1.0 + np.square(x.mean(axis=-1)) / np.maximum(value, 1e-300))
        floor = np.square(self.a * most)
        return np.where(most < np.sqrt(self.largest) / 2, self.a * value * (1 + 2 * kappa) + floor, np.inf)

    def exponentials(self, x: np.ndarray, maximum: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Relative error of sum exp(x - max), ``total``."""
        away = np.abs(x - maximum[..., None])
        terms = np.exp(x - maximum[..., None])
        own = (terms * np.where(terms > 0, away, 0.0)).sum(axis=-1) / total
        return self.a + self.u * ((FUNCTION_ROUNDINGS + 1) * (1 + self.rescalings) + own * 2)


def _scan(operation: str, x: np.ndarray, values: np.ndarray, accumulator: str, structured: bool) -> np.ndarray:
    """Error of the running sum or product ``values``: that of `Growth` at every length from 1 to that of the row."""
    growth, counts = Growth(accumulator, 1, structured), np.arange(1, x.shape[-1] + 1)
    length = np.minimum(counts, SERIAL) + JOINS
    a = (length if structured else 3.0 * np.sqrt(length)) * growth.u
    if operation == "cumsum":
        total = np.cumsum(np.abs(x), axis=-1)
        scale = total if structured else np.minimum(np.hypot(values, np.sqrt(np.cumsum(x * x, axis=-1))), total)
        return np.where(total < growth.largest / 2, a * scale + counts * growth.tiny, np.inf)
    logs = np.log2(np.abs(x))
    low, high = np.cumsum(np.minimum(logs, 0), axis=-1), np.cumsum(np.maximum(logs, 0), axis=-1)
    limit, factors = np.log2(growth.largest) - 2, (counts if structured else 3.0 * np.sqrt(counts)) * growth.u
    relative = (factors + a) * np.abs(values) + growth.tiny
    return np.where((high < limit) & ((low > -limit) | (values == 0)), relative, np.inf)


def _exponential(growth: Growth, operation: str, x: np.ndarray, values: np.ndarray) -> np.ndarray:
    maximum = x.max(axis=-1)
    total = np.exp(x - maximum[..., None]).sum(axis=-1)
    relative, u = growth.exponentials(x, maximum, total), growth.u
    if operation == "logsumexp":
        return relative + u * (FUNCTION_ROUNDINGS * np.abs(np.log(total)) + np.abs(maximum) + 2 * np.abs(values))
    away, relative = np.abs(x - maximum[..., None]), relative[..., None]
    if operation == "softmax":
        return values * (relative + u * (FUNCTION_ROUNDINGS + 4 + 2 * away)) + growth.tiny
    logs = np.abs(np.log(total))[..., None]
    return relative + u * (FUNCTION_ROUNDINGS * logs + 2 * away + 2 * np.abs(values))


def _norm(growth: Growth, operation: str, x: np.ndarray, values: np.ndarray, eps: float) -> np.ndarray:
    mean = x.mean(axis=-1) if operation == "layernorm" else np.zeros(x.shape[:-1])
    centred = x - mean[..., None]
    square = np.square(centred).mean(axis=-1)
    if operation == "layernorm":
        shift, spread = growth.mean(x, mean), growth.variance(x, square)
    else:
        shift, spread = np.zeros_like(mean), growth.squares(x, square * growth.k) / max(growth.k, 1)
    scale = 1.0 / np.sqrt(square + eps)
    relative = np.minimum(spread / (2.0 * (square + eps)), np.inf) + 6.0 * growth.u
    return scale[..., None] * (shift[..., None] + growth.u * np.abs(centred)) + np.abs(values) * relative[..., None]


def bound(
    operation: str, x: np.ndarray, values: np.ndarray, accumulator: str, *, structured: bool = False, value: float = 0.0
) -> np.ndarray:
    """Return the bound on the error of ``values``, the float64 reference of ``operation`` on rows ``x`` (..., k).

    ``values`` has x's shape for a map, else x's without the last axis; ``value`` is a norm's eps or a variance's ddof.
    0 where results are exact or not finite.
    """
    if operation in ("copy", "max", "min", "argmax", "argmin") or facts(accumulator).is_integer or x.shape[-1] == 0:
        return np.zeros_like(values)
    growth = Growth(accumulator, x.shape[-1], structured)
    with np.errstate(all="ignore"):
        if operation in ("cumsum", "cumprod"):
            found = _scan(operation, x, values, accumulator, structured)
        elif operation in ("sum", "mean"):
            found = growth.sum(x, values) if operation == "sum" else growth.mean(x, values)
        elif operation == "prod":
            found = growth.product(x, values)
        elif operation == "l2_norm":
            # sqrt(s + e) - sqrt(s) <= min(e / sqrt(s), sqrt(e))
            error = growth.squares(x, values * values)
            found = np.minimum(error / np.maximum(values, 1e-300), np.sqrt(error)) + 2.0 * growth.u * values
        elif operation == "var":
            mean_square = values * (growth.k - value) / growth.k
            found = growth.variance(x, mean_square) * growth.k / (growth.k - value) + 4.0 * growth.u * np.abs(values)
        elif operation in ("layernorm", "rmsnorm"):
            found = _norm(growth, operation, x, values, value)
        else:
            found = _exponential(growth, operation, x, values)
        return np.where(np.isfinite(values) & ~np.isnan(found), found, 0.0)
