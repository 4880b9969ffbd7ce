"""Reductions over any axes: sum, mean, max, min, prod, argmax, argmin, l2_norm, reduce_var and logsumexp.

Semantics are NumPy's.  NaN anywhere in a row makes its maximum and minimum NaN; argmax and argmin give the first of
equals, or the first NaN, as the row-major position among the reduced axes (int64).  Sums of integers are int64.
Over no elements a sum is 0, a product 1, a mean and a variance NaN; all other reductions have no value there.
logsumexp follows SciPy: -inf for nothing but -inf, inf for a row with inf.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.operators.declaration.operator import Declare
from gensor_kernels.operators.types.workload import Workload

from .rows import Reference, RowOperator

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression, Value


SIZES = ("batch", "m", "n", "k", "i", "j")


def _fold(combiner: str, function: Callable[[ModuleType], Value] | None = None, square: bool = False) -> Expression:
    """Declare a reduction of x, or of its squares, and ``function(ex)`` of its result, of expression.py as ``ex``."""
    from gensor_kernels.operators.expression import expression as ex
    from gensor_kernels.operators.expression.combiners import COMBINERS

    batch, m, n, *reduced = every = ex.axes("batch m n i j k")
    x, fold = ex.tensor("a", *every)[every], COMBINERS[combiner]
    body = (x, ex.position()) if fold.inputs == 2 else x * x if square else x
    mapped = function(ex) if function else None
    return ex.Expression("c", (batch, n, m), body, fold, over=tuple(reduced), map=mapped)


def _variance(ddof: int) -> Expression:
    return _fold("welford", lambda ex: ex.result("m2") / (ex.result("count") - ddof))


def _logsumexp(x: np.ndarray, value: float) -> np.ndarray:
    # At least one element: an empty row has no maximum, and callers raise as SciPy does.
    most = x.max(axis=-1, keepdims=True)
    shift = np.where(np.isinf(most), 0.0, most)
    return np.asarray(np.log(np.exp(x - shift).sum(axis=-1)) + shift[..., 0])


def _var(x: np.ndarray, value: float) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(np.square(centred).sum(axis=-1) / max(x.shape[-1] - value, 0.0))


class Product(RowOperator):
    """A product of normal random numbers vanishes within a few hundred factors: its operands are drawn near 1."""

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return numbers of either sign whose logarithms sum to order 1 over a row."""
        factors = max(1, int(np.prod(shape[3:])))
        return rng.choice([-1.0, 1.0], shape) * np.exp2(rng.standard_normal(shape) * 2 / np.sqrt(factors))


def _operator(
    name: str, operation: str, row: Reference, declare: Declare, kind: type[RowOperator] = RowOperator
) -> RowOperator:
    parameters = ("ddof",) if operation == "var" else ()
    smallest = tuple((size, 1) for size in SIZES) + tuple((size, 0) for size in parameters)
    return kind(name, declare, parameters, smallest, operation, row)


OPERATORS: dict[str, RowOperator] = {
    each.name: each
    for each in (
        _operator("reduce_sum", "sum", lambda x, _: x.sum(axis=-1), lambda: _fold("sum")),
        _operator(
            "reduce_mean",
            "mean",
            lambda x, _: x.sum(axis=-1) / x.shape[-1],
            lambda: _fold("welford", lambda ex: ex.result("mean")),
        ),
        _operator("reduce_max", "max", lambda x, _: x.max(axis=-1), lambda: _fold("max")),
        _operator("reduce_min", "min", lambda x, _: x.min(axis=-1), lambda: _fold("min")),
        _operator("reduce_prod", "prod", lambda x, _: x.prod(axis=-1), lambda: _fold("product"), Product),
        _operator("argmax", "argmax", lambda x, _: x.argmax(axis=-1), lambda: _fold("argmax")),
        _operator("argmin", "argmin", lambda x, _: x.argmin(axis=-1), lambda: _fold("argmin")),
        _operator(
            "l2_norm",
            "l2_norm",
            lambda x, _: np.sqrt((x * x).sum(axis=-1)),
            lambda: _fold("sum", lambda ex: ex.sqrt(ex.result()), True),
        ),
        _operator("reduce_var", "var", _var, _variance),
        _operator("logsumexp", "logsumexp", _logsumexp, lambda: _fold("logsumexp")),
    )
}
