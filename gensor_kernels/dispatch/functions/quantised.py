"""Linear layers with quantised weights: their lowering, and the same by the array library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.whole import whole
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.products.quantised import groups_of, workload_from_views
from gensor_kernels.operators.types.geometry import flat_stride
from gensor_kernels.operators.types.workload import View, Workload

from .base import AbstractCall, Copy, Function, KernelCall, LibraryCall, NeedsCopies, Result

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


@dataclass(frozen=True)
class Weights:
    """How weights are quantised: bits of a number, numbers per scale (0: a row's)."""

    bits: int
    group: int


class QuantisedLinear(Function):
    """`x @ dequantised(w).T` of (x, w, scales, zeros or None); `parameters` is a Weights."""

    name = "linear"

    def result(self, inputs: Sequence[DeviceArray], parameters: Weights) -> Result:
        """Return (..., out) in x's dtype."""
        x, w = inputs[:2]
        return Result((*x.shape[:-1], w.shape[0]), np.dtype(x.dtype))

    def nothing(self, inputs: Sequence[DeviceArray], parameters: Any) -> float | None:
        """Zeros where rows have no elements."""
        return 0.0 if inputs[0].shape[-1] == 0 else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Rows of x and weights that are runs in memory; others are copied, as are scales of another type than x."""
        x, w, scales, zeros = call.inputs
        assert x is not None and w is not None and scales is not None
        bits, group = call.parameters.bits, call.parameters.group
        copies = [None if _is_rows(x) else plain(x), None if _is_rows(w) else plain(w)]
        copies += [None if scales.dtype == x.dtype else Copy(x.dtype, tuple(range(len(scales.shape)))), None]
        if any(copies):
            raise NeedsCopies(*copies)
        views = {"a": rows_of(x), "b": View(w.shape, w.strides, "int8", w.alignment), "d": _pairs(scales)}
        if zeros is not None:
            views["e"] = _pairs(zeros)._replace(dtype="int8")
        views["c"] = rows_of(call.out)
        names = [step.name for step in call.steps]
        workload = workload_from_views(views, bits, x.shape[-1], group, names)
        declared: Any = operator(workload.operator)
        geometry = declared.geometry(workload, {name: view.strides for name, view in views.items()})
        operands = tuple(None if v is None else declared.output(workload, rows_of(v).strides) for v in call.operands)
        return KernelCall(workload, geometry, operands=operands)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Operands are in the order of the arguments."""
        bits = 4 if workload.dtype["b"] == "uint4x2" else 8
        inputs = (arrays["a"], arrays["b"], arrays["d"], arrays.get("e"))
        return LibraryCall(inputs, Weights(bits, workload.size["group"]))

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Weights, math: str | None) -> Any:
        """Weights dequantised in float32, and a product."""
        x, w, scales, zeros = inputs
        wide = np.result_type(np.float32, x.dtype)
        return device.product(
            x.astype(wide, copy=False), dequantise(device.xp, parameters, w, scales, zeros, wide).T, math
        )


QUANTISED_LINEAR = QuantisedLinear()


def dequantise(
    xp: Any, parameters: Weights, w: DeviceArray, scales: DeviceArray, zeros: DeviceArray, dtype: np.dtype[Any]
) -> Any:
    """Return (out, in) weights as numbers of a floating-point dtype."""
    number = w
    if parameters.bits == 4:
        w = w.astype(np.uint8, copy=False)
        number = xp.stack([w & 15, w >> 4], axis=-1).reshape(w.shape[0], 2 * w.shape[1])
    k = number.shape[1]
    group = parameters.group or k
    count = groups_of(k, parameters.group)
    which = xp.arange(k) // max(group, 1)
    zero: Any = dtype.type(8 if parameters.bits == 4 else 0)
    if zeros is not None:
        zero = zeros.reshape(w.shape[0], count).astype(dtype)[:, which]
    return (number.astype(dtype) - zero) * scales.reshape(w.shape[0], count).astype(dtype)[:, which]


def check(x: DeviceArray, w: DeviceArray, scales: DeviceArray, zeros: DeviceArray, group: int | None) -> Weights:
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
            raise ValueError(f"linear: {k} weights in a row are not {count} equal groups: give their size as group=")
        group = 0 if count == 1 else k // max(count, 1)
    group = whole("group", group, 0)
    if groups_of(k, group) != count:
        raise ValueError(f"linear: {count} scales in a row do not belong to groups of {group} in {k}")
    if zeros is not None:
        if tuple(zeros.shape) != tuple(scales.shape):
            raise ValueError(f"linear: zeros of shape {tuple(zeros.shape)} beside scales of {tuple(scales.shape)}")
        if zeros.dtype.name not in (("int8",) if bits == 8 else ("int8", "uint8")):
            raise TypeError(f"linear: zeros are of the weights' kind, not {zeros.dtype}")
    return Weights(bits, 0 if count == 1 else group)


def _is_rows(view: View) -> bool:
    """Return whether an array is rows of elements side by side that follow each other evenly."""
    try:
        return (view.strides[-1] == 1 or view.shape[-1] == 1) and bool(rows_of(view))
    except UnsupportedError:
        return False


def rows_of(view: View) -> View:
    """Return a view as (rows, columns); UnsupportedError where rows do not follow each other evenly."""
    lead = list(zip(view.shape[:-1], view.strides[:-1], strict=True))
    row = flat_stride(lead, "rows") if lead else 0
    return View((math.prod(view.shape[:-1]), view.shape[-1]), (row, view.strides[-1]), view.dtype, view.alignment)


def _pairs(view: View) -> View:
    """Scales as (out, groups)."""
    return view if len(view.shape) == 2 else View((*view.shape, 1), (*view.strides, 0), view.dtype, view.alignment)


def plain(view: View, dtype: str | None = None) -> Copy:
    """Return a copy without gaps, its last axis innermost."""
    return Copy(dtype or view.dtype, tuple(range(len(view.shape))))
