"""Matrix products behind a prologue: C[b, m, n] = sum over k of f(A[b, m, k]) B[b, k, n] (declaration/prologue.py).

The declaration is that of the product; its vectors are operands d (k,) and e (k,).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.declaration.lowered import Product
from gensor_kernels.operators.declaration.operator import Operand
from gensor_kernels.operators.types.dtypes import decode
from gensor_kernels.operators.types.epilogue import MAX_VECTORS, Step
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from . import matmul

if TYPE_CHECKING:
    import numpy as np

    from gensor_kernels.operators.tolerance.base import Expected

#: Rows, columns and k that a portfolio is chosen over.
USUAL = ((1, 16, 128, 1024), (1024, 4096), (1024, 4096))


@dataclass(frozen=True)
class PreparedMatmul(matmul.Matmul):
    """A product behind a prologue with so many vectors, as tuner and dispatch know it."""

    vectors: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """a, b, the vectors, c."""
        return prologue.names_of(self.vectors, "a", "b", "c")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Those of matmul, and vectors without gaps."""
        a, b, c = super().operands(workload)
        return (a, b, *prologue.vector_operands(self, workload, (workload.size["k"],)), c)

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float = prologue.VERIFIED_SCALE,
    ) -> Geometry:
        """That of the product, and the number of the scale."""
        return told(super().geometry(workload, strides), scale)

    def expect(
        self,
        workload: Workload,
        arrays: Mapping[str, np.ndarray],
        steps: Sequence[Step] = (),
        *,
        structured: bool = False,
        integer_steps: int = 0,
        scale: float = prologue.VERIFIED_SCALE,
    ) -> Expected:
        """The product of the prepared A in float64; kernels may have rounded some of its elements otherwise."""
        from gensor_kernels.operators.tolerance import base as tolerance_base
        from gensor_kernels.operators.tolerance import prologue as tolerance_prologue

        a, b = (decode(workload.dtype[name], arrays[name]) for name in "ab")
        listed = prologue.steps_of(workload.prologue, prologue.arrays_of(workload, arrays), scale)
        a, away = tolerance_prologue.prepared(a, listed, workload.dtype["a"], workload.accumulator)
        product, bound = matmul.product_and_bound(a, b, workload, workload.dtype["a"], structured=structured)
        return tolerance_base.expect(
            product,
            bound + tolerance_prologue.spread(away, b),
            steps,
            accumulator=workload.accumulator,
            output=workload.dtype["c"],
            math=workload.math,
        )

    def product(self, workload: Workload) -> Product:
        """That of matmul."""
        return replace(super().product(workload), prologue=prologue.described(workload))

    def bytes_moved(self, workload: Workload) -> int:
        """Those of the product and of the vectors."""
        return super().bytes_moved(workload) + prologue.vector_bytes(self, workload)

    def usual(self, workload: Workload) -> list[Workload]:
        """A grid of sizes of language models."""
        grid = ((m, n, k) for m in USUAL[0] for n in USUAL[1] for k in USUAL[2])
        return [workload.with_sizes(batch=1, m=m, n=n, k=k) for m, n, k in grid]


def _made(vectors: int) -> PreparedMatmul:
    name = matmul.NAME + prologue.suffix_of(vectors)
    return PreparedMatmul(name, matmul.declare, smallest=matmul.OPERATOR.smallest, vectors=vectors)


OPERATORS = {each.name: each for each in map(_made, range(MAX_VECTORS + 1))}


def told(geometry: Geometry, scale: float) -> Geometry:
    """The geometry of a product whose vectors lie without gaps."""
    return replace(geometry, d=Strides(column=1), tail=prologue.told(geometry.tail, scale), fourth=prologue.SECOND)


def workload(names: Iterable[str], product: Workload, dtype: str | None = None) -> Workload:
    """A matmul's Workload behind a prologue of contiguous vectors of ``dtype`` (by default a's own) at 16-byte
    aligned addresses."""
    listed = tuple(names)
    vector = contiguous((product.size["k"],), dtype or product.dtype["a"])
    return prologue.with_prologue(product, listed, [vector] * prologue.vectors_of(listed))


def workload_from_operands(
    names: Sequence[str],
    a: View,
    b: View,
    c: View,
    vectors: Sequence[View],
    *,
    math: str = "ieee",
    epilogue: Iterable[str] = (),
) -> Workload:
    """See matmul.workload_from_operands; ``vectors`` (k,)."""
    base = matmul.workload_from_operands(a, b, c, math=math, epilogue=epilogue)
    return prologue.with_prologue(base, names, vectors)
