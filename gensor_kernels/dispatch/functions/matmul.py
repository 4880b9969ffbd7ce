"""Matrix products: their lowering, and the same by the array library."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import Operands, Product, check_product, math_of, resolve
from gensor_kernels.dispatch.calls.array import Backend, DeviceArray
from gensor_kernels.dispatch.calls.fallback import evaluate
from gensor_kernels.dispatch.calls.problem import TooManyAxesError, multiply
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from .base import AbstractCall, Copy, Function, Inputs, KernelCall, NeedsCopies, Result, Steps, convert
from .complex_products import COMPLEX, REAL, of_matrices, of_reals, pays

#: Products of int8 that an int32 sum holds without wrapping: 2^31 / (128 * 128), rounded down.
MOST_INT8_PRODUCTS = 2**17 - 1


@dataclass(frozen=True)
class MatmulResult(Result):
    """The result of a matrix product, with the sizes and dtypes it was resolved to."""

    product: Product = None  # type: ignore[assignment]


class Matmul(Function):
    """`a @ b` of arrays (..., m, k) or (k,) and (..., k, n) or (k,); `parameters` is the result's dtype or None."""

    name = "matmul"
    arguments = ("a", "b")

    def result(self, inputs: Inputs, parameters: Dtype | None) -> MatmulResult:
        """Return NumPy's shape and dtype."""
        product = resolve(inputs[0], inputs[1], None, (), parameters)
        return MatmulResult(product.shape, product.dtype, product=product)

    def check(self, result: MatmulResult, out: DeviceArray, steps: Steps) -> None:
        """Raise what NumPy raises."""
        check_product(result.product, out, steps)

    def is_one_call(self, result: MatmulResult, steps: Steps) -> bool:
        """Return whether cupy.matmul converts nothing."""
        return result.product.one_call and not steps

    def is_substitute(self, result: MatmulResult) -> bool:
        """Return whether the library rounds no more often than a kernel."""
        return result.product.inputs.name not in ("float16", "bfloat16") or result.dtype == result.product.inputs

    def timing_name(self, library: str) -> str:
        """Return the library function's own name."""
        return f"{library}.matmul"

    def cells(self, result: MatmulResult) -> dict[str, object]:
        """Return the sizes, and the dtypes of the operands and the result."""
        found = result.product
        m, n, k = found.sizes
        op = "batched_matmul" if found.batch else "matmul"
        sizes = {"batch": math.prod(found.batch), "m": m, "n": n, "k": k}
        return {"op": op, **sizes, "dtype": found.inputs.name, "out": found.dtype.name}

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides; convert other dtypes, make reals of complex64 where that pays, and copy operands with too
        many batch axes."""
        a, b = call.given
        product: Product = call.result.product
        if product.inputs == COMPLEX and call.parameters == REAL:
            product = of_reals(product)
        check_int8_sum(product.inputs, product.dtype, product.sizes[2])
        dtype = product.inputs.name
        if a.dtype != dtype or b.dtype != dtype:
            raise NeedsCopies(convert(a, dtype), convert(b, dtype), words="operands are converted")
        if not call.steps and min(len(a.shape), len(b.shape)) > 1:
            sizes = math.prod(product.batch), *product.sizes
            if pays(sizes, (product.inputs, product.dtype), call.math, call.arch):
                raise of_matrices(a, b, product)
        try:
            found = multiply(a, b, call.out, call.operands, call.epilogue, math_of(product.inputs, call.math))
        except TooManyAxesError:
            copies = [_compact(view, product.batch) for view in (a, b)]
            if not any(copies):
                raise
            raise NeedsCopies(*copies) from None
        return KernelCall(found.workload, found.geometry, operands=found.operands)

    def by_library(
        self, device: Backend, operands: Operands, parameters: Any, result: MatmulResult, math: str | None
    ) -> DeviceArray:
        """Call the library's matmul, and its element-wise operations for an epilogue."""
        a, b = operands.inputs
        if result.product.plain and not operands.steps:
            return device.product(a, b, math, operands.out)
        out = operands.out if operands.out is not None and operands.out.dtype == result.dtype else None
        return operands.give(evaluate(device, result.product, a, b, operands.steps, math, out))


MATMUL = Matmul()
#: About a product whose `exact` is another.
WRAPS = 'sums of int8 wrap around in an int8 result, as in CuPy: dtype="int32" gives exact sums'


def exact(workload: Workload) -> Workload | None:
    """Return the product with int32 results of one with int8 results, which wrap around, or None of other Workloads."""
    types, align = workload.dtype, workload.align
    if [types.get(name) for name in "abc"] != ["int8"] * 3:
        return None
    dtypes, alignment = {**types, "c": "int32"}, {**align, "c": min(4 * align["c"], 16)}
    return replace(workload, dtypes=tuple(dtypes.items()), alignment=tuple(alignment.items()))


def check_int8_sum(inputs: Dtype, result: Dtype, k: int) -> None:
    """Raise UnsupportedError for sums of int8 products that an int32 may not hold before they become floats."""
    if inputs == np.int8 and result.kind not in "iu" and k > MOST_INT8_PRODUCTS:
        raise UnsupportedError("an int32 sum of so many products may wrap around before it becomes a float")


def _compact(view: View, batch: tuple[int, ...]) -> Copy | None:
    """Return a copy whose batch axes can be merged, or None of an operand for which it would change nothing."""
    shape = (*(batch if len(view.shape) > 1 else ()), *view.shape[-2:])
    if view.strides == contiguous(shape, view.dtype).strides:
        return None
    return Copy(view.dtype, tuple(range(len(shape))), shape)
