"""softmax and log_softmax along one axis.

Semantics are those of torch.nn.functional (and SciPy where the two agree): a row that holds NaN or +inf, or nothing but
-inf, gives NaN; -inf among finite numbers gives 0 (log_softmax: -inf).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
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


def declare_map(combiner: str, function: Callable[[ModuleType, Value], Value]) -> Expression:
    """Declare a map over k: ``function(ex, x)`` of each element and the row's results, of expression.py as ``ex``."""
    from gensor_kernels.operators.expression import expression as ex
    from gensor_kernels.operators.expression.combiners import COMBINERS

    every = ex.axes("batch m n k")
    x = ex.tensor("a", *every)[every]
    return ex.Expression("c", every, x, COMBINERS[combiner], over=every[-1:], map=function(ex, x))


def _softmax(x: np.ndarray, value: float) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _log_softmax(x: np.ndarray, value: float) -> np.ndarray:
    centred = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(centred - np.log(np.exp(centred).sum(axis=-1, keepdims=True)))


OPERATORS: dict[str, RowOperator] = {
    "softmax": row_map(
        "softmax",
        partial(declare_map, "logsumexp", lambda ex, x: ex.exp(x - ex.result("max")) / ex.result("sumexp")),
        _softmax,
    ),
    "log_softmax": row_map(
        "log_softmax",
        partial(declare_map, "logsumexp", lambda ex, x: x - ex.result("max") - ex.log(ex.result("sumexp"))),
        _log_softmax,
    ),
}
