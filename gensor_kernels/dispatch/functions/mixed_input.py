"""Matrix products of operands stored in 8 bits: their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import product_shapes
from gensor_kernels.dispatch.calls.problem import multiply
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, WIDENED, default_output, float8_values
from gensor_kernels.operators.types.workload import View

from .base import AbstractCall, Function, KernelCall, Result

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


@dataclass(frozen=True)
class Stored:
    """Element types of a and b where the caller names them (else those of the arrays), and the result's."""

    dtype_a: str | None
    dtype_b: str | None
    dtype: np.dtype[Any] | None


class StoredProduct(Function):
    """`a @ b` of operands that kernels widen as they read them; `parameters` is a Stored."""

    name = "matmul"

    def result(self, inputs: Sequence[DeviceArray], parameters: Stored) -> Result:
        """As matmul's; by default the dtype is that of the wider operand, or of the accumulator."""
        a, b = inputs
        _, _, shape = product_shapes(tuple(a.shape), tuple(b.shape))
        first, second = names(inputs, parameters)
        if parameters.dtype is not None:
            if parameters.dtype.kind not in "fiV" or parameters.dtype.name in EIGHT_BIT_FLOATS:
                raise TypeError(f"a product of {first} and {second} is no {parameters.dtype}")
            return Result(shape, parameters.dtype)
        wide = [x.dtype for x, name in zip(inputs, (first, second), strict=True) if name not in WIDENED]
        if wide:
            return Result(shape, np.result_type(*wide))
        try:
            return Result(shape, np.dtype(default_output(first, second)))
        except UnsupportedError:
            return Result(shape, np.dtype(np.float32))

    def lower(self, call: AbstractCall) -> KernelCall:
        """Return a matmul of the types that were named."""
        a, b = call.inputs
        assert a is not None and b is not None
        first, second = call.parameters.dtype_a or a.dtype, call.parameters.dtype_b or b.dtype
        names = [step.name for step in call.steps]
        found = multiply(reinterpret(a, first), reinterpret(b, second), call.out, call.operands, names, "ieee")
        return KernelCall(found.workload, found.geometry, operands=found.operands)

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Stored, math: str | None) -> Any:
        """Return the operands widened to float32 (or float64, or int32), and multiplied."""
        types = names(inputs, parameters)
        wide = np.result_type(np.float32, *(x.dtype for x, n in zip(inputs, types, strict=True) if n not in WIDENED))
        dtype = np.dtype(np.int32) if set(types) == {"int8"} else wide
        a, b = (widen(device.xp, x, name, dtype) for x, name in zip(inputs, types, strict=True))
        return device.product(a, b, math)


STORED_PRODUCT = StoredProduct()


def names(inputs: Sequence[DeviceArray], parameters: Stored) -> tuple[str, str]:
    """Return the element types of the operands; TypeError where an array does not hold what is said of it."""
    given = (parameters.dtype_a, parameters.dtype_b)
    for array, name in zip(inputs, given, strict=True):
        if name is not None and array.dtype.name not in (name, "uint8" if name in EIGHT_BIT_FLOATS else name):
            raise TypeError(f"an array of {array.dtype} does not hold {name}")
    first, second = (name or array.dtype.name for array, name in zip(inputs, given, strict=True))
    return first, second


def widen(xp: Any, array: DeviceArray, name: str, dtype: np.dtype[Any]) -> Any:
    """Return the numbers of an operand in a dtype that holds them."""
    if name in EIGHT_BIT_FLOATS:
        return xp.asarray(float8_values(name).astype(dtype))[array.view(np.uint8)]
    return array.astype(dtype, copy=False)


def reinterpret(view: View, name: str) -> View:
    """Return the view of the same bytes as elements of a type."""
    return View(view.shape, view.strides, name, view.alignment)
