"""Error bound of a gated product, against f(g) u of the float64 products g and u.

With errors e and e' of g and u after their biases, f(g + e) (u + e') differs from f(g) u by at most
|f(g)| e' + |u| E + E e', where E is tolerance.step_bound of f: its Lipschitz constant times e, and its own roundings.
The product of both is rounded once more.  All arithmetic is in the accumulator's type, without rounding to the output's
type in between.
"""

from __future__ import annotations

import numpy as np

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import Step, step_function

from .base import step_bound

Bounded = tuple[np.ndarray, np.ndarray]


def gated_bound(
    gate: str, first: Bounded, second: Bounded, bias: np.ndarray | None, accumulator: str
) -> tuple[np.ndarray, np.ndarray]:
    """(f(g) u, bound on a kernel's error) from (g, bound) and (u, bound); ``bias`` is (2, n), ``gate`` names f."""
    u = facts(accumulator).unit_roundoff
    sides = []
    for half, (values, bound) in enumerate((first, second)):
        if bias is not None:
            values, bound = _step_and_bound(Step("bias", bias[half]), values, bound, u, accumulator)
        sides.append((values, bound))
    (g, wide), (other, error) = _step_and_bound(Step(gate), *sides[0], u, accumulator), sides[1]
    with np.errstate(all="ignore"):
        values = g * other
        bound = np.abs(g) * error + np.abs(other) * wide + wide * error + 2.0 * u * np.abs(values)
        bound = bound + facts(accumulator).smallest_subnormal
    return values, np.where(np.isfinite(values) & ~np.isnan(bound), bound, u * np.abs(values))


def _step_and_bound(step: Step, values: np.ndarray, bound: np.ndarray, u: float, accumulator: str) -> Bounded:
    with np.errstate(all="ignore"):
        after = step_function(step, accumulator)(values)
        found = step_bound(step, values, after, np.broadcast_to(bound, values.shape), u, accumulator)
    return after, np.where(np.isnan(found) | ~np.isfinite(values), u * np.abs(after), found)
