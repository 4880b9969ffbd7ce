"""Products whose rows are normalised: C = after(norm(before(A B))), as in the blocks of a transformer.

The epilogue is one list: its first ``before`` operations (``before`` is a size) precede the norm (a bias, a residual),
all others follow it (weight and bias of the norm: ``mul`` and ``bias``).  rows/norms.py defines layernorm and rmsnorm;
eps is a run-time argument and part of no Workload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.epilogue import NORMS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import View, Workload

from . import matmul

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


PREFIX = "matmul_"
_TAIL = struct.Struct("<d i")


def declare(norm: str) -> tuple[Expression, ...]:
    """Declare x = A B, mean and variance (or mean square) of its rows, and the map."""
    from gensor_kernels.operators.expression.expression import SUM, WELFORD, Expression, axes, result, rsqrt, tensor

    batch, m, n, k = axes("batch m n k")
    a, b = tensor("a", batch, m, k), tensor("b", batch, k, n)
    x = Expression("x", (batch, m, n), a[batch, m, k] * b[batch, k, n], SUM)
    row = x[batch, m, n]
    if norm == "layernorm":
        mapped = (row - result("mean")) * rsqrt(result() + VERIFIED_EPS)
        return x, Expression("c", (batch, m, n), row, WELFORD, over=(n,), map=mapped)
    square = Expression("square", (batch, m), row * row, WELFORD, map=result("mean"))
    return x, square, Expression("c", (batch, m, n), row * rsqrt(square[batch, m] + VERIFIED_EPS))


@dataclass(frozen=True)
class Normed(matmul.Matmul):
    """A product with one norm, for tuner and dispatch."""

    usual_sizes = MappingProxyType({"batch": (1,), "m": (16, 128, 1024, 8192), "n": (128, 768, 4096), "k": (768, 4096)})
    norm: str = "layernorm"

    def geometry(
        self, workload: Workload, strides: Mapping[str, tuple[int, ...]], eps: float = VERIFIED_EPS
    ) -> Geometry:
        """Return the product's view with eps and the number of operations before the norm."""
        return replace(super().geometry(workload, strides), tail=params_tail(eps, workload.size["before"]))

    def inner_steps(self, workload: Workload) -> int:
        """Return the number of operations before the norm."""
        return workload.size["before"]

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the norm of the rows of the product after its first operations in float64; see Operator."""
        from gensor_kernels.operators.tolerance.fused import norm_and_bound

        product, bound = super().result_and_bound(workload, arrays, conditions)
        values = (product, bound, conditions.steps, workload.accumulator, VERIFIED_EPS)
        return norm_and_bound(self.norm, *values, structured=conditions.structured)

    def product(self, workload: Workload) -> Product | None:  # type: ignore[override]
        """Return the product with its norm, or None for integers and complex numbers, which are not normalised."""
        return replace(super().product(workload), norm=self.norm) if workload.is_real else None

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload at exactly the wanted sizes, with two operations before the norm."""
        return workload.with_sizes(**wanted, before=2)


OPERATORS = {
    PREFIX + norm: Normed(
        PREFIX + norm,
        partial(declare, norm),
        smallest=(("batch", 1), ("m", 1), ("n", 1), ("k", 1), ("before", 0)),
        norm=norm,
    )
    for norm in NORMS
}


def params_tail(eps: float, before: int) -> bytes:
    """Return the bytes of the operator's tail: eps and the number of operations before the norm."""
    return _TAIL.pack(eps, before)


def with_norm(norm: str, product: Workload, before: int) -> Workload:
    """Return a matmul's Workload with a norm after the first ``before`` operations of its epilogue."""
    if not product.is_real:
        raise UnsupportedError(f"{norm} of {product.dtype['a']}: rows of real numbers are normalised")
    sizes = (*product.sizes, ("before", before))
    return replace(product, operator=PREFIX + norm, sizes=sizes)


def workload_from_operands(
    norm: str, a: View, b: View, c: View, before: int, *, math: str = "ieee", epilogue: Iterable[str] = ()
) -> Workload:
    """Return the Workload of arrays in memory; see matmul.workload_from_operands.  A column-major C has no unit
    stride."""
    return with_norm(norm, matmul.workload_from_operands(a, b, c, math=math, epilogue=epilogue), before)


def parse(text: str) -> tuple[str, int, tuple[str, ...]]:
    """Return (norm, operations before it, all operations but the norm) of an epilogue as in shapes.csv.

    For example ``"bias_add_layernorm_mul_bias"``; ("", 0, ()) without a norm.
    """
    words = text.split("_")
    found = [word for word in words if word in NORMS]
    if len(found) != 1:
        return "", 0, ()
    place = words.index(found[0])
    first, last = (epilogues.parse("_".join(part)) for part in (words[:place], words[place + 1 :]))
    return found[0], len(first), (*first, *last)
