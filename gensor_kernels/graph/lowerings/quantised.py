"""Operators of quantised tensors: numbers of few bits, with scales and zero points."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.api.convolution import conv2d
from gensor_kernels.dispatch.api.matmul import matmul
from gensor_kernels.operators.types.in_bytes import in_bytes

from .arrays import saturated
from .base import Lowering, Run, Tensor, name_of, refusal, window_of
from .contractions import padding, two, two_axes
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

#: Integers that the array library lacks: they are computed in 8 bits.
SMALL = ("int2", "uint2", "int4", "uint4")


def _quantize(run: Run, node: Node, x: Tensor, scale: Tensor, zero: Tensor = None) -> Tensor:
    """Compute saturate(round(x / scale) + zero), rounded half to even; floats of 8 bits are only cast.

    NaN becomes the least integer, as by onnxruntime: a scale that was calibrated with masks of -inf is infinite.
    """
    dtype = _result_dtype(node, zero)
    xp, x, scale, zero = run.together(x, scale, _in_bytes(zero))
    scale, zero = (_spread(xp, node, each, x.shape) for each in (scale, zero))
    with np.errstate(all="ignore"):
        value = wide(xp, x) / wide(xp, scale)
        if "float" in dtype.name:
            value = value.astype(np.float32)
            return (saturated(xp, value, dtype) if node.attribute("saturate") else value).astype(dtype)
        low, high = _range(dtype)
        value = xp.rint(value)
        value = value if zero is None else value + zero.astype(value.dtype)
        # Not fmax, which programs of kernels lack.
        value = xp.where(value > low, value, value.dtype.type(low))
        return xp.minimum(value, high).astype(_storage(dtype)).astype(dtype, copy=False)


def _dequantize(run: Run, node: Node, x: Tensor, scale: Tensor, zero: Tensor = None) -> Tensor:
    """Compute (x - zero) * scale; the difference is exact."""
    xp, x, scale, zero = run.together(_in_bytes(x), scale, _in_bytes(zero))
    scale, zero = (_spread(xp, node, each, x.shape) for each in (scale, zero))
    if x.dtype.kind in "iu":
        x = x if zero is None else x.astype(np.int32) - zero.astype(np.int32)
    dtype = _named(node.attribute("output_dtype")) or scale.dtype
    with np.errstate(all="ignore"):
        return (x.astype(np.float32) * wide(xp, scale)).astype(dtype, copy=False)


def _result_dtype(node: Node, zero: Tensor) -> Dtype:
    """Return the dtype of a QuantizeLinear's result."""
    if zero is not None:
        return np.dtype(zero.dtype)
    return _named(node.attribute("output_dtype")) or np.dtype(np.uint8)


def _named(number: int | None) -> Dtype | None:
    """Return a dtype by the standard's number, None for 0."""
    from onnx import helper

    return np.dtype(helper.tensor_dtype_to_np_dtype(number)) if number else None


def _in_bytes(x: Tensor) -> Tensor:
    """Return integers of fewer than 8 bits in 8 bits, other tensors as they are."""
    return x if x is None or name_of(x) not in SMALL else x.astype(_storage(x.dtype))


def _storage(dtype: Dtype) -> Dtype:
    """Return the dtype of the array library that holds an integer dtype's numbers."""
    return np.dtype(dtype.name.rstrip("24") + "8") if dtype.name in SMALL else dtype


def _range(dtype: Dtype) -> tuple[int, int]:
    """Return the least and the largest number of an integer dtype."""
    import ml_dtypes

    found = ml_dtypes.iinfo(dtype)
    return int(found.min), int(found.max)


def _spread(xp: ModuleType, node: Node, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return scales or zero points of a tensor of this shape, per tensor, per index along an axis or per block."""
    if value is None or (value.size == 1 and not node.attribute("block_size")):
        return None if value is None else value.reshape(())
    if value.ndim == len(shape) > 1 and not node.attribute("block_size"):
        return value  # of QLinearMatMul: one for each row of each matrix
    axis = node.attribute("axis")
    if block := node.attribute("block_size"):
        key = [slice(None)] * len(shape)
        key[axis] = slice(shape[axis])
        return xp.repeat(value, block, axis=axis)[tuple(key)]
    extents = [1] * len(shape)
    extents[axis] = -1
    return value.reshape(extents)


def _dynamic_quantize(run: Run, node: Node, x: Tensor) -> Tensor:
    """Quantise to uint8 by the least and the largest element, 0 included; to int8, 128 less, in `signed` nodes."""
    least, dtype = (-128, np.int8) if node.attribute("signed") else (0, np.uint8)
    xp, x = run.together(x)
    y, scale, zero = in_bytes(xp, x, x.min(), x.max(), least)
    return y.astype(dtype), xp.asarray(scale), zero.astype(dtype)


def _signed(run: Run, x: Tensor, zero: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return a tensor as int8, and its zero point as int32, which is None where it is 0: kernels multiply int8."""
    shift = 128 if name_of(x) == "uint8" else 0
    if shift:
        x = (x ^ x.dtype.type(128)).view(np.int8)
    if zero is None:
        return x, -np.full((), shift, np.int32) if shift else None
    zero = zero.astype(np.int32) - np.int32(shift)
    return x, None if run.is_known(name, zero) and not zero.any() else zero


def _matmul_integer(run: Run, node: Node, a: Tensor, b: Tensor, a_zero: Tensor = None, b_zero: Tensor = None) -> Tensor:
    """Multiply (a - a_zero) @ (b - b_zero) exactly: one product of int8, and terms of its rows and columns."""
    a, a_zero = _signed(run, a, a_zero, node.input(2))
    b, b_zero = _signed(run, b, b_zero, node.input(3))
    if a.size == 0 or b.size == 0 or min(a.ndim, b.ndim) < 2:
        _, a, b, a_zero, b_zero = run.together(a, b, a_zero, b_zero)
        a, b = (x.astype(np.int32) if z is None else x - _rows(z, x) for x, z in ((a, a_zero), (b, b_zero)))
        return run.together(a)[0].matmul(a, b)
    terms: list[Tensor] = []
    a_zero = a_zero[:, None] if a_zero is not None and a_zero.ndim == 1 and a_zero.size > 1 else a_zero
    if a_zero is not None:
        _, zero, columns = run.together(a_zero, b.sum(axis=-2, keepdims=True, dtype=np.int32))
        terms.append(-zero * columns)
    if b_zero is not None:
        _, zero, rows = run.together(b_zero, a.sum(axis=-1, keepdims=True, dtype=np.int32))
        if a_zero is not None:
            _, rows, own = run.together(rows, a_zero)
            rows = rows - np.int32(a.shape[-1]) * own
        terms.append(-zero * rows)
    steps: list[Any] = [("add", run.device(each.astype(np.int32, copy=False))) for each in terms]
    return run.call(matmul, a, b, dtype="int32", **({"epilogue": steps} if steps else {}))


def _rows(zero: Tensor, x: Tensor) -> Tensor:
    return zero[:, None] if zero.ndim == 1 and zero.size > 1 and x.ndim > 1 else zero


def _conv_integer(run: Run, node: Node, x: Tensor, w: Tensor, x_zero: Tensor = None, w_zero: Tensor = None) -> Tensor:
    """Convolve (x - x_zero) with (w - w_zero) exactly; the padding is 0 after the subtraction.

    A convolution of int8, and terms of its filters and its windows: sums of the taps that are inside the image.
    """
    spatial, strides, dilations = window_of(node, x)
    if spatial == 3:
        raise refusal(node, "convolutions of integers have one or two spatial axes, not 3")
    pads = padding(node, x.shape[2:], w.shape[2:], strides, dilations)
    x, x_zero = _signed(run, x, x_zero, node.input(2))
    w, w_zero = _signed(run, w, w_zero, node.input(3))
    groups = node.attribute("group")
    more = {"stride": two(strides, 1), "padding": two(pads, (0, 0)), "dilation": two(dilations, 1), "groups": groups}

    def convolve(image: Tensor, filters: Tensor) -> Tensor:
        return run.call(conv2d, two_axes(run.device(image), spatial), two_axes(run.device(filters), spatial), **more)

    found, inside = convolve(x, w), np.ones((1, *x.shape[1:]), np.int8)
    if x_zero is not None:
        found = found - run.device(x_zero) * convolve(inside, w)
    if w_zero is not None:
        ones = np.ones((groups, *w.shape[1:]), np.int8)
        windows = convolve(x, ones)
        if x_zero is not None:
            windows = windows - run.device(x_zero) * convolve(inside, ones)
        zero = run.device(w_zero)
        each = windows.repeat(len(w) // groups, axis=1)
        found = found - each * (zero.reshape(-1, 1, 1) if zero.size > 1 else zero.reshape(()))
    found = found.astype(np.int32, copy=False)
    return found if spatial == 2 else found[:, :, 0]


LOWERINGS: dict[str, Lowering] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QuantizeLinear": _quantize,
}
