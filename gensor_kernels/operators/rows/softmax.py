"""softmax and log_softmax along one axis.

Semantics are those of torch.nn.functional (and SciPy where the two agree): a row that holds NaN or +inf, or nothing but
-inf, gives NaN; -inf among finite numbers gives 0 (log_softmax: -inf).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.operators.declaration.operator import Declare

from .rows import Reference, RowOperator

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression, Value


#: Axes of x and C; kernels need n only where k is not the innermost axis in memory.
SIZES = ("batch", "m", "n", "k")
SMALLEST = tuple((size, 1) for size in SIZES)


def row_map(name: str, declare: Declare, row: Reference, value: float = 0.0) -> RowOperator:
    """Return the operator of a map over k; ``value`` is its scalar argument."""
    return RowOperator(name, declare, (), SMALLEST, name, row, True, value)


def declare_map(combiner: str, function: Callable[[Value], Value]) -> Expression:
    """Declare a map over k: ``function(x)`` of each element and the row's results."""
    from gensor_kernels.operators.expression.combiners import COMBINERS
    from gensor_kernels.operators.expression.expression import Expression, axes, tensor

    every = axes("batch m n k")
    x = tensor("a", *every)[every]
    return Expression("c", every, x, COMBINERS[combiner], over=every[-1:], map=function(x))


def _softmax_of(x: Value) -> Value:
    from gensor_kernels.operators.expression.expression import exp, result

    return exp(x - result("max")) / result("sumexp")


def _log_softmax_of(x: Value) -> Value:
    from gensor_kernels.operators.expression.expression import log, result

    return x - result("max") - log(result("sumexp"))


def _softmax(x: np.ndarray, value: float) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _log_softmax(x: np.ndarray, value: float) -> np.ndarray:
    centred = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(centred - np.log(np.exp(centred).sum(axis=-1, keepdims=True)))


OPERATORS: dict[str, RowOperator] = {
    "softmax": row_map("softmax", partial(declare_map, "logsumexp", _softmax_of), _softmax),
    "log_softmax": row_map("log_softmax", partial(declare_map, "logsumexp", _log_softmax_of), _log_softmax),
}
