"""A result beside its reference: inside the bound of base.py or not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_kernels.operators.types.dtypes import decode, facts, parts, round_to


class Expected(NamedTuple):
    """Reference ``values`` (float64, complex128), the ``bound`` on |actual - values| (of complex values, part by part),
    and the output's dtype name.  ``lost``: where a value is NaN or infinite, either will do, as behind three-product
    or Winograd arithmetic, in which infinities of different sign meet earlier.
    """

    values: np.ndarray
    bound: np.ndarray
    dtype: str
    lost: bool = False


class Check(NamedTuple):
    """Verdict: ``ok``, the worst error in units of its bound (0 where all is exact), and a sentence."""

    ok: bool
    ratio: float
    message: str


def check(actual: np.ndarray, expected: Expected) -> Check:
    """Compare ``actual`` (stored as dtypes.encode does, or any real type) with ``expected``.

    NaN and infinities have to stand where the reference has them, an infinity with its sign; a finite
    reference may have become infinite where the bound reaches past the largest number of the type.  Values
    have to be equal where the bound is 0.  Complex numbers are compared part by part, the part being the last index
    of the sentence.  ValueError when the shapes differ.
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
        # Next to the overflow threshold both the largest number and infinity may be right.
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
