"""layernorm and rmsnorm along the last axes; weight and bias are the epilogue's `mul` and `bias`.

layernorm is (x - mean) / sqrt(var + eps) with the variance over the count, rmsnorm x / sqrt(mean(x^2) + eps).  eps is a
run-time argument (RowsTail.value) and part of no Workload: one record serves every eps.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .rows import RowOperator
from .softmax import declare_map, row_map

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression, Value


#: The eps of verification, large enough that a kernel without it is found wrong in every dtype.
VERIFIED_EPS = 0.125


def _layernorm_of(ex: ModuleType, x: Value) -> Value:
    normalised: Value = (x - ex.result("mean")) * ex.rsqrt(ex.result() + VERIFIED_EPS)
    return normalised


def _rmsnorm() -> tuple[Expression, Expression]:
    """Return the mean square of each row, then the map."""
    from gensor_kernels.operators.expression.expression import WELFORD, Expression, axes, result, rsqrt, tensor

    every = batch, m, n, _ = axes("batch m n k")
    x = tensor("a", *every)
    square = Expression("square", (batch, m, n), x[every] * x[every], WELFORD, map=result("mean"))
    return square, Expression("c", every, x[every] * rsqrt(square[batch, m, n] + VERIFIED_EPS))


def _layernorm_row(x: np.ndarray, eps: float) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + eps))


def _rmsnorm_row(x: np.ndarray, eps: float) -> np.ndarray:
    return np.asarray(x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + eps))


OPERATORS: dict[str, RowOperator] = {
    "layernorm": row_map("layernorm", partial(declare_map, "welford", _layernorm_of), _layernorm_row, VERIFIED_EPS),
    "rmsnorm": row_map("rmsnorm", _rmsnorm, _rmsnorm_row, VERIFIED_EPS),
}
