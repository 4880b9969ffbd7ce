"""Reductions, softmax and norms: public functions, named and shaped as CuPy's, SciPy's and PyTorch's.

Imports little.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from gensor_kernels.dispatch.calls.arguments import operations

from .current import current_runtime
from .interop import adopting


@adopting
def sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Sum over `axis` (all by default), as `cupy.sum`; float16 and bfloat16 are summed in float32 and rounded once.

    The result is int64 for integers, else of `a`'s dtype, or of `dtype`.
    """
    return _reduced("reduce_sum", a, axis, out, keepdims, dtype=dtype)


@adopting
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Mean over `axis` (all by default), as `cupy.mean`; float16 and bfloat16 are summed in float32."""
    return _reduced("reduce_mean", a, axis, out, keepdims, dtype=dtype)


@adopting
def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Product over `axis` (all by default), as `cupy.prod`."""
    return _reduced("reduce_prod", a, axis, out, keepdims, dtype=dtype)


@adopting
def max(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Maximum over `axis` (all by default), as `cupy.max`; NaN where there is one. ValueError for no elements."""
    return _reduced("reduce_max", a, axis, out, keepdims)


@adopting
def min(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Minimum over `axis` (all by default), as `cupy.min`; NaN where there is one. ValueError for no elements."""
    return _reduced("reduce_min", a, axis, out, keepdims)


@adopting
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
    """Position of the first maximum, or of the first NaN, over `axis` (the flattened array by default); int64."""
    return _reduced("argmax", a, axis, out, keepdims)


@adopting
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
    """Position of the first minimum, or of the first NaN, over `axis` (the flattened array by default); int64."""
    return _reduced("argmin", a, axis, out, keepdims)


@adopting
def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Variance over `axis` (all by default), as `cupy.var`: squares of deviations over count - `ddof`."""
    return _reduced("reduce_var", a, axis, out, keepdims, dtype=dtype, ddof=ddof)


@adopting
def norm(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Euclidean norm over `axis` (all by default): the square root of the sum of squares."""
    return _reduced("l2_norm", a, axis, None, keepdims)


@adopting
def logsumexp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """log(sum(exp(a))) over `axis` (all by default) without overflow, as `scipy.special.logsumexp`."""
    return _reduced("logsumexp", a, axis, None, keepdims)


@adopting
def softmax(x: Any, axis: Any = -1, out: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along `axis` without overflow, as `torch.nn.functional.softmax`; of `x`'s dtype."""
    return _mapped("softmax", x, axis, out)


@adopting
def log_softmax(x: Any, axis: Any = -1, out: Any = None) -> Any:
    """log(softmax(x)) along `axis`, as `torch.nn.functional.log_softmax`; of `x`'s dtype."""
    return _mapped("log_softmax", x, axis, out)


@adopting
def layer_norm(
    x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, out: Any = None
) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes, as `torch.nn.functional.layer_norm`.

    `normalized_shape` are the extents of these axes (or the one extent), which `weight` and `bias` have too. The
    arithmetic is float32 for float16 and bfloat16. ValueError where shapes do not fit.
    """
    return _normed("layernorm", x, normalized_shape, weight, bias, eps, out)


@adopting
def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None, *, out: Any = None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes, as `torch.nn.functional.rms_norm`.

    `eps` None is the spacing of `x`'s dtype at 1, as there. Everything else as in :func:`layer_norm`.
    """
    if eps is None:
        import numpy as np

        eps = 2.0**-7 if x.dtype.name == "bfloat16" else float(np.finfo(x.dtype).eps)
    return _normed("rmsnorm", x, normalized_shape, weight, None, eps, out)


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Sorted axes from 0 up; AxisError, a ValueError, as NumPy raises it."""
    import numpy as np

    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    module: Any = getattr(np.lib, "array_utils", None) or np.core.numeric  # type: ignore[attr-defined]
    return tuple(sorted(module.normalize_axis_tuple(tuple(operator.index(each) for each in given), rank)))


def _reduced(name: str, a: Any, axis: Any, out: Any, keepdims: bool, *, dtype: Any = None, ddof: int = 0) -> Any:
    from gensor_kernels.dispatch.functions.rows import COMPOSED, LIBRARY, ONE_CALL, Parameters
    from gensor_kernels.dispatch.plans.calls import call

    runtime = current_runtime()
    runtime.check(a, a, out, (), None)
    asked = None if dtype is None else _dtype_name(dtype)
    parameters = Parameters(name, _axes(axis, a.ndim), bool(keepdims), asked, None, ddof)
    return call(runtime, ONE_CALL if name in LIBRARY else COMPOSED, (a,), parameters, out)


def _dtype_name(dtype: Any) -> str:
    import numpy as np

    return np.dtype(dtype).name


def _mapped(name: str, x: Any, axis: Any, out: Any) -> Any:
    from gensor_kernels.dispatch.functions.rows import COMPOSED, Parameters
    from gensor_kernels.dispatch.plans.calls import call

    runtime = current_runtime()
    runtime.check(x, x, out, (), None)
    return call(runtime, COMPOSED, (x,), Parameters(name, _axes(axis, x.ndim)), out)


def _normed(name: str, x: Any, shape: Any, weight: Any, bias: Any, eps: float, out: Any) -> Any:
    from gensor_kernels.dispatch.functions.rows import COMPOSED, Parameters
    from gensor_kernels.dispatch.plans.calls import call

    runtime = current_runtime()
    runtime.check(x, x, out, (), None)
    shape = tuple(shape) if isinstance(shape, Iterable) else (operator.index(shape),)
    rank = len(shape)
    if not shape or tuple(x.shape[x.ndim - rank :]) != shape:
        raise ValueError(f"normalized_shape {shape} is not the last extents of {tuple(x.shape)}")
    for what, operand in (("weight", weight), ("bias", bias)):
        if operand is not None and tuple(operand.shape) != shape:
            raise ValueError(f"{what} has shape {tuple(operand.shape)}, normalized_shape is {shape}")
    steps = operations(epilogue=[(step, each) for step, each in (("mul", weight), ("bias", bias)) if each is not None])
    axes = tuple(range(x.ndim - rank, x.ndim))
    return call(runtime, COMPOSED, (x,), Parameters(name, axes, value=float(eps)), out, steps)
