"""Products of operands stored in 8 bits or 4, with and without scales: their lowering, and the same by the array
library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype, Namespace
from gensor_kernels.dispatch.calls.arguments import product_shapes
from gensor_kernels.dispatch.calls.problem import multiply
from gensor_kernels.dispatch.calls.whole import whole
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.products import block_scaled, quantised
from gensor_kernels.operators.products.block_scaled import BLOCK, blocks_of
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, WIDENED, default_output, facts, float8_values
from gensor_kernels.operators.types.geometry import flat_stride
from gensor_kernels.operators.types.workload import View, Workload, alignment_class

from .base import (
    AbstractCall,
    Copy,
    Function,
    Inputs,
    KernelCall,
    LibraryCall,
    NeedsCopies,
    Result,
    compact,
    convert,
    multiply_into,
)

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: Bytes that divide the addresses and the rows that tensor copies read.
COPIED = 16


@dataclass(frozen=True)
class ElementTypes:
    """Element types of a and b where the caller names them (else those of the arrays), and the result's."""

    a: str | None
    b: str | None
    result: Dtype | None

    def names(self, inputs: Inputs) -> tuple[str, str]:
        """Return the element types of a and b; TypeError for an array that does not hold the type it is given."""
        given = (self.a, self.b)
        for array, name in zip(inputs, given, strict=True):
            if name is not None and array.dtype.name not in (name, "uint8" if name in EIGHT_BIT_FLOATS else name):
                raise TypeError(f"an array of {array.dtype} does not hold {name}")
        first, second = (name or array.dtype.name for array, name in zip(inputs, given, strict=True))
        return first, second

    def views(self, a: View, b: View) -> tuple[View, View]:
        """Return the views of the same bytes as elements of these types."""
        return a._replace(dtype=self.a or a.dtype), b._replace(dtype=self.b or b.dtype)


class MixedMatmul(Function):
    """`a @ b` of operands that kernels widen as they read them; `parameters` is an ElementTypes."""

    name = "matmul"

    def result(self, inputs: Inputs, parameters: ElementTypes) -> Result:
        """Return matmul's Result; by default the dtype is that of the wider operand, or of the accumulator."""
        a, b = inputs
        _, _, shape = product_shapes(tuple(a.shape), tuple(b.shape))
        first, second = parameters.names(inputs)
        if parameters.result is not None:
            if parameters.result.kind not in "fiV" or parameters.result.name in EIGHT_BIT_FLOATS:
                raise TypeError(f"a product of {first} and {second} is no {parameters.result}")
            return Result(shape, parameters.result)
        wide = [x.dtype for x, name in zip(inputs, (first, second), strict=True) if name not in WIDENED]
        if wide:
            return Result(shape, np.result_type(*wide))
        try:
            return Result(shape, np.dtype(default_output(first, second)))
        except UnsupportedError:
            return Result(shape, np.dtype(np.float32))

    def lower(self, call: AbstractCall) -> KernelCall:
        """Return a matmul of the types that were named."""
        a, b = call.parameters.views(*call.given)
        found = multiply(a, b, call.out, call.operands, call.epilogue, "ieee")
        return KernelCall(found.workload, found.geometry, operands=found.operands)

    def library(
        self, device: Backend, inputs: Inputs, p: ElementTypes, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Return the operands widened to float32 (or float64, or int32), and multiplied."""
        types = p.names(inputs)
        wide = np.result_type(np.float32, *(x.dtype for x, n in zip(inputs, types, strict=True) if n not in WIDENED))
        dtype = np.dtype(np.int32) if set(types) == {"int8"} else wide
        a, b = (_widen(device.xp, x, name, dtype) for x, name in zip(inputs, types, strict=True))
        return multiply_into(device, a, b, math, out)


class BlockScaledMatmul(Function):
    """`(a * scales) @ (b * scales)` of (a, b, scales of a, scales of b); `parameters` is an ElementTypes."""

    name = "scaled_matmul"

    def result(self, inputs: Inputs, parameters: ElementTypes) -> Result:
        """Return (..., n) of `dtype`, by default float32; ValueError or TypeError if operands do not fit."""
        a, b, *scales = inputs
        if a.ndim == 0 or b.ndim != 2 or a.shape[-1] != b.shape[0]:
            raise ValueError(f"scaled_matmul takes a (..., k) and b (k, n), not {tuple(a.shape)} and {tuple(b.shape)}")
        types = parameters.names((a, b))
        if not set(types) <= set(EIGHT_BIT_FLOATS):
            words = "scaled_matmul takes 8-bit floats, in uint8 arrays with dtype_a and dtype_b"
            raise TypeError(f"{words}, not {types[0]} and {types[1]}")
        (k, n), lead = b.shape, tuple(a.shape[:-1])
        shapes = (*lead, blocks_of(k)), (blocks_of(k), blocks_of(n))
        for name, scale, shape in zip(("scale_a", "scale_b"), scales, shapes, strict=True):
            if tuple(scale.shape) != shape:
                raise ValueError(f"{name} has the shape {tuple(scale.shape)}: blocks of {BLOCK} elements take {shape}")
            if scale.dtype.kind != "f" and scale.dtype.name != "bfloat16":
                raise TypeError(f"{name} holds floating-point numbers, not {scale.dtype}")
        dtype = np.dtype(np.float32) if parameters.result is None else parameters.result
        if dtype.kind != "f" and dtype.name != "bfloat16":
            raise TypeError(f"a product of {types[0]} and {types[1]} is no {dtype}")
        return Result((*lead, n), dtype)

    def op(self, parameters: Any) -> str:
        """Return the operator's name."""
        return block_scaled.NAME

    def nothing(self, inputs: Inputs, parameters: ElementTypes) -> float | None:
        """Return zero where rows have no elements."""
        return 0.0 if inputs[0].shape[-1] == 0 else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Return the rows along k that tensor copies read; others are copied, as are scales that are not float32."""
        a, b, scale_a, scale_b = call.given
        if a.shape[-1] % COPIED:
            raise UnsupportedError(f"scaled_matmul: kernels take multiples of {COPIED} as k, not {a.shape[-1]}")
        left, right = call.parameters.views(a, _transpose(b))
        copies = [
            None if _is_read(left) else compact(a),
            None if _is_read(right) else Copy(b.dtype, (1, 0)),
            convert(scale_a, "float32") if folds(scale_a) else compact(scale_a, "float32"),
            convert(scale_b, "float32"),
        ]
        if any(copies):
            raise NeedsCopies(*copies)
        out = rows_of(call.out)
        if out.strides[0] < 0:  # tensor copies, which would store aligned rows, only go forward
            out = out._replace(alignment=facts(out.dtype).itemsize)
        views = {"a": rows_of(left), "b": right, "d": rows_of(scale_a), "e": _transpose(scale_b), "c": out}
        workload = block_scaled.workload_from_views(views, call.epilogue)
        return KernelCall.of_views(workload, views, declared=partial(row_strides, call.out))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments: b and its scales are declared transposed."""
        stored = [workload.dtype[name] if arrays[name].dtype.itemsize == 1 else None for name in "ab"]
        inputs = arrays["a"], arrays["b"].T, arrays["d"], arrays["e"].T
        return LibraryCall(inputs, ElementTypes(stored[0], stored[1], arrays["c"].dtype))

    def library(
        self, device: Backend, inputs: Inputs, p: ElementTypes, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Multiply the operands, dequantised in float32, by the array library."""
        xp, (a, b, scale_a, scale_b) = device.xp, inputs
        types, wide = p.names((a, b)), np.dtype(np.float32)
        if not set(types) <= set(EIGHT_BIT_FLOATS):  # numbers that were widened before
            wide = np.result_type(wide, a.dtype, b.dtype)
        step, panel = (xp.arange(extent) // BLOCK for extent in b.shape)
        along_k = (*(slice(None) for _ in a.shape[:-1]), step)
        a = _widen(xp, a, types[0], wide) * scale_a.astype(wide, copy=False)[along_k]
        b = _widen(xp, b, types[1], wide) * scale_b.astype(wide, copy=False)[step][:, panel]
        return multiply_into(device, a, b, math, out)


@dataclass(frozen=True)
class Weights:
    """How weights are quantised: bits of a number, numbers per scale (0: a row's)."""

    bits: int
    group: int

    @staticmethod
    def of(x: DeviceArray, w: DeviceArray, scales: DeviceArray, zeros: DeviceArray, group: int | None) -> Weights:
        """Return the Weights of a call; ValueError and TypeError for arrays that do not fit together."""
        if w.ndim != 2 or w.dtype.name not in ("int8", "uint8"):
            raise TypeError(
                f"linear: beside scales w is (out, in) int8 or (out, in / 2) uint8, not {w.dtype}{tuple(w.shape)}"
            )
        bits = 8 if w.dtype == np.int8 else 4
        out, k = w.shape[0], w.shape[1] * 8 // bits
        if x.ndim == 0 or x.shape[-1] != k or x.dtype.kind not in "fV":
            raise ValueError(f"linear: x is (..., {k}) of floating-point numbers, not {x.dtype}{tuple(x.shape)}")
        if scales.ndim not in (1, 2) or scales.shape[0] != out or scales.dtype.kind not in "fV":
            raise ValueError(f"linear: scales are ({out},) or ({out}, groups), not {scales.dtype}{tuple(scales.shape)}")
        count = 1 if scales.ndim == 1 else scales.shape[1]
        if group is None:
            if count > 1 and k % count:
                raise ValueError(
                    f"linear: {k} weights in a row are not {count} equal groups: give their size as group="
                )
            group = 0 if count == 1 else k // max(count, 1)
        group = whole("group", group, 0)
        if quantised.groups_of(k, group) != count:
            raise ValueError(f"linear: {count} scales in a row do not belong to groups of {group} in {k}")
        if zeros is not None:
            if tuple(zeros.shape) != tuple(scales.shape):
                raise ValueError(f"linear: zeros of shape {tuple(zeros.shape)} beside scales of {tuple(scales.shape)}")
            if zeros.dtype.name not in (("int8",) if bits == 8 else ("int8", "uint8")):
                raise TypeError(f"linear: zeros are of the weights' kind, not {zeros.dtype}")
        return Weights(bits, 0 if count == 1 else group)

    def dequantise(
        self, xp: Namespace, w: DeviceArray, scales: DeviceArray, zeros: DeviceArray, dtype: Dtype
    ) -> DeviceArray:
        """Return (out, in) weights as numbers of a floating-point dtype."""
        number = w
        if self.bits == 4:
            w = w.astype(np.uint8, copy=False)
            number = xp.stack([w & 15, w >> 4], axis=-1).reshape(w.shape[0], 2 * w.shape[1])
        rows, k = number.shape
        count, which = quantised.groups_of(k, self.group), xp.arange(k) // max(self.group or k, 1)
        zero: Any = dtype.type(8 if self.bits == 4 else 0)
        if zeros is not None:
            zero = zeros.reshape(rows, count).astype(dtype)[:, which]
        return (number.astype(dtype) - zero) * scales.reshape(rows, count).astype(dtype)[:, which]


class QuantisedLinear(Function):
    """`x @ dequantised(w).T` of (x, w, scales, zeros or None); `parameters` is a Weights."""

    name = "linear"

    def result(self, inputs: Inputs, parameters: Weights) -> Result:
        """Return (..., out) in x's dtype."""
        x, w = inputs[:2]
        return Result((*x.shape[:-1], w.shape[0]), np.dtype(x.dtype))

    def nothing(self, inputs: Inputs, parameters: Any) -> float | None:
        """Return zeros where rows have no elements."""
        return 0.0 if inputs[0].shape[-1] == 0 else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take rows of x and weights that are runs in memory; copy others, and scales of another type than x."""
        x, w, scales, *zeros = call.given
        copies = [None if _is_rows(view) else compact(view) for view in (x, w)]
        copies.append(None if scales.dtype == x.dtype else compact(scales, x.dtype))
        if any(copies):
            raise NeedsCopies(*copies, None)
        views = {"a": rows_of(x), "b": w._replace(dtype="int8"), "d": _pairs(scales)}
        if zeros:
            views["e"] = _pairs(zeros[0])._replace(dtype="int8")
        views["c"] = rows_of(call.out)
        bits, group = call.parameters.bits, call.parameters.group
        workload = quantised.workload_from_views(views, bits, x.shape[-1], group, call.epilogue)
        return KernelCall.of_views(workload, views, declared=partial(row_strides, call.out))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return operands in the order of the arguments."""
        bits = 4 if workload.dtype["b"] == "uint4x2" else 8
        inputs = (arrays["a"], arrays["b"], arrays["d"], arrays.get("e"))
        return LibraryCall(inputs, Weights(bits, workload.size["group"]))

    def library(
        self, device: Backend, inputs: Inputs, p: Weights, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Dequantise the weights in float32, and multiply."""
        x, w, scales, zeros = inputs
        wide = np.result_type(np.float32, x.dtype)
        weights = p.dequantise(device.xp, w, scales, zeros, wide)
        return multiply_into(device, x.astype(wide, copy=False), weights.T, math, out)


MIXED_MATMUL, BLOCK_SCALED_MATMUL, QUANTISED_LINEAR = MixedMatmul(), BlockScaledMatmul(), QuantisedLinear()


def _widen(xp: Namespace, array: DeviceArray, name: str, dtype: Dtype) -> DeviceArray:
    """Return the numbers of an operand in a dtype that holds them."""
    if name in EIGHT_BIT_FLOATS:
        return xp.asarray(float8_values(name).astype(dtype))[array.view(np.uint8)]
    return array.astype(dtype, copy=False)


# ---- arrays as rows


def rows_of(view: View) -> View:
    """Return a view as (rows, columns); UnsupportedError where rows do not follow each other evenly."""
    lead = list(zip(view.shape[:-1], view.strides[:-1], strict=True))
    row = flat_stride(lead, "rows") if lead else 0
    return View((math.prod(view.shape[:-1]), view.shape[-1]), (row, view.strides[-1]), view.dtype, view.alignment)


def row_strides(out: View, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of rows and columns, of an array with these strides along the axes of the result."""
    return rows_of(out._replace(strides=strides)).strides


def folds(view: View) -> bool:
    """Return whether the leading axes follow each other evenly, as rows."""
    try:
        return bool(rows_of(view))
    except UnsupportedError:
        return False


def _is_rows(view: View) -> bool:
    """Return whether an array is rows of elements side by side that follow each other evenly."""
    return (view.strides[-1] == 1 or view.shape[-1] == 1) and folds(view)


def _is_read(view: View) -> bool:
    """Return whether tensor copies can read the rows of an array of 8-bit floats."""
    if not folds(view):
        return False
    rows = rows_of(view)
    return rows.strides[1] == 1 and (rows.shape[0] == 1 or rows.strides[0] > 0) and alignment_class(rows, 1) == COPIED


def _transpose(view: View) -> View:
    """Return the View of a transposed matrix."""
    return view._replace(shape=view.shape[::-1], strides=view.strides[::-1])


def _pairs(view: View) -> View:
    """Return scales as (out, groups)."""
    return view if len(view.shape) == 2 else view._replace(shape=(*view.shape, 1), strides=(*view.strides, 0))
