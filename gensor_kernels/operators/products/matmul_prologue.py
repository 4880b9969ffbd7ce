"""Matrix products after a prologue: C[b, m, n] = sum over k of f(A[b, m, k]) B[b, k, n] (declaration/prologue.py).

The declaration is that of the product; vectors are operands d (k,) and e (k,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from . import matmul


@dataclass(frozen=True)
class PreparedMatmul(prologue.Prepared, matmul.Matmul):  # type: ignore[misc]  # its product may be None, but is not
    """A product after a prologue."""

    usual_sizes = MappingProxyType({"batch": (1,), "m": (1, 16, 128, 1024), "n": (1024, 4096), "k": (1024, 4096)})


OPERATORS = prologue.prepared(PreparedMatmul, matmul.OPERATOR)


def workload(names: Iterable[str], product: Workload, dtype: str | None = None) -> Workload:
    """Return a matmul's Workload after a prologue of contiguous, 16-byte aligned vectors of ``dtype`` (default: a's
    own)."""
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
    """Return the Workload of arrays in memory with ``vectors`` (k,); see matmul.workload_from_operands."""
    base = matmul.workload_from_operands(a, b, c, math=math, epilogue=epilogue)
    return prologue.with_prologue(base, names, vectors)
