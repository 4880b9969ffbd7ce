"""softmax and log_softmax along one axis.

Semantics are those of torch.nn.functional (and SciPy where the two agree): a row that holds NaN or +inf, or nothing but
-inf, gives NaN; -inf among finite numbers gives 0 (log_softmax: -inf).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .rows import RowOperator

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression

#: Axes of x and C; kernels need n only where k is not the innermost axis in memory.
SIZES = ("batch", "m", "n", "k")


def row_map(name: str, combiner: str, function: Callable[[Any], Any]) -> Callable[[], Expression]:
    """Return the declaration of a map over k: ``function(x)`` of each element and the row's results."""

    def declare() -> Expression:
        from gensor_kernels.operators.expression.combiners import COMBINERS
        from gensor_kernels.operators.expression.expression import Expression, axes, tensor

        every = axes("batch m n k")
        x = tensor("a", *every)[every]
        return Expression("c", every, x, COMBINERS[combiner], over=every[-1:], map=function(x))

    declare.__name__ = name
    return declare


def _softmax_of(x: Any) -> Any:
    from gensor_kernels.operators.expression.expression import exp, result

    return exp(x - result("max")) / result("sumexp")


def _log_softmax_of(x: Any) -> Any:
    from gensor_kernels.operators.expression.expression import log, result

    return x - result("max") - log(result("sumexp"))


def _softmax(x: np.ndarray, value: float) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _log_softmax(x: np.ndarray, value: float) -> np.ndarray:
    centred = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(centred - np.log(np.exp(centred).sum(axis=-1, keepdims=True)))


SMALLEST = tuple((size, 1) for size in SIZES)
OPERATORS: dict[str, RowOperator] = {
    "softmax": RowOperator(
        "softmax", row_map("softmax", "logsumexp", _softmax_of), (), SMALLEST, "softmax", _softmax, True
    ),
    "log_softmax": RowOperator(
        *("log_softmax", row_map("log_softmax", "logsumexp", _log_softmax_of), (), SMALLEST),
        *("log_softmax", _log_softmax, True),
    ),
}
