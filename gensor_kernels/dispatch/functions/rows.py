"""Reductions, softmax and norms: their lowering, and the same by the array library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.rows.views import is_map, workload_from_views
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from .base import AbstractCall, Function, KernelCall, LibraryCall, NeedsCopies, Result, Steps, compact

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: Functions of the array library, by operator. The others are composed here.
LIBRARY = {
    "reduce_sum": "sum",
    "reduce_mean": "mean",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "argmax": "argmax",
    "argmin": "argmin",
}
#: Reductions that a row without elements has no result of, and what it gives the others.
NEED_ELEMENTS = ("reduce_max", "reduce_min", "argmax", "argmin", "logsumexp")
OF_NOTHING = {"reduce_sum": 0.0, "reduce_prod": 1.0, "l2_norm": 0.0, "reduce_mean": math.nan, "reduce_var": math.nan}


@dataclass(frozen=True)
class Parameters:
    """Parameters of a call; `axes` are sorted and not negative, `value` is a norm's eps."""

    operator: str
    axes: tuple[int, ...]
    keepdims: bool = False
    dtype: str | None = None
    value: float | None = None
    ddof: float = 0
    root: bool = False


class Rows(Function):
    """Whatever the rows family computes; `parameters` is a Parameters."""

    name = "rows"
    stands_in = False  # there is no product in it at which the library could be faster

    def __init__(self, one_call: bool):
        self.one_call = one_call
        self.name = "rows of one call" if one_call else "rows"

    def result(self, inputs: Sequence[DeviceArray], parameters: Parameters) -> Result:
        """Return NumPy's shape and dtype."""
        x, p = inputs[0], parameters
        if p.operator in NEED_ELEMENTS and any(x.shape[axis] == 0 for axis in p.axes):
            raise ValueError(f"{p.operator.removeprefix('reduce_')} of a row without elements")
        return Result(_shape(x.shape, p), _dtype(x.dtype, p))

    def nothing(self, inputs: Sequence[DeviceArray], parameters: Parameters) -> float | None:
        """Return NumPy's result over rows without elements."""
        p = parameters
        if all(inputs[0].shape[axis] for axis in p.axes):
            return None
        return 0.0 if p.operator == "reduce_var" and p.ddof < 0 else OF_NOTHING.get(p.operator)  # 0 / -ddof

    def lower(self, call: AbstractCall) -> KernelCall:
        """Merge axes as far as all arrays allow; convert x to the dtype of the sums if that is wider."""
        (x,), p = call.given, call.parameters
        if not x.shape:
            raise UnsupportedError("an array without axes has nothing to reduce: give it one, as in x[None]")
        if p.dtype == "float64" and x.dtype in ("float32", "float16", "bfloat16"):
            raise NeedsCopies(compact(x, "float64"))
        out = call.out if is_map(p.operator) else _without(call.out, p)
        operands = [view for view in call.operands if view is not None]
        try:
            found = workload_from_views(
                p.operator,
                x,
                out,
                p.axes,
                [(view if is_map(p.operator) else _without(view, p)).strides for view in operands],
                epilogue=call.epilogue,
                value=p.value,
                ddof=p.ddof,
            )
        except UnsupportedError:
            if x.strides == contiguous(x.shape, x.dtype).strides:
                raise
            raise NeedsCopies(compact(x)) from None  # more axes than kernels take, that no copy would have
        places = iter(found.operands)
        laid = tuple(None if view is None else next(places) for view in call.operands)
        return KernelCall(found.workload, found.geometry, operands=laid)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Over the last axes; eps is the one kernels are verified with."""
        given: Any = operator(workload.operator)
        x, size = arrays["a"], workload.size
        p = Parameters(workload.operator, tuple(range(3, x.ndim)), value=given.value, ddof=size.get("ddof", 0))
        return LibraryCall((x,), p) if given.maps else LibraryCall((x,), p, lambda value: value.transpose(0, 2, 1))

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Parameters, math: str | None) -> Any:
        """Return the library's own function where there is one, else the textbook's in at least float32."""
        xp, x, p = device.xp, inputs[0], parameters
        axis: Any = p.axes if len(p.axes) != 1 else p.axes[0]
        if p.operator == "elementwise":
            return x
        if p.operator in LIBRARY:
            function = getattr(xp, LIBRARY[p.operator])
            if p.operator in ("argmax", "argmin"):
                return _positions(xp, function, x, p)
            wide = {} if p.dtype is None else {"dtype": p.dtype}
            return function(x, axis=axis, keepdims=p.keepdims, **wide)
        own = np.float64 if x.dtype.kind in "iub" else x.dtype
        dtype = np.promote_types(p.dtype or own, np.float32)
        dtype = np.promote_types(dtype, x.dtype) if x.dtype.kind == "c" else dtype
        return _compute(xp, x.astype(dtype, copy=False), axis, p)


class Positions(Rows):
    """argmax and argmin."""

    def check(self, result: Any, out: DeviceArray, steps: Steps) -> None:
        """Raise TypeError for an `out` that is not of integers; see Function.check."""
        super().check(result, out, steps)
        if out is not None and out.dtype.kind != "i":
            raise TypeError(f"out has dtype {out.dtype}, and positions are integers: expected int64")


ONE_CALL, POSITIONS, COMPOSED = Rows(True), Positions(True), Rows(False)


def function_of(name: str) -> Rows:
    """Return the Function of an operator on rows."""
    return POSITIONS if name in ("argmax", "argmin") else ONE_CALL if name in LIBRARY else COMPOSED


def _shape(shape: Sequence[int], p: Parameters) -> tuple[int, ...]:
    if is_map(p.operator):
        return tuple(shape)
    if p.keepdims:
        return tuple(1 if axis in p.axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in p.axes)


def _dtype(dtype: np.dtype[Any], p: Parameters) -> np.dtype[Any]:
    if p.operator in ("argmax", "argmin"):
        return np.dtype(np.int64)
    if p.dtype is not None:
        return np.dtype(p.dtype)
    if dtype.kind == "c" and p.operator in ("l2_norm", "reduce_var"):
        return np.empty(0, dtype).real.dtype
    if dtype.kind in "iub" and p.operator in ("reduce_sum", "reduce_prod"):
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    if dtype.kind in "iub" and p.operator not in ("reduce_max", "reduce_min", "elementwise"):
        return np.dtype(np.float64)
    return dtype


def _without(view: View, p: Parameters) -> View:
    """Return a view without the axes that are reduced, where they were kept with one element."""
    if not p.keepdims:
        return view
    kept = [axis for axis in range(len(view.shape)) if axis not in p.axes]
    shape, strides = (tuple(values[axis] for axis in kept) for values in (view.shape, view.strides))
    return View(shape, strides, view.dtype, view.alignment)


def _positions(xp: Any, function: Any, x: DeviceArray, p: Parameters) -> Any:
    """argmax and argmin over several axes: the position among all of them, in their order."""
    if len(p.axes) == 1:
        found = function(x, axis=p.axes[0])
    else:
        kept = [axis for axis in range(x.ndim) if axis not in p.axes]
        moved = x.transpose(kept + list(p.axes)).reshape(*(x.shape[axis] for axis in kept), -1)
        found = function(moved, axis=-1)
    found = found if found.dtype == np.int64 else found.astype(np.int64)
    return found.reshape(_shape(x.shape, p)) if p.keepdims else found


def _compute(xp: Any, x: DeviceArray, axis: Any, p: Parameters) -> Any:
    keep = {"axis": axis, "keepdims": True}
    count = math.prod(x.shape[each] for each in p.axes)
    if p.operator == "l2_norm":
        return xp.sqrt(_squares(x).sum(axis=axis, keepdims=p.keepdims))
    if p.operator == "reduce_var":
        return _squares(x - x.mean(**keep)).sum(axis=axis, keepdims=p.keepdims) / max(count - p.ddof, 0)
    if p.operator in ("logsumexp", "softmax", "log_softmax"):
        top = x.real.max(**keep) if x.dtype.kind == "c" else x.max(**keep)
        if p.operator == "logsumexp":  # the sum of nothing but -inf, or of inf and others, is that
            top = xp.where(xp.isfinite(top), top, 0)
        shifted = x - top
        total = xp.exp(shifted).sum(**keep)
        if p.operator == "softmax":
            return xp.exp(shifted) / total
        if p.operator == "log_softmax":
            return shifted - xp.log(total)
        found = xp.log(total) + top
        return found if p.keepdims else found.reshape(_shape(x.shape, p))
    centred = x - x.mean(**keep) if p.operator == "layernorm" else x
    return centred / xp.sqrt(_squares(centred).mean(**keep) + p.value)


def _squares(x: DeviceArray) -> Any:
    """Return the squared magnitudes, which are real."""
    return x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
