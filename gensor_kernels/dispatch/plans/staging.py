"""What must be done to a call's arrays before kernels can take them, and the call as it is after that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Call
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.workload import View, contiguous
from gensor_kernels.programs.core.params import STEP_DTYPES

from .problem import Problem, TooManyAxesError, make, view_of

#: Products of int8 that an int32 sum holds without wrapping: 2^31 / (128 * 128), rounded down.
MOST_INT8_PRODUCTS = 2**17 - 1

Pointer = Callable[[Any], int]


@dataclass(frozen=True)
class Staging:
    """`compact`: broadcast and copy the operands, so that every batch axis can be merged; `temporary`: compute
    into a new array and copy it to `out`. Conversion to the dtype of the call, and conjugation, are always part of it.
    """

    compact: bool = False
    temporary: bool = False

    def __str__(self) -> str:
        done = "operands are copied" if self.compact else "operands are converted"
        return f"{done}, the result goes through a temporary" if self.temporary else done


def problem_of(call: Call, a: Any, b: Any, out: Any, pointer: Pointer) -> tuple[Problem, Staging | None]:
    """The contraction a call is, and the Staging it needs first; UnsupportedError for what kernels cannot do."""
    if call.inputs == np.int8 and call.dtype.kind not in "iu" and call.sizes[2] > MOST_INT8_PRODUCTS:
        raise UnsupportedError("an int32 sum of so many products may wrap around before it becomes a float")
    staging = _needed(call, a, b, out, pointer)
    try:
        return _as_staged(call, a, b, out, staging, pointer), staging
    except TooManyAxesError:
        staging = Staging(compact=True, temporary=out is not None)
        return _as_staged(call, a, b, out, staging, pointer), staging


def operand_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype an epilogue operand is brought to: its own where kernels read it, else a float that holds it."""
    if dtype.name in STEP_DTYPES:
        return dtype
    if dtype.kind == "c":  # of extended precision
        raise UnsupportedError(f"an epilogue operand of dtype {dtype.name}")
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def _needed(call: Call, a: Any, b: Any, out: Any, pointer: Pointer) -> Staging | None:
    operands = [step.operand for step in call.operations if step.operand is not None]
    temporary = out is not None and (out.dtype != call.dtype or repeats_itself(out) or _is_odd(out, pointer))
    compact = any(_is_odd(array, pointer) for array in (a, b, *operands))
    convert = a.dtype != call.inputs or b.dtype != call.inputs
    convert = convert or any(operand.dtype != operand_dtype(operand.dtype) for operand in operands)
    return Staging(compact, temporary) if temporary or compact or convert else None


def _is_odd(array: Any, pointer: Pointer) -> bool:
    """Whether elements lie off their natural alignment."""
    size = array.dtype.itemsize
    return bool(pointer(array) % size or any(stride % size for stride in array.strides))


def _as_staged(call: Call, a: Any, b: Any, out: Any, staging: Staging | None, pointer: Pointer) -> Problem:
    compact = staging is not None and staging.compact

    def view(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> View:
        if compact or array.dtype != dtype:
            return contiguous(shape if compact else tuple(array.shape), dtype.name)
        return view_of(array, pointer(array))

    def whole(array: Any) -> tuple[int, ...]:
        return (*(call.batch if array.ndim > 1 else ()), *array.shape[-2:])

    fresh = out is None or (staging is not None and staging.temporary)
    c = contiguous(call.shape, call.dtype.name) if fresh else view_of(out, pointer(out))
    operands = [
        None if s.operand is None else view(s.operand, operand_dtype(s.operand.dtype), call.shape)
        for s in call.operations
    ]
    views = view(a, call.inputs, whole(a)), view(b, call.inputs, whole(b))
    conjugated = call.conjugated if staging is None else (False, False)
    return make(*views, c, operands, call.operations, call.math or "ieee", conjugated)


def byte_range(array: Any) -> tuple[int, int]:
    """(first, past the last) byte of an array's elements, relative to the address of element 0."""
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return low, high + array.dtype.itemsize


def clearance(array: Any, out: Any) -> tuple[int, int]:
    """How far behind `array` `out` may begin, in bytes, exclusive, and still overlap it; nowhere without both."""
    if array is None or out is None:
        return 0, 0
    (low, high), (begin, end) = byte_range(array), byte_range(out)
    return low - end, high - begin


def repeats_itself(array: Any) -> bool:
    """Whether two elements of an array may share memory."""
    reach = array.dtype.itemsize
    axes = sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1)
    for stride, extent in axes:
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False
