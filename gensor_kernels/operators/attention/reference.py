"""Attention in float64, and the error bound of a kernel's softmax-weighted average.

Let s_j be the scores of a row, M the largest, p_j = exp(s_j - M), L = sum p_j, w_j = p_j / L and c = sum w_j v_j.  A
kernel makes p_j in float32, rounds it to the type of V for the second product (unit roundoff r) and sums the float32
p_j for L.  Let u be 2^-24.

*Scores.*  An error d_j of s_j, from the sums of the first product and from added terms, changes c by
w_j d_j (v_j - c).  Scaling, subtracting M and the base-2 exponential (2 units in the last place) add u times
2 |s_j| + 2 |M| + 6; a common factor cancels between numerator and L.  The next errors are larger: the bound
takes sum w_j d_j |v_j - c|, for any signs.

*Soft cap.*  A kernel bends a score s to C tanh(s / C) = 2 C sigmoid(2 s / C) - C and leaves out the last term, which
cancels between numerator and L.  An error of s passes with the derivative, 1 - tanh(s / C)^2.  Let z be 2 s / C.  Its
factor in the exponent, -z log2(e), is rounded 3 times, its product with s once: a relative error of 4 u of z, of which
|z| sigmoid'(z) <= 0.224 leaves 0.9 u of sigmoid.  The base-2 exponential (2 units in the last place, 4 u of itself)
changes sigmoid by at most u, the sum 1 + exp(-z) rounds once (u), the reciprocal is correct to a unit in the last place
(2 u): 5 u at most, 10 C u of the score.  Numbers of up to 2 C stand for scores of up to C, and a mask is added to them:
the terms 2 |s_j| + 2 |M| above and a rounding of the sum grow by 6 C u at most.  16 C u covers all.

*Weights.*  Rounding p_j to 16 bits changes it by at most r p_j, 0.41 r p_j in standard deviation, and L is summed
before: c changes by sum (rounding_j) v_j / L.  For scores without order roundings are independent, and
3 r sqrt(sum (w_j v_j)^2) is seven standard deviations; r sum w_j |v_j| holds for any data and is taken where it is
less, as it is for a few keys.  Float16 weights below 2^-14 are rounded to multiples of 2^-24, which is at most 2^-25
|v_j| / L each: weights are relative to the largest score so far, and later ones only shrink them.  They add up to
2^-25 sum |v_j| / L, or 2^-25 * 3 sqrt(sum v_j^2) / L without order.  A kernel that stores no logarithm may take some
p_j, of numerator and L, from a polynomial whose error is at most r p_j / 32 (attention_powers.cuh): 3 r is seven
standard deviations as before.

*Sums.*  The second product is a sum of n terms w_j v_j as in tolerance/base.py, tensor cores included.  Between tiles
the partial sum is multiplied by exp(M_old - M_new), which is one more rounding per tile of 16 or more keys; it and its
counterpart for L are below the bound for n terms.  L has only positive terms: (3 sqrt(n) + 8) u |c|, or
(n + 16) u |c| for any data, covers its sum, the factors' exponentials and the division.

*Sinks.*  A sink S adds e = exp(S - M) to L, and is a key whose value is 0: an error of its exponent changes c by
e / L times it times |c|.  A kernel takes exp(S - T) and exp(M - T), where T is the larger one of S and M: differences,
products with log2(e) and M from the scaled scores are rounded, u times 4 |S| + 4 |M| + 16, and 8 C u with a soft cap.

*Logarithm.*  M + log L has the errors of scores and of the sink by their shares of L, the relative error of L, and that
of M, the logarithm (2 units in the last place) and their sum: u times 4 |M| + 4 |S| + 4 |log L| + 4, and 8 C u with a
soft cap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_kernels.operators.declaration.operator import Bounded
from gensor_kernels.operators.tolerance.base import Magnitude, accumulation_bound
from gensor_kernels.operators.types.dtypes import facts

from .forms import VERIFIED_SOFTCAP, Form

_U = facts("float32").unit_roundoff


class Scores(NamedTuple):
    """Scaled, masked scores (queries, keys) and a bound on the error of each."""

    values: np.ndarray
    error: np.ndarray


class Head(NamedTuple):
    """Operands of a head in float64: Q, K, V, the mask, and the sink, -inf for none."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None
    sink: float


def attention_and_bound(
    head: Head, form: Form, diagonals: tuple[int, int], dtype: str, structured: bool
) -> tuple[Bounded, Bounded]:
    """Return the softmax averages of a head, zeros for a query without keys, and the logarithms of their denominators,
    each with the bound on a kernel's error.

    ``dtype`` is the type of Q, K and V; ``diagonals`` are as in forms.py.
    """
    with np.errstate(all="ignore"):
        scores = _scores(head.q, head.k, dtype, structured)
        if form.capped:
            scores = _cap(scores, VERIFIED_SOFTCAP)
        scores = _mask(scores, form.mask, head.mask, diagonals)
        return _average(scores, head, dtype, structured, 8.0 * _U * VERIFIED_SOFTCAP * form.capped)


def _scores(q: np.ndarray, k: np.ndarray, dtype: str, structured: bool) -> Scores:
    """Return Q K^T / sqrt(head), with the error of a kernel's sums."""
    product, total, terms = q @ k.T, np.abs(q) @ np.abs(k).T, max(q.shape[1], 1)
    norm = np.clip(np.sqrt((q * q) @ (k * k).T), total / np.sqrt(terms), total)
    error = accumulation_bound(
        product, Magnitude(total, norm), q.shape[1], dtype=dtype, accumulator="float32", structured=structured
    )
    return Scores(product * terms**-0.5, error * terms**-0.5)


def _cap(scores: Scores, softcap: float) -> Scores:
    """Return scores after a soft cap, softcap tanh(s / softcap), with the errors of a kernel."""
    bent = np.tanh(scores.values / softcap)
    error = np.where(np.isfinite(scores.values), scores.error * (1.0 - bent * bent), 0.0)
    return Scores(softcap * bent, error + 16.0 * softcap * _U)


def _mask(scores: Scores, kind: str, mask: np.ndarray | None, diagonals: tuple[int, int]) -> Scores:
    """Return scores after mask, window and diagonal: minus infinity where a query does not see a key."""
    values, error = scores
    if kind == "added":
        assert mask is not None
        # Scaling and adding round once each.
        values, error = values + mask, error + 2.0 * _U * (np.abs(values) + np.abs(mask))
    elif kind == "bool":
        values = np.where(mask == 0, -np.inf, values)
    queries, keys = values.shape
    first, end = (np.arange(queries)[:, None] + each for each in diagonals)
    seen = (first <= np.arange(keys)) & (np.arange(keys) < end)
    return Scores(np.where(seen, values, -np.inf), error)


def _average(scores: Scores, head: Head, dtype: str, structured: bool, uncapped: float) -> tuple[Bounded, Bounded]:
    """Return the average of values weighted by the scores' softmax, and the logarithm of its denominator; ``uncapped``
    is the error of a soft cap's last term."""
    v, sink = head.v, head.sink
    top = scores.values.max(axis=1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0.0, top)
    raw, apart = np.exp(scores.values - top), np.exp(sink - top)
    total = raw.sum(axis=1, keepdims=True) + apart
    weights, share = (np.where(total == 0, 0.0, x / np.where(total == 0, 1.0, total)) for x in (raw, apart))
    result, keys = weights @ v, v.shape[0]
    known = abs(sink) if np.isfinite(sink) else 0.0
    of_sink = share * (_U * (4.0 * known + 4.0 * np.abs(top) + 16.0) + uncapped)

    magnitude, norm = weights @ np.abs(v), np.sqrt((weights * weights) @ (v * v))
    summing = accumulation_bound(
        result, Magnitude(magnitude, norm), keys, dtype=dtype, accumulator="float32", structured=structured
    )
    relative = ((keys + 16) if structured else (3.0 * np.sqrt(keys) + 8)) * _U
    errors = _score_errors(weights, top, scores)
    every = errors.sum(axis=1, keepdims=True) + of_sink
    # |v_j - c| <= |v_j| + |c|, which keeps this two products.
    bound = errors @ np.abs(v) + (every + relative) * np.abs(result) + summing
    bound += _weight_errors(Magnitude(magnitude, norm), total, v, dtype, structured)
    logarithm = np.log(total)
    ends = _U * (4.0 * np.abs(top) + 4.0 * known + 4.0 * np.abs(logarithm) + 4.0) + uncapped
    lse = (top + logarithm)[:, 0]
    return (
        (result, np.where(np.isfinite(result), bound, 0.0)),
        (lse, np.where(np.isfinite(lse), (every + relative + ends)[:, 0], 0.0)),
    )


def _score_errors(weights: np.ndarray, top: np.ndarray, scores: Scores) -> np.ndarray:
    """Return the errors of scores by their weights."""
    seen = weights > 0
    finite = np.where(seen, np.abs(scores.values), 0.0)
    return np.where(seen, weights * (scores.error + _U * (2.0 * finite + 2.0 * np.abs(top) + 6.0)), 0.0)


def _weight_errors(magnitude: Magnitude, total: np.ndarray, v: np.ndarray, dtype: str, structured: bool) -> np.ndarray:
    r, spacing = facts(dtype).unit_roundoff, facts(dtype).smallest_subnormal / 2.0
    rounding, column = r * magnitude.total, np.abs(v).sum(axis=0)
    if not structured:
        rounding = np.minimum(rounding, 3.0 * r * magnitude.norm)
        column = np.minimum(column, 3.0 * np.sqrt((v * v).sum(axis=0)))
    return rounding + spacing * column / np.maximum(total, 1.0)
