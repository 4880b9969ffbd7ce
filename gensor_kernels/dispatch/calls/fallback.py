"""Tier 4: the same result from the array library's own matmul and element-wise operations.

The epilogue runs in the accumulator's type, as in a kernel: int32 while every step so far is an integer one,
else float32 (float64 for float64 and for integers wider than int8). The one difference: the product of float16
or bfloat16 operands is rounded to their dtype before the epilogue, because the library's call returns it so, unless the
result has a wider dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_kernels.arrays import Dtype, Namespace

from .arguments import Operation, Product, is_whole
from .array import Backend, DeviceArray

_INTEGER_STEPS = frozenset({"scale", "bias", "add", "mul", "relu", "relu6", "mask"})


def evaluate(
    device: Backend,
    product: Product,
    a: DeviceArray,
    b: DeviceArray,
    steps: Sequence[Operation],
    math: str | None = None,
    out: DeviceArray = None,
) -> DeviceArray:
    """Compute a product and its epilogue; `math` None leaves TF32 to the library's own switch.

    The result is a new array, or `out`, which has the product's dtype and shares no memory with the operands.
    """
    inputs = product.inputs
    if inputs == np.int8 and (steps or product.dtype != np.int8):
        inputs = np.dtype(np.int32)  # products of int8 that wrap at 32 bits, as the kernels' do
    else:
        inputs = product_dtype(inputs, product.dtype, bool(product.batch))
    first, second = product.conjugated
    a, b = a.conj() if first else a, b.conj() if second else b
    value = device.product(a.astype(inputs, copy=False), b.astype(inputs, copy=False), math)
    return apply_steps(device, value, steps, product.dtype, product.inputs, out)


def product_dtype(inputs: Dtype, result: Dtype, is_batched: bool) -> Dtype:
    """Return the dtype in which the library multiplies, so that sums are rounded no more often than a kernel's.

    It is that of a result which is wider than 16-bit operands; CuPy has no batched product of bfloat16.
    """
    if inputs.name in ("float16", "bfloat16") and result != inputs:
        return result
    return np.dtype(np.float32) if inputs.name == "bfloat16" and is_batched else inputs


def apply_steps(
    device: Backend,
    value: DeviceArray,
    steps: Sequence[Operation],
    dtype: Dtype,
    inputs: Dtype,
    out: DeviceArray = None,
) -> DeviceArray:
    """Return an epilogue on `value`, which was computed of `inputs`, and the conversion to `dtype`.

    The last operation writes to `out`, an array of `dtype` that shares no memory with the others, where there is one.
    """
    whole = whole_steps(inputs, steps)
    for index, step in enumerate(steps):
        if value.dtype.kind in "iub" and index >= whole:
            value = value.astype(np.float32 if inputs == np.int8 else np.float64)
        elif value.dtype.kind == "f" or value.dtype.name == "bfloat16":
            value = value.astype(np.float64 if value.dtype == np.float64 else np.float32, copy=False)
        is_last = index == len(steps) - 1 and holds(out, value)
        value = _apply(device, value, step, dtype, out if is_last else None)
    if out is None:
        return _convert(device.xp, value, dtype)
    if value is not out:
        out[...] = value if holds(out, value) else _convert(device.xp, value, dtype)
    return out


def holds(out: DeviceArray, value: DeviceArray) -> bool:
    """Return whether the library's functions write results of the kind of `value` to `out`, rounded to its dtype."""
    return out is not None and out.dtype.kind == value.dtype.kind and out.dtype.kind in "fc"


def whole_steps(inputs: Dtype, steps: Sequence[Operation]) -> int:
    """Return how many leading steps an integer accumulator can do exactly: those with integer operands and scalars."""
    if inputs.kind not in "iu":
        return 0
    for count, step in enumerate(steps):
        operand = step.operand is None or step.operand.dtype.name in ("int8", "int32", "uint8", "bool")
        if step.name not in _INTEGER_STEPS or not is_whole(step.scalar) or not operand:
            return count
    return len(steps)


def _convert(xp: Namespace, value: DeviceArray, dtype: Dtype) -> DeviceArray:
    if value.dtype.kind == "f" and dtype.kind in "iu":
        value = xp.trunc(value).astype(np.int64)  # then wraps, as from any wider integer
    return value.astype(dtype, copy=False)


def _apply(device: Backend, v: DeviceArray, step: Operation, result: Dtype, out: DeviceArray) -> DeviceArray:
    """Apply one step to `v`, in the dtype of `v`; into `out` where there is one and the operation can write to it."""
    xp, name = device.xp, step.name
    scalar = v.dtype.type(step.scalar)
    if name == "mask":
        return xp.where(step.operand == 0, scalar, v)
    if step.operand is not None:
        x = step.operand.astype(v.dtype, copy=False)
        if out is not None:
            return (xp.multiply if name == "mul" else xp.add)(v, x, out=out)
        return v * x if name == "mul" else v + x
    if name == "scale":
        return v * scalar if out is None else xp.multiply(v, scalar, out=out)
    if name == "cast":
        return _convert(xp, v, result).astype(v.dtype)
    if name in ("relu", "relu6"):
        zero, six = v.dtype.type(0), v.dtype.type(6)
        if name == "relu6":
            return into(out, xp.minimum, xp.maximum(v, zero), six)
        return into(out, xp.maximum, v, zero)
    return _activation(device, v, name, out)


def into(out: DeviceArray, function: Callable[..., Any], *given: DeviceArray) -> DeviceArray:
    """Return the result of one of the library's functions, in `out` where there is one."""
    return function(*given) if out is None else function(*given, out=out)


def _activation(device: Backend, v: DeviceArray, name: str, out: DeviceArray) -> DeviceArray:
    xp = device.xp
    if name == "tanh":
        return into(out, xp.tanh, v)
    if name == "gelu":
        first, second = 0.5 * v, device.erfc(v * -math.sqrt(0.5))
    elif name == "gelu_tanh":
        first, second = 0.5 * v, 1 + xp.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v))
    else:
        small = xp.exp(-abs(v))  # which never overflows
        first, second = xp.where(v < 0, small, v.dtype.type(1)), 1 + small
        if name == "sigmoid":
            return first / second if out is None else xp.divide(first, second, out=out)
        first, second = v, first / second
    return first * second if out is None else xp.multiply(first, second, out=out)
