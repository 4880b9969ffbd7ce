"""Reductions, softmax and norms: their lowering, and the same by the array library."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype, Namespace
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.fallback import holds
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.rows.scans import SAME_BITS
from gensor_kernels.operators.rows.views import is_map, workload_from_views
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from .base import (
    AbstractCall,
    Copy,
    Function,
    Inputs,
    KernelCall,
    LibraryCall,
    NeedsCopies,
    Result,
    Steps,
    compact,
    round_result,
)

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
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
    **{name: name for name in ("nansum", "nanmean", "nanmax", "nanmin")},
}
#: Reductions of what is not NaN: the reduction of a copy, and what stands for NaN in it.
WITHOUT_NAN = {
    "nansum": ("reduce_sum", 0.0),
    "nanmean": ("reduce_sum", 0.0),
    "nanmax": ("reduce_max", -math.inf),
    "nanmin": ("reduce_min", math.inf),
}
#: Maps of an element and those before it.
SCANS = ("cumsum", "cumprod")
#: Reductions that a row without elements has no result of, and what it gives the others.
NEED_ELEMENTS = ("reduce_max", "reduce_min", "argmax", "argmin", "logsumexp", "nanmax", "nanmin")
OF_NOTHING = {
    **dict.fromkeys(("reduce_sum", "nansum", "l2_norm"), 0.0),
    "reduce_prod": 1.0,
    **dict.fromkeys(("reduce_mean", "nanmean", "reduce_var"), math.nan),
}


@dataclass(frozen=True)
class Parameters:
    """Parameters of a call; `axes` are sorted and not negative, `value` is a norm's eps.

    `root`: the square root of the reduction follows. Operators of WITHOUT_NAN are others after a copy without NaN.
    """

    operator: str
    axes: tuple[int, ...]
    keepdims: bool = False
    dtype: str | None = None
    value: float | None = None
    ddof: float = 0
    root: bool = False


@dataclass(frozen=True)
class WithoutNan(Copy):
    """A contiguous copy in which a number stands for NaN.

    Unless `marks` is None, the copy has a second half along a new first axis: 1 where an element is NaN if `marks` is
    true, else 1 where it is a number. The same reduction of it counts the numbers of a row, or says if there are any.
    """

    fill: float = 0.0
    marks: bool | None = None

    def view(self, view: View) -> View:
        """Return the View of the copy."""
        return contiguous(view.shape if self.marks is None else (2, *view.shape), self.dtype)

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Make the copy."""
        wide = array if array.dtype.kind == "f" else array.astype(np.float32)  # CuPy has no functions of bfloat16
        missing = device.xp.isnan(wide)
        # Not nan_to_num: it copies numbers from the host, which a graph must not do again.
        found = device.xp.where(missing, wide.dtype.type(self.fill), wide)
        if self.marks is None:
            return found.astype(array_dtype(self.dtype), copy=False)
        halves = device.empty((2, *array.shape), array_dtype(self.dtype))
        halves[0], halves[1] = found, missing if self.marks else ~missing
        return halves


def use_marks(operator: str, device: Device, value: DeviceArray, result: Result, out: DeviceArray) -> DeviceArray:
    """Compute a reduction of what is not NaN from those of the halves of a copy; see WithoutNan and NeedsCopies."""
    xp, (found, marks) = device.xp, value
    if operator == "nanmean":
        with np.errstate(invalid="ignore"):
            return round_result(device, xp.divide(found, marks), result, out)
    found = xp.where(marks == (operator == "nanmin"), found.dtype.type(np.nan), found)
    if not device.capturing() and bool(xp.isnan(found).any()):  # CuPy waits for the device here, too
        warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
    return round_result(device, found, result, out)


def take_root(device: Device, value: DeviceArray, result: Result, out: DeviceArray) -> DeviceArray:
    """Compute the square root of a reduction; see NeedsCopies."""
    target = out if holds(out, value) else value
    return round_result(device, device.xp.sqrt(value, out=target), result, out)


class Rows(Function):
    """Whatever the rows family computes; `parameters` is a Parameters."""

    name = "rows"
    stands_in = False  # there is no product in it at which the library could be faster

    def __init__(self, one_call: bool):
        self.one_call = one_call
        self.name = "rows of one call" if one_call else "rows"

    def result(self, inputs: Inputs, parameters: Parameters) -> Result:
        """Return NumPy's shape and dtype."""
        x, p = inputs[0], parameters
        if p.operator in NEED_ELEMENTS and any(x.shape[axis] == 0 for axis in p.axes):
            raise ValueError(f"{p.operator.removeprefix('reduce_')} of a row without elements")
        return Result(_shape(x.shape, p), _dtype(x.dtype, p))

    def nothing(self, inputs: Inputs, parameters: Parameters) -> float | None:
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
        if p.operator in WITHOUT_NAN:
            raise _without_nan(call, x, p)
        if p.root:
            inner = replace(p, root=False, dtype="float32" if call.out.dtype in ("float16", "bfloat16") else p.dtype)
            out = contiguous(call.out.shape, inner.dtype or call.out.dtype)
            raise NeedsCopies(None, words="a square root follows", parameters=inner, after=take_root, out=out)
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

    def first_rows(self, operands: Operands, parameters: Parameters, count: int) -> Operands | None:
        """Return the operands with fewer rows, where the first axis is not reduced."""
        (x, *others), out, steps = operands
        if others or 0 in parameters.axes:
            return None
        rank = x.ndim if is_map(parameters.operator) or parameters.keepdims else x.ndim - len(parameters.axes)

        def cut(array: DeviceArray) -> DeviceArray:
            broadcast = array is None or array.ndim < rank or array.shape[0] == 1
            return array if broadcast else array[:count]

        laid = tuple(step._replace(operand=cut(step.operand)) for step in steps)
        return Operands((x[:count],), None if out is None else out[:count], laid)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the call over the last axes; eps is the one kernels are verified with."""
        given: Any = operator(workload.operator)
        x, size = arrays["a"], workload.size
        p = Parameters(workload.operator, tuple(range(3, x.ndim)), value=given.value, ddof=size.get("ddof", 0))
        if given.maps:
            return LibraryCall((x,), p)
        swap = methodcaller("transpose", 0, 2, 1)
        return LibraryCall((x,), p, swap, swap)

    def library(
        self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Return the library's own function where there is one, else the textbook's in at least float32."""
        xp, x = device.xp, inputs[0]
        axis: Any = p.axes if len(p.axes) != 1 else p.axes[0]
        if p.operator == "elementwise":
            return x
        if p.operator in LIBRARY:
            function = getattr(xp, LIBRARY[p.operator])
            if p.operator in ("argmax", "argmin"):
                return _positions(xp, function, x, p, out)
            wide = {} if p.dtype is None else {"dtype": p.dtype}
            if p.operator in WITHOUT_NAN and x.dtype.kind not in "fciub":  # NumPy leaves NaN of bfloat16 in
                found = function(x.astype(np.float32), axis=axis, keepdims=p.keepdims, **wide)
                return Operands((), out, ()).give(found.astype(self.result(inputs, p).dtype, copy=False))
            return function(x, axis=axis, keepdims=p.keepdims, out=out, **wide)
        own = np.float64 if x.dtype.kind in "iub" else x.dtype
        dtype = np.promote_types(p.dtype or own, np.float32)
        dtype = np.promote_types(dtype, x.dtype) if x.dtype.kind == "c" else dtype
        return _compute(xp, x.astype(dtype, copy=False), axis, p, out)


class Positions(Rows):
    """argmax and argmin."""

    def check(self, result: Result, out: DeviceArray, steps: Steps) -> None:
        """Raise TypeError for an `out` that is not of integers; see Function.check."""
        super().check(result, out, steps)
        if out is not None and out.dtype.kind != "i":
            raise TypeError(f"out has dtype {out.dtype}, and positions are integers: expected int64")


class Scans(Rows):
    """Running sums and products, for which the library copies an array and scans the copy."""

    stands_in = True

    def lower(self, call: AbstractCall) -> KernelCall:
        """Lower the map; see Rows.lower."""
        (x,) = call.given
        x, out = (view._replace(dtype=SAME_BITS.get(view.dtype, view.dtype)) for view in (x, call.out))
        return super().lower(replace(call, inputs=(x,), out=out))

    def library(self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: Any = None) -> Any:
        """Return the library's own scan."""
        [axis] = p.axes
        return getattr(device.xp, p.operator)(inputs[0], axis=axis, dtype=p.dtype, out=out)


class Replaced(Rows):
    """Rows that `accelerate` computes in the place of a function of CuPy that launches several kernels: that function
    serves where none of ours does, and is what ours race.

    `compute` calls CuPy's function, for an array and a Parameters.
    """

    def __init__(self, name: str, one_call: bool, compute: Callable[[DeviceArray, Parameters], DeviceArray]):
        super().__init__(one_call)
        self.name, self._compute = f"rows of {name}", compute

    def by_library(
        self, device: Backend, operands: Operands, parameters: Any, result: Result, math: str | None
    ) -> DeviceArray:
        """Call CuPy's function."""
        return operands.give(self._compute(operands.inputs[0], parameters))


ONE_CALL, POSITIONS, COMPOSED, SCANNED = Rows(True), Positions(True), Rows(False), Scans(False)


def function_of(name: str) -> Rows:
    """Return the Function of an operator on rows."""
    if name in SCANS:
        return SCANNED
    return POSITIONS if name in ("argmax", "argmin") else ONE_CALL if name in LIBRARY else COMPOSED


def _without_nan(call: AbstractCall, x: View, p: Parameters) -> NeedsCopies:
    """Return the copy without NaN of a call that leaves them out, and what is done with it."""
    name, fill = WITHOUT_NAN[p.operator]
    words = f"a copy has {fill:g} for NaN"
    order = tuple(range(len(x.shape)))
    if p.operator == "nansum":
        return NeedsCopies(WithoutNan(x.dtype, order, fill=fill), words=words, parameters=replace(p, operator=name))
    dtype = np.promote_types(array_dtype(p.dtype or x.dtype), np.float32).name  # counts leave the range of 16 bits
    inner = Parameters(name, tuple(axis + 1 for axis in p.axes), p.keepdims)
    return NeedsCopies(
        WithoutNan(dtype, order, fill=fill, marks=p.operator == "nanmin"),
        words=words,
        parameters=inner,
        after=partial(use_marks, p.operator),
        out=contiguous((2, *call.out.shape), dtype),
    )


def _shape(shape: Sequence[int], p: Parameters) -> tuple[int, ...]:
    if is_map(p.operator):
        return tuple(shape)
    if p.keepdims:
        return tuple(1 if axis in p.axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in p.axes)


def _dtype(dtype: Dtype, p: Parameters) -> Dtype:
    if p.operator in ("argmax", "argmin"):
        return np.dtype(np.int64)
    if p.dtype is not None:
        return np.dtype(p.dtype)
    if dtype.kind == "c" and p.operator in ("l2_norm", "reduce_var"):
        return np.empty(0, dtype).real.dtype
    if dtype.kind in "iub" and p.operator in ("reduce_sum", "reduce_prod", "nansum", *SCANS):
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


def _positions(xp: Namespace, function: Any, x: DeviceArray, p: Parameters, out: DeviceArray) -> DeviceArray:
    """Compute argmax or argmin; over several axes, the position among all of them, in their order."""
    if len(p.axes) == 1 or (len(p.axes) == x.ndim and not p.keepdims):  # the library's own call makes no copy
        axis = p.axes[0] if len(p.axes) == 1 else None
        return function(x, axis=axis, out=out, keepdims=p.keepdims)
    kept = [axis for axis in range(x.ndim) if axis not in p.axes]
    moved = x.transpose(kept + list(p.axes)).reshape(*(x.shape[axis] for axis in kept), -1)
    found = function(moved, axis=-1).astype(np.int64, copy=False)
    return found.reshape(_shape(x.shape, p)) if p.keepdims else found


def _compute(xp: Namespace, x: DeviceArray, axis: Any, p: Parameters, out: DeviceArray = None) -> DeviceArray:
    """Return a reduction or a map by the library's operations, of which the last writes to `out` if it can."""
    if out is not None and out.dtype.kind not in "fc":
        out = None
    if not is_map(p.operator):
        return _reduce(xp, x, axis, p, out)
    keep = {"axis": axis, "keepdims": True}
    if p.operator in ("softmax", "log_softmax"):
        shifted = x - (x.real.max(**keep) if x.dtype.kind == "c" else x.max(**keep))
        powers = xp.exp(shifted)
        total = powers.sum(**keep)
        if p.operator == "softmax":
            return xp.divide(powers, total, out=out)
        return xp.subtract(shifted, xp.log(total), out=out)
    centred = x - x.mean(**keep) if p.operator == "layernorm" else x
    return xp.divide(centred, xp.sqrt(_squares(centred).mean(**keep) + p.value), out=out)


def _reduce(xp: Namespace, x: DeviceArray, axis: Any, p: Parameters, out: DeviceArray) -> DeviceArray:
    count, keepdims = math.prod(x.shape[each] for each in p.axes), p.keepdims
    if p.operator == "l2_norm":
        return xp.sqrt(_squares(x).sum(axis=axis, keepdims=keepdims), out=out)
    if p.operator == "reduce_var":
        total = _squares(x - x.mean(axis=axis, keepdims=True)).sum(axis=axis, keepdims=keepdims)
        if not p.root:
            return xp.divide(total, max(count - p.ddof, 0), out=out)
        return xp.sqrt(total / max(count - p.ddof, 0), out=out)
    top = (x.real if x.dtype.kind == "c" else x).max(axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0)  # the sum of nothing but -inf, or of inf and others, is that
    found = xp.log(xp.exp(x - top).sum(axis=axis, keepdims=keepdims))
    return xp.add(found, top if keepdims else top.reshape(found.shape), out=out)


def _squares(x: DeviceArray) -> DeviceArray:
    """Return the squared magnitudes, which are real."""
    return x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
