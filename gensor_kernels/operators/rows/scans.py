"""Running sums and products along one axis: cumsum and cumprod.

Semantics are NumPy's: a NaN stays in all results after it, and sums of integers are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.operators.types.workload import Workload

from .reductions import Product
from .rows import RowOperator
from .softmax import SMALLEST

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


#: Types that kernels sum as others of the same bits.
SAME_BITS = {"bool": "int8", "uint64": "int64"}


def _declare(combiner: str) -> Expression:
    """C[batch, m, n, k] = combination of A[batch, m, n, j] over j <= k."""
    from gensor_kernels.operators.expression import expression as ex
    from gensor_kernels.operators.expression.affine import Axis
    from gensor_kernels.operators.expression.combiners import COMBINERS

    batch, m, n, k = every = ex.axes("batch m n k")
    j, combined = Axis("j", k), COMBINERS[combiner]
    before = ex.where(j <= k, ex.tensor("a", *every)[batch, m, n, j], combined.identity[0])
    return ex.Expression("c", every, before, combined, over=(j,))


class Scan(RowOperator):
    """A map of each element and those before it, of which the declaration repeats the sums and a kernel does not."""

    def flops(self, workload: Workload) -> int:
        """Return one operation per element."""
        return int(np.prod(self.operands(workload)[0].shape, dtype=object))

    def peak_dtype(self, workload: Workload) -> str:
        """Return the type of x, of which parts have no figure where it is int64: the bytes bound its sums."""
        found = super().peak_dtype(workload)
        return "int32" if found == "int64" else found

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return integers whose sums are exact in float64, or None for other types."""
        return rng.integers(-(2**31), 2**31, shape).astype(np.float64) if workload.dtype[name] == "int64" else None


class ScanProduct(Scan):
    """The running product, with the operands of a product."""

    draw = Product.draw


def _operator(name: str, combiner: str, row: Callable[..., np.ndarray], kind: type[Scan]) -> Scan:
    def reference(x: np.ndarray, value: float) -> np.ndarray:
        # Elements are added in turn: in float64 the roundings would be as many as the kernel's in the worst case.
        return row(x, axis=-1, dtype=np.longdouble).astype(np.float64)

    return kind(name, partial(_declare, combiner), (), SMALLEST, name, reference, True)


OPERATORS: dict[str, RowOperator] = {
    "cumsum": _operator("cumsum", "sum", np.cumsum, Scan),
    "cumprod": _operator("cumprod", "product", np.cumprod, ScanProduct),
}
