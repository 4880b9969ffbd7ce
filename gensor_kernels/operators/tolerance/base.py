"""Tolerances: the error bound of a correct result, against the float64 reference.

Let ``u`` be the accumulator's unit roundoff and let a sum have ``k`` terms t_i, S = sum |t_i|, Q = sqrt(sum
t_i^2) and exact value c.  Two bounds on the accumulator's error are given.

*Any data* (``structured=True``): every partial sum is at most S, every term passes through at most k + 16
roundings in any order, splits included (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 4.2), so the error is at most (k + 16) u S.

*Data without order* (the default; random operands, as in verification): for terms in random
order a partial sum is about c i/k plus a random part of variance at most Q^2, so it scales with
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

*Hopper's products of 8-bit floats* ("float22") are summed 32 at a time: these and the sum so far are aligned to the
largest of them, cut to 13 bits after its leading bit, added exactly, and cut again, to 14 bits (DeepSeek-AI,
DeepSeek-V3 technical report, 2024, section 3.3.2; PyTorch's "float22": 8 bits of exponent, 13 of fraction).  Kernels
add such a sum to a float32 one after FLOAT22_TERMS = 128 terms, four such blocks.  With v = 2^-13, a block loses at
most 34 v of its largest magnitude: at most 136 v S in all, whatever the data.  Without order, a cut of random sign
loses v/sqrt(3) of the block's largest magnitude (root mean square), whose squares add up to at most 2.5 Q^2; powers of
two instead of magnitudes, and products with fewer than 13 bits, leave 0.8 v Q of the resulting 5 v Q (measured on a
model; tests/operators/test_tolerance.py), and 6 v Q is seven standard deviations of a normal error.  The tail is
longer, because few blocks reach the largest powers of two: the largest error of a million products of 128, 256 and
512 terms is 7.2, 8.6 and 6.9 v Q on the model, of four million of 512 terms 8.6 v Q on an H100.  With m sums of 128
terms, 12 v Q / sqrt(m) is added for it: 12 v Q for one sum alone.  Cuts of one sign lose v/2 on
average: 17 v times the partial sums at 0, 32, 64 and 96 of 128 terms and the block's own, at most 25.5 v |c|, measured
5.4 v |c|; 16 v |c| covers both.  Ada's sums (sm_89) have as few bits (Zhang, Huang, Zhang, Wei, Zhu and Chen,
SageAttention2, arXiv:2411.10958, 2024); sm_120's have 25 (MMA-Sim, below), for which the bound holds as well.

*Products of block-scaled operands* (products/quantised.py) are cut as above where they are widened.  Tensor cores of
sm_120 multiply them with their scales (Xie, Wang, Yang and Yang, MMA-Sim, arXiv:2511.10909, 2025, bit by bit): the sum
so far and 32 products of 8-bit floats are cut below 25 bits after the largest exponent, or the sum and four exact sums
of 16 products of e2m1 below 35 bits after that of the scales, and the new sum to 24 bits.  A block of 32 loses at most
33 u/2 of its largest magnitude and 2u: 0.58 u per term, on average 0.29 u, within the bounds of blocks of four.  Scales
must be no larger than the numbers of their blocks need, as ``quantize`` makes them.

*Products of bfloat16 parts* of float32 operands ("ieee", mma_floats.cuh) leave out u of a term at
most, 0.06 u typically.  A tensor core cuts the sums of 16 terms, from zero: with blocks of 4 and no extra bit at most
22 u of their magnitudes.  Accumulators are rounded to nearest once in 16 terms: (k/16 + 25) u S in all, which is within
(k + 16) u S from k = 10 on, and the probabilistic bound has sqrt(k)/4 roundings instead of sqrt(k).  Nothing is added
for them.

*TF32 products* of float32 operands: rounding both operands to 11 bits changes a term by 0.57 * 2^-11 of itself
(standard deviation), at most 2 * 2^-11; 4 * 2^-11 Q is seven standard deviations of the sum.

*Complex products.*  Formed of four real products ("ieee"), each part of a sum of k complex terms is a real sum of
2 k terms, a.re b.re and -a.im b.im, or a.re b.im and a.im b.re: the bounds above hold for each part with its own
terms.  Formed of three ("3m", Gauss), there are the real sums R of a.re b.re, I of a.im b.im and T of (a.re + a.im)
(b.re + b.im), and the parts are R - I and T - R - I: an error of either part is measured by the size of all three
sums, so it is small relative to |a| |b| and not to a small part (Higham, Stability of a method for multiplying complex
matrices with three real matrix multiplications, SIAM J. Matrix Anal. Appl. 13, 1992).  The parts' bounds are the sums
of those of R and I, and of R, I and T, each with two more roundings.  Rounding both factors of T's terms changes one
by 0.58 u of itself (standard deviation), at most 2.01 u; 4.1 u Q is seven standard deviations of the sum.  A bound of
a part is the same part of a complex number here.

An epilogue multiplies the error by its Lipschitz constants and adds its own roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels.operators.types.dtypes import TF32, decode, facts, join_parts, parts, round_to
from gensor_kernels.operators.types.epilogue import OPERATIONS, Step, step_function, wide

#: Terms of a "float22" sum, and of one block in it.
FLOAT22_TERMS, FLOAT22_BLOCK = 128, 32
#: Roundings of a device function (erf, tanh, exp, division), in units of u.
FUNCTION_ROUNDINGS = 8.0


class Expected(NamedTuple):
    """Reference values with their error bound."""

    #: float64 or complex128
    values: np.ndarray
    #: bound on |actual - values|; for complex values, part by part
    bound: np.ndarray
    #: the output's type
    dtype: str
    #: whether NaN and infinities may stand for each other, as after three-product arithmetic, in which infinities of
    #: different sign meet earlier
    lost: bool = False


class Check(NamedTuple):
    """Verdict: ``ok``, the worst error in units of its bound (0 where all is exact), and a sentence."""

    ok: bool
    ratio: float
    message: str


class Magnitude(NamedTuple):
    """Scale of the terms of each output: ``total`` = sum |t_i| and ``norm`` = sqrt(sum t_i^2), float64."""

    total: np.ndarray
    norm: np.ndarray


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
    """Return the bound on the error of a sum of ``terms`` products of ``dtype`` operands, element by element.

    ``product`` is the float64 reference and ``magnitude`` its scale.  ``structured`` selects the bound that holds for
    any data.  Zero for integers; infinite where the accumulator may overflow on the way.
    """
    if facts(accumulator).is_integer:
        return np.zeros_like(product)
    if accumulator == "float22":
        return _float22_bound(product, magnitude, terms, structured)
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


def _float22_bound(product: np.ndarray, magnitude: Magnitude, terms: int, structured: bool) -> np.ndarray:
    """accumulation_bound of 8-bit floats in "float22" sums, which are added in float32."""
    cut, (total, norm) = 2.0 * facts("float22").unit_roundoff, magnitude
    sums = -(-terms // FLOAT22_TERMS)
    rest = accumulation_bound(product, magnitude, sums, dtype="float32", accumulator="float32", structured=structured)
    with np.errstate(all="ignore"):
        blocks = FLOAT22_TERMS // FLOAT22_BLOCK
        tail = 12.0 / np.sqrt(max(sums, 1))
        own = blocks * (FLOAT22_BLOCK + 2) * total if structured else (6.0 + tail) * norm + 16.0 * np.abs(product)
        return np.where(np.isfinite(product), rest + cut * own, 0.0)


def complex_bound(
    a: np.ndarray,
    b: np.ndarray,
    magnitude: Callable[[np.ndarray, np.ndarray], Magnitude],
    accumulator: str,
    math: str,
    structured: bool,
) -> np.ndarray:
    """Return the bound on the error of the product of complex128 matrices, part by part as a complex array.

    ``magnitude`` gives the scale of a product of real matrices.
    """
    part = facts(accumulator).part
    ar, ai, br, bi = a.real, a.imag, b.real, b.imag

    def real(x: np.ndarray, y: np.ndarray, more: int = 0) -> np.ndarray:
        with np.errstate(all="ignore"):
            product = x @ y
        terms = x.shape[-1] + more
        return accumulation_bound(product, magnitude(x, y), terms, dtype=part, accumulator=part, structured=structured)

    if math != "3m":
        left = np.concatenate([ar, ai], axis=-1)
        first = real(np.concatenate([ar, -ai], axis=-1), np.concatenate([br, bi], axis=-2))
        return join_parts(np.stack([first, real(left, np.concatenate([bi, br], axis=-2))], axis=-1))
    with np.errstate(all="ignore"):
        x, y = ar + ai, br + bi
        total, norm = magnitude(x, y)
        factors = facts(part).unit_roundoff * (2.01 * total if structured else 4.1 * norm)
        two = real(ar, br, 2) + real(ai, bi, 2)
        # No bound where a sum of two parts, or R, I or T, leaves the range.
        most = facts(part).maximum
        lost = (np.abs(x) > most).any(axis=-1)[..., :, None] | (np.abs(y) > most).any(axis=-2)[..., None, :]
        lost = lost | ~np.isfinite(ar @ br) | ~np.isfinite(ai @ bi) | ~np.isfinite(x @ y)
        pair = np.stack([two, two + real(x, y, 2) + factors], axis=-1)
    return join_parts(np.where(lost[..., None], np.inf, pair))


def step_bound(
    step: Step, before: np.ndarray, after: np.ndarray, bound: np.ndarray, u: float, output: str
) -> np.ndarray:
    """Return the bound on the error after one epilogue step that takes ``before`` to ``after`` in arithmetic of
    roundoff ``u``.

    For complex outputs, arrays hold the two parts along their last axis.
    """
    operand, scalar = 0.0 if step.operand is None else np.abs(wide(step.operand)), np.abs(step.scalar)
    if facts(output).is_complex:
        if step.name in ("scale", "mul"):
            return _complex_factor_bound(step, before, bound, u)
        x = np.zeros(()) if step.operand is None else np.asarray(step.operand)
        operand, scalar = np.abs(parts(x.astype(np.complex128))), np.abs(parts(np.asarray(step.scalar, np.complex128)))
        if step.name == "mask":
            return np.where(x[..., None] == 0, u * scalar, bound)
    with np.errstate(all="ignore"):
        if step.name in ("scale", "mul"):
            factor = scalar if step.name == "scale" else operand
            return bound * factor + 2.0 * u * np.abs(after)
        if step.name in ("bias", "add"):
            return bound + u * (np.abs(after) + operand)
        if step.name in ("relu", "relu6"):
            return bound
        if step.name == "mask":
            return np.where(np.asarray(step.operand) == 0, u * scalar, bound)
        if step.name == "cast":
            # Reference and device may round to neighbours: half a spacing each.
            kind = facts(output)  # of a complex type, of its parts
            return bound + 2.0 * kind.unit_roundoff * (np.abs(after) + bound) + kind.smallest_subnormal
        # Activations: 1 + erf and the like cancel where the function vanishes, at |v| of a few units.
        own = FUNCTION_ROUNDINGS * u * (np.abs(after) + np.minimum(np.abs(before), 8.0))
        return bound * OPERATIONS[step.name].lipschitz + own


def _complex_factor_bound(step: Step, before: np.ndarray, bound: np.ndarray, u: float) -> np.ndarray:
    """step_bound of a complex factor, which may have been rounded itself: four products, two sums."""
    factor = step.scalar if step.name == "scale" else step.operand
    x = np.abs(parts(np.asarray(factor, dtype=np.complex128)))
    with np.errstate(all="ignore"):
        error = bound + 3.0 * u * np.abs(before)
        straight, crossed = error * x, error * x[..., ::-1]
        return np.stack([straight.sum(axis=-1), crossed.sum(axis=-1)], axis=-1)


def expect(
    product: np.ndarray,
    bound: np.ndarray,
    steps: Sequence[Step] = (),
    *,
    accumulator: str,
    output: str,
    integer_steps: int = 0,
    math: str = "ieee",
) -> Expected:
    """Return the result a kernel should store: ``product`` (error at most ``bound``) after an epilogue.

    Epilogues compute in float32 (float64 for an accumulator of float64 or complex128); the first ``integer_steps``
    steps after an int32 accumulator are exact.  The bound includes the rounding to ``output``; integer results of
    exact steps have a bound of 0.
    """
    u = facts("float64" if accumulator in ("float64", "complex128") else "float32").unit_roundoff
    exact, kind = facts(accumulator).is_integer, facts(output)
    spread = parts if kind.is_complex else wide
    values = wide(product)
    bound = spread(np.broadcast_to(bound, values.shape))
    with np.errstate(all="ignore"):
        for index, step in enumerate(steps):
            if exact and index >= integer_steps:
                exact, bound = False, bound + u * np.abs(values)
            after = step_function(step, output)(values)
            before, behind = spread(values), spread(after)
            bound = bound if exact else step_bound(step, before, behind, bound, u, output)
            # Behind an infinity or NaN only the position counts.
            bound = np.where(np.isnan(bound) | ~np.isfinite(before), u * np.abs(behind), bound)
            values = round_to("int32", after) if exact else after
        if kind.is_integer:
            values = round_to(output, values)
            # Dropping the fraction of nearly equal values differs by 1 where there is an integer between them.
            bound = np.zeros_like(values) if exact else np.where(bound > 0, bound + 1.0, 0.0)
        else:
            own = u * np.abs(values) if exact else 0.0
            bound = bound + own + kind.unit_roundoff * (np.abs(spread(values)) + bound) + kind.smallest_subnormal
    return Expected(values, join_parts(bound) if kind.is_complex else bound, output, math == "3m")


def check(actual: np.ndarray, expected: Expected) -> Check:
    """Compare a kernel's result, stored as ``dtypes.encode`` stores it or of any real type, with its reference.

    NaN and infinities have to stand where the reference has them, an infinity with its sign; a finite reference may
    have become infinite where the bound exceeds the largest number of the type.  Values have to be equal where the
    bound is 0.  Complex numbers are compared part by part, with the part as the last index of the message.
    ValueError if the shapes differ.
    """
    values, bound, name, lost = expected
    got = decode(name, actual)
    if got.shape != values.shape:
        raise ValueError(f"the result has shape {got.shape}, the reference {values.shape}")
    if got.size == 0:
        return Check(True, 0.0, "empty")
    if facts(name).is_complex:
        got, values, bound, name = parts(got), parts(values), parts(bound), facts(name).part
    with np.errstate(all="ignore"):
        error = np.abs(got - values)
        ratio = np.where(error == 0, 0.0, error / bound)
        # Next to the overflow threshold both the largest number and infinity may be correct.
        reached = (got >= round_to(name, values - bound)) & (got <= round_to(name, values + bound))
        ratio = np.where(np.isinf(got), np.where(reached, 0.0, np.inf), ratio)
        ratio = np.where(np.isinf(bound), 0.0, ratio)
        same = (got == values) | (np.isnan(got) & np.isnan(values)) | (lost & ~np.isfinite(got))
        ratio = np.where(np.isfinite(values), ratio, np.where(same, 0.0, np.inf))
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    where = ", ".join(str(int(index)) for index in worst)
    text = f"at [{where}]: {got[worst]:.9g}, reference {values[worst]:.9g}, error / bound {ratio[worst]:.3g}"
    wrong = int(np.count_nonzero(ratio > 1.0))
    return Check(wrong == 0, float(ratio[worst]), f"{wrong} of {got.size} outside the bound; worst {text}")
