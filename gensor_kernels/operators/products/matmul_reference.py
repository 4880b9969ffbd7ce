"""Products of matrices in float64 and complex128, and how far a kernel's may lie from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import facts, joined, round_to
from gensor_kernels.operators.types.epilogue import Step

if TYPE_CHECKING:
    from gensor_kernels.operators.tolerance.base import Magnitude
    from gensor_kernels.operators.types.workload import Workload


def reference(a: np.ndarray, b: np.ndarray, steps: Sequence[Step] = (), out: str = "float64") -> np.ndarray:
    """A B in float64 with every epilogue step applied, not yet rounded to ``out`` (see dtypes.round_to).

    ``a`` and ``b`` are arrays (..., m, k) and (..., k, n) of any type.  Integer products are summed exactly and wrap
    around as an int32 accumulator does.  Complex ones are summed part by part, so that a NaN or infinity in one part
    of the sums leaves the other alone.
    """
    a, b = np.asarray(a), np.asarray(b)
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        return epilogues.apply(_complex_product(a, b), steps, out)
    with np.errstate(all="ignore"):
        product = np.matmul(a.astype(np.float64), b.astype(np.float64))
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":
            product = round_to("int32", product)  # sums of int8 products are exact in float64
    return epilogues.apply(product, steps, out)


def _complex_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ar, ai, br, bi = (np.asarray(part, dtype=np.float64) for part in (a.real, a.imag, b.real, b.imag))
    with np.errstate(all="ignore"):
        pairs = [ar @ br - ai @ bi, ar @ bi + ai @ br]
    return joined(np.stack(pairs, axis=-1))


def magnitude(a: np.ndarray, b: np.ndarray) -> Magnitude:
    """Scale of the products that are summed: sum |a b| and sqrt(sum (a b)^2), float64 (..., m, n)."""
    from gensor_kernels.operators.tolerance.base import Magnitude

    a, b = np.abs(np.asarray(a, dtype=np.float64)), np.abs(np.asarray(b, dtype=np.float64))
    with np.errstate(all="ignore"):
        total = np.matmul(a, b)
        norm = np.sqrt(np.matmul(a * a, b * b))
        # Squares may overflow or underflow; the norm lies between these two whatever the terms.
        return Magnitude(total, np.clip(norm, total / np.sqrt(max(a.shape[-1], 1)), total))


def product_and_bound(
    a: np.ndarray, b: np.ndarray, workload: Workload, dtype: str, *, structured: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(a b, bound on a kernel's error) in float64, of matrices of ``dtype`` as ``workload`` accumulates them.

    Of complex matrices both are complex: the bound's parts are those of the product's parts.
    """
    from gensor_kernels.operators.tolerance import base as tolerance_base

    product = reference(a, b)
    if facts(workload.accumulator).is_complex:
        return product, tolerance_base.complex_bound(a, b, magnitude, workload.accumulator, workload.math, structured)
    if workload.accumulator == "int32":
        product = round_to("int32", product)
    bound = tolerance_base.accumulation_bound(
        product,
        magnitude(a, b),
        a.shape[-1],
        dtype=dtype,
        accumulator=workload.accumulator,
        math=workload.math,
        structured=structured,
    )
    return product, bound
