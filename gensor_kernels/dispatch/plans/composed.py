"""Norms of any order and weighted log-sum-exp: the array library's operations before and after reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.functions.base import Result
from gensor_kernels.dispatch.functions.rows import COMPOSED, Parameters, function_of
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.operators.rows.views import normal_axes
from gensor_kernels.operators.types.workload import normal_axis
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gensor_kernels.dispatch.calls.array import DeviceArray

    from .runtime import Runtime

Axes = tuple[int, ...]
#: Orders of norms of matrices that singular values give, and those that sums of rows or columns give: (the axis that is
#: summed, the reduction of the sums).
SINGULAR = (2, -2, "nuc")
SUMS = {1: (0, "max"), -1: (0, "min"), math.inf: (1, "max"), -math.inf: (1, "min")}


def norm(
    runtime: Runtime, x: DeviceArray, order: Any, axis: int | Axes | None, keepdims: bool, out: DeviceArray
) -> DeviceArray:
    """Compute `cupy.linalg.norm(x, order, axis, keepdims)` of an order that is given."""
    _require_out(runtime, out)
    given = _axes_of(axis, x.ndim)
    axes = tuple(normal_axis(each, x.ndim) for each in given)
    if len(axes) == 1:
        return _norm_of_vectors(runtime, x, order, axes, keepdims, out)
    if len(axes) != 2:
        raise ValueError(f"a norm of the order {shown(order)} is over one axis or two, not {len(axes)}")
    if axes[0] == axes[1]:
        raise ValueError(f"a repeated axis in the axes {given}")
    if order in ("fro", "f"):
        return _reduce(runtime, "l2_norm", x, axes, keepdims, out)
    if isinstance(order, str) and order != "nuc":
        raise ValueError(f"Invalid norm order for matrices: {shown(order)}")
    if order in SINGULAR:
        if asking.get():
            raise Question(reason="singular values are computed by the array library")
        return _give(runtime, runtime.device.xp.linalg.norm(x, order, axes, keepdims), out)
    if order not in SUMS:
        raise ValueError(f"Invalid norm order for matrices: {shown(order)}")
    summed, name = SUMS[order]
    sums = _reduce(runtime, "reduce_sum", _magnitudes(runtime, x), (axes[summed],), True, None)
    return _reduce(runtime, f"reduce_{name}", sums, axes, keepdims, out)


def _norm_of_vectors(
    runtime: Runtime, x: DeviceArray, order: Any, axes: Axes, keepdims: bool, out: DeviceArray
) -> DeviceArray:
    try:
        power = float(order)
    except (TypeError, ValueError):
        raise ValueError(f"Invalid norm order for vectors: {shown(order)}") from None
    if power == 2:
        return _reduce(runtime, "l2_norm", x, axes, keepdims, out)
    if power == 0:
        return _reduce(runtime, "reduce_sum", _before(runtime, x, lambda: _wide(x) != 0), axes, keepdims, out)
    if power == 1 or math.isinf(power):
        name = "reduce_sum" if power == 1 else "reduce_max" if power > 0 else "reduce_min"
        return _reduce(runtime, name, _magnitudes(runtime, x), axes, keepdims, out)
    wide = np.promote_types(_real(x.dtype), np.float32)  # powers leave the range of 16 bits
    powers = _magnitudes(runtime, x, wide)
    if not asking.get():
        powers **= power
    sums = _reduce(runtime, "reduce_sum", powers, axes, keepdims, None)
    sums **= 1 / power
    return _give(runtime, sums.astype(_real(x.dtype), copy=False), out)


def logsumexp(
    runtime: Runtime,
    a: DeviceArray,
    b: DeviceArray,
    axis: int | Axes | None,
    keepdims: bool,
    return_sign: bool,
    out: DeviceArray,
) -> DeviceArray:
    """Compute `scipy.special.logsumexp` with weights or a sign: with our maxima and sums."""
    xp = runtime.device.xp
    _require_out(runtime, out)
    if b is None and a.dtype.kind != "c":
        found = _reduce(runtime, "logsumexp", a, _axes_of(axis, a.ndim), keepdims, out)
        wide = _wide(found)
        return found, xp.where(xp.isnan(wide), wide, wide != -np.inf).astype(found.dtype, copy=False)
    if b is None:
        b = xp.ones((), a.real.dtype)
    runtime.require("b", b)
    dtype = np.promote_types(_float(a.dtype), _float(b.dtype))
    wide, shape = np.promote_types(dtype, np.float32), np.broadcast_shapes(a.shape, b.shape)
    axes = _axes_of(axis, len(shape))
    if asking.get():
        return _reduce(runtime, "reduce_sum", runtime.device.empty(shape, wide), axes, keepdims, None)
    a, b = (xp.broadcast_to(each.astype(wide, copy=False), shape) for each in (a, b))
    a = xp.where(b == 0, wide.type(-np.inf), a)  # no effect, whatever stands there
    top = _reduce(runtime, "reduce_max", a.real if wide.kind == "c" else a, axes, True, None)
    top = xp.where(xp.isfinite(top), top, 0)
    terms = a - top
    xp.exp(terms, out=terms)
    terms *= b
    total = _reduce(runtime, "reduce_sum", terms, axes, keepdims, None)
    sign = None
    if return_sign:
        size = xp.abs(total)
        sign = total / xp.where(size == 0, 1, size) if wide.kind == "c" else xp.sign(total)
        total = size
    found = xp.log(total)
    found = _give(runtime, (found + top.reshape(found.shape)).astype(_real(dtype) if return_sign else dtype), out)
    return found if sign is None else (found, sign.astype(dtype, copy=False))


def _reduce(
    runtime: Runtime, name: str, x: DeviceArray, axes: Sequence[int], keepdims: bool, out: DeviceArray
) -> DeviceArray:
    return runtime.serve(function_of(name), (x,), Parameters(name, normal_axes(axes, x.ndim), keepdims), out)


def _before(
    runtime: Runtime, x: DeviceArray, compute: Callable[[], DeviceArray], dtype: DTypeLike | None = None
) -> DeviceArray:
    """Return what is computed of an array before a reduction, as its real dtype; in a dry run an array like it."""
    dtype = _real(x.dtype) if dtype is None else dtype
    return runtime.device.empty(tuple(x.shape), dtype) if asking.get() else compute().astype(dtype, copy=False)


def _magnitudes(runtime: Runtime, x: DeviceArray, dtype: DTypeLike | None = None) -> DeviceArray:
    """Return absolute values in a new array, of `dtype` or the real dtype of the array."""
    wide = np.promote_types(_wide_dtype(x.dtype), dtype or x.dtype)
    return _before(runtime, x, lambda: runtime.device.xp.abs(x.astype(wide, copy=False)), dtype)


def _wide(x: DeviceArray) -> DeviceArray:
    return x.astype(_wide_dtype(x.dtype), copy=False)


def _wide_dtype(dtype: Dtype) -> Dtype:
    """Return the dtype of the library's functions: it has none of bfloat16."""
    return np.dtype(np.float32) if dtype.name == "bfloat16" else _float(dtype)


def _float(dtype: Dtype) -> Dtype:
    """Return the dtype that an array is computed in: float64 for integers."""
    return np.dtype(np.float64) if dtype.kind in "iub" else dtype


def _real(dtype: Dtype) -> Dtype:
    """Return the dtype of magnitudes."""
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else _float(dtype)


def _axes_of(axis: int | Axes | None, rank: int) -> Axes:
    return tuple(range(rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)


def _require_out(runtime: Runtime, out: DeviceArray) -> None:
    """Raise TypeError for an `out` that is no array of this device."""
    if out is not None:
        runtime.require("out", out)


def _give(runtime: Runtime, value: DeviceArray, out: DeviceArray) -> DeviceArray:
    """Return a result, in `out` where there is one that fits."""
    if out is not None:
        COMPOSED.check(Result(tuple(value.shape), value.dtype), out, ())
    return Operands((), out, ()).give(value)
