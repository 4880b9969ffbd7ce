"""How far a right result may lie from the float64 reference: the one place that says so.

Let ``u`` be the accumulator's unit roundoff and let a sum have ``k`` terms t_i, S = sum |t_i|, Q = sqrt(sum
t_i^2) and exact value c.  Two bounds on the accumulator's error are given.

*Any data* (``structured=True``): every partial sum is at most S, every term passes through at most k + 16
roundings whatever the order, splits included (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 4.2), so the error is at most (k + 16) u S.

*Data without order* (the default; random operands, as in verification): for terms that could as well come in
any other order a partial sum is about c i/k plus a random part of variance at most Q^2, so it scales with
P = sqrt(c^2 + Q^2), and independent roundings of standard deviation 0.41 u |partial sum| add up to at most
0.41 sqrt(k) u P (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci.
Comput. 41, 2019).  3 sqrt(k) u P is seven standard deviations, so no right kernel is flagged, yet it does not
grow with k as the first bound does, which at k = 4096 would let an fp16 accumulator through.

*Tensor cores* truncate: the products of a block of 4 (V100, T4; TF32 on A100), 8 (A100) or 16 (H100) terms and
the accumulator are aligned to the largest exponent and cut after 24 or a few more bits (Fasi, Higham, Mikaitis
and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7:e330, 2021).  Truncation is biased,
so errors add up linearly: a block loses at most 2u per term and once more 2u, on average 0.72 u of the partial
sum each; with blocks of 4 and no extra bit that is at most 0.45 k u |c| for terms of one sign, and a standard
deviation of 0.1 k u Q for terms of random sign.  0.75 k u P covers both.

*TF32 products* of float32 operands: rounding both operands to 11 bits changes a term by 0.57 * 2^-11 of itself
(standard deviation), at most 2 * 2^-11; 4 * 2^-11 Q is seven standard deviations of the sum.

An epilogue multiplies the error by its Lipschitz constants and adds its own roundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .dtypes import TF32, decode, facts, round_to
from .epilogue import OPERATIONS, Step, step_function

#: Roundings of a device function (erf, tanh, exp, division), in units of u.
FUNCTION_ROUNDINGS = 8.0


class Magnitude(NamedTuple):
    """Scale of the terms of each output: ``total`` = sum |t_i| and ``norm`` = sqrt(sum t_i^2), float64."""

    total: np.ndarray
    norm: np.ndarray


class Expected(NamedTuple):
    """Reference ``values`` (float64), the ``bound`` on |actual - values|, and the output's dtype name."""

    values: np.ndarray
    bound: np.ndarray
    dtype: str


class Check(NamedTuple):
    """Verdict: ``ok``, the worst error in units of its bound (0 where all is exact), and a sentence."""

    ok: bool
    ratio: float
    message: str


def accumulation_bound(
    product: np.ndarray,
    magnitude: Magnitude,
    terms: int,
    *,
    dtype: str,
    accumulator: str,
    math: str = "ieee",
    structured: bool = False,
) -> np.ndarray:
    """Bound on the error of a sum of ``terms`` products of ``dtype`` operands, element by element.

    ``product`` is the float64 reference and ``magnitude`` its scale.  ``structured`` asks for the bound that
    holds for any data.  Zero for integers; infinite where the accumulator may overflow on the way.
    """
    if facts(accumulator).is_integer:
        return np.zeros_like(product)
    u = facts(accumulator).unit_roundoff
    truncates = dtype in ("float16", "bfloat16") or math == "tf32"
    total, norm = magnitude
    with np.errstate(all="ignore"):
        spread = np.hypot(product, norm)
        if structured:
            bound = (terms + 16) * (2.5 if truncates else 1.0) * u * total
        else:
            bound = (3.0 * np.sqrt(terms) + (0.75 * terms if truncates else 0.0)) * u * spread
        if math == "tf32":
            bound = bound + TF32.unit_roundoff * (2.01 * total if structured else 4.0 * norm)
        if accumulator == "float64":
            bound = 2.0 * bound  # the reference is summed in float64 too
        bound = bound + terms * facts(accumulator).smallest_subnormal
        bound = np.where(total < facts(accumulator).maximum / 2, bound, np.inf)
    return np.where(np.isfinite(product), bound, 0.0)


def step_bound(
    step: Step, before: np.ndarray, after: np.ndarray, bound: np.ndarray, u: float, output: str
) -> np.ndarray:
    """Bound on the error behind one epilogue step that takes ``before`` to ``after`` in arithmetic of ``u``."""
    operand = 0.0 if step.operand is None else np.abs(np.asarray(step.operand, dtype=np.float64))
    with np.errstate(all="ignore"):
        if step.name in ("scale", "mul"):
            factor = np.abs(step.scalar) if step.name == "scale" else operand
            return bound * factor + 2.0 * u * np.abs(after)
        if step.name in ("bias", "add"):
            return bound + u * (np.abs(after) + operand)
        if step.name in ("relu", "relu6"):
            return bound
        if step.name == "mask":
            return np.where(np.asarray(step.operand) == 0, u * abs(step.scalar), bound)
        if step.name == "cast":
            # Reference and device may round to neighbours: half a spacing each.
            kind = facts(output)
            return bound + 2.0 * kind.unit_roundoff * (np.abs(after) + bound) + kind.smallest_subnormal
        # Activations: 1 + erf and the like cancel where the function vanishes, at |v| of a few units.
        own = FUNCTION_ROUNDINGS * u * (np.abs(after) + np.minimum(np.abs(before), 8.0))
        return bound * OPERATIONS[step.name].lipschitz + own


def expect(
    product: np.ndarray,
    bound: np.ndarray,
    steps: Sequence[Step] = (),
    *,
    accumulator: str,
    output: str,
    integer_steps: int = 0,
) -> Expected:
    """What a kernel should store: ``product`` (float64, error at most ``bound``) behind an epilogue.

    Epilogues compute in float32 (float64 for a float64 accumulator); the first ``integer_steps`` steps behind
    an int32 accumulator are exact.  The bound includes the rounding to ``output``; integer results of exact
    steps have a bound of 0.
    """
    u = facts("float64" if accumulator == "float64" else "float32").unit_roundoff
    exact = facts(accumulator).is_integer
    values = np.asarray(product, dtype=np.float64)
    bound = np.broadcast_to(bound, values.shape)
    with np.errstate(all="ignore"):
        for index, step in enumerate(steps):
            if exact and index >= integer_steps:
                exact, bound = False, bound + u * np.abs(values)
            after = step_function(step, output)(values)
            bound = bound if exact else step_bound(step, values, after, bound, u, output)
            # Past an infinity or NaN there is nothing to be near to: the position decides.
            bound = np.where(np.isnan(bound) | ~np.isfinite(values), u * np.abs(after), bound)
            values = round_to("int32", after) if exact else after
        kind = facts(output)
        if kind.is_integer:
            values = round_to(output, values)
            # Dropping the fraction of nearly equal values differs by 1 where an integer lies between them.
            bound = np.zeros_like(values) if exact else np.where(bound > 0, bound + 1.0, 0.0)
        else:
            own = u * np.abs(values) if exact else 0.0
            bound = bound + own + kind.unit_roundoff * (np.abs(values) + bound) + kind.smallest_subnormal
    return Expected(values, bound, output)


def check(actual: np.ndarray, expected: Expected) -> Check:
    """Compare ``actual`` (stored as dtypes.encode does, or any real type) with ``expected``.

    NaN and infinities have to stand where the reference has them, an infinity with its sign; a finite
    reference may have become infinite where the bound reaches past the largest number of the type.  Values
    have to be equal where the bound is 0.  ValueError when the shapes differ.
    """
    values, bound, name = expected
    got = decode(name, actual)
    if got.shape != values.shape:
        raise ValueError(f"the result has shape {got.shape}, the reference {values.shape}")
    if got.size == 0:
        return Check(True, 0.0, "empty")
    with np.errstate(all="ignore"):
        error = np.abs(got - values)
        ratio = np.where(error == 0, 0.0, error / bound)
        # Next to the overflow threshold both the largest number and infinity may be right.
        reached = (got >= round_to(name, values - bound)) & (got <= round_to(name, values + bound))
        ratio = np.where(np.isinf(got), np.where(reached, 0.0, np.inf), ratio)
        ratio = np.where(np.isinf(bound), 0.0, ratio)
        same = (got == values) | (np.isnan(got) & np.isnan(values))
        ratio = np.where(np.isfinite(values), ratio, np.where(same, 0.0, np.inf))
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    where = ", ".join(str(int(index)) for index in worst)
    text = f"at [{where}]: {got[worst]:.9g}, reference {values[worst]:.9g}, error / bound {ratio[worst]:.3g}"
    wrong = int(np.count_nonzero(ratio > 1.0))
    return Check(wrong == 0, float(ratio[worst]), f"{wrong} of {got.size} outside the bound; worst {text}")
