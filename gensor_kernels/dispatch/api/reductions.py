"""Reductions: public functions, named and shaped as in CuPy and SciPy. Imports little."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import named_dtype
from gensor_kernels.dispatch.calls.whole import real

from .current import current_runtime
from .interop import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.functions.rows import Parameters, Rows


@public
def sum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> Any:
    """Sum the elements over axes, as `cupy.sum` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    dtype : dtype, optional
        Dtype of the result; by default int64 for integers (uint64 for
        unsigned), else the dtype of `a`.
    out : array, optional
        Array that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Sums, or `out`.

    Raises
    ------
    ValueError
        If an axis does not exist.
    TypeError
        If `a` is not an array of this device.

    Notes
    -----
    Kernels serve float16, bfloat16, float32, float64, int8 and int32.
    float16 and bfloat16 are summed in float32 and rounded once.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.sum(a, axis=1)
    array([ 6., 18.], dtype=float32)
    """
    return _reduce("reduce_sum", a, axis, out, keepdims, dtype=dtype)


@public
def mean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> Any:
    """Average the elements over axes, as `cupy.mean` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    dtype : dtype, optional
        Dtype of the result; by default float64 for integers, else the dtype of `a`.
    out : array, optional
        Array that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Averages, or `out`.

    Raises
    ------
    ValueError
        If an axis does not exist.
    TypeError
        If `a` is not an array of this device.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64.
    float16 and bfloat16 are summed in float32 and rounded once.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.mean(a, axis=1)
    array([2., 6.], dtype=float32)
    """
    return _reduce("reduce_mean", a, axis, out, keepdims, dtype=dtype)


@public
def prod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> Any:
    """Multiply the elements over axes, as `cupy.prod` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    dtype : dtype, optional
        Dtype of the result, with the default of `sum`.
    out : array, optional
        Array that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Products, or `out`.

    Raises
    ------
    ValueError, TypeError
        As `sum`.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.prod(a, axis=1)
    array([  6., 192.], dtype=float32)
    """
    return _reduce("reduce_prod", a, axis, out, keepdims, dtype=dtype)


@public
def max(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, keepdims: bool = False
) -> Any:
    """Take the maximum over axes, as `cupy.max` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    out : array, optional
        Array that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Maxima, or `out`, in the dtype of `a`. A NaN among the elements gives NaN.

    Raises
    ------
    ValueError
        If an axis does not exist, or a reduced axis has no elements.
    TypeError
        If `a` is not an array of this device.

    Notes
    -----
    Kernels serve float16, bfloat16, float32, float64, int8 and int32.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.max(a, axis=1)
    array([3., 8.], dtype=float32)
    """
    return _reduce("reduce_max", a, axis, out, keepdims)


@public
def min(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, keepdims: bool = False
) -> Any:
    """Take the minimum over axes, as `cupy.min` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce, as in `max`.
    out : array, optional
        Array that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Minima, or `out`, in the dtype of `a`. A NaN among the elements gives NaN.

    Raises
    ------
    ValueError, TypeError
        As `max`.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.min(a, axis=1)
    array([1., 4.], dtype=float32)
    """
    return _reduce("reduce_min", a, axis, out, keepdims)


@public
def argmax(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, *, keepdims: bool = False
) -> Any:
    """Find the position of the maximum over axes, as `cupy.argmax` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes. A position counts through
        all reduced axes in their order.
    out : array, optional
        Array of signed integers that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array of int64
        Positions of the first maximum, or of the first NaN; or `out`.

    Raises
    ------
    ValueError
        If an axis does not exist, or a reduced axis has no elements.
    TypeError
        If `a` is not an array of this device, or `out` is not of integers.

    Notes
    -----
    Kernels serve float16, bfloat16, float32, float64, int8 and int32.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.argmax(a, axis=1)
    array([2, 2])
    """
    return _reduce("argmax", a, axis, out, keepdims)


@public
def argmin(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, *, keepdims: bool = False
) -> Any:
    """Find the position of the minimum over axes, as `cupy.argmin` does.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce, as in `argmax`.
    out : array, optional
        Array of signed integers that receives the result.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array of int64
        Positions of the first minimum, or of the first NaN; or `out`.

    Raises
    ------
    ValueError, TypeError
        As `argmax`.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.argmin(a, axis=1)
    array([0, 0])
    """
    return _reduce("argmin", a, axis, out, keepdims)


@public
def var(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    """Compute the variance over axes, as `cupy.var` does.

    The variance is the sum of squared deviations from the mean, divided by
    max(count - `ddof`, 0): inf or NaN where `ddof` is the count or more. Deviations of
    complex numbers are their magnitudes.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    dtype : dtype, optional
        Dtype of the result; by default float64 for integers, else the dtype of `a`.
    out : array, optional
        Array that receives the result.
    ddof : float, default 0
        Number that is taken off the count of elements.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Variances, which are real, or `out`.

    Raises
    ------
    ValueError
        If an axis does not exist.
    TypeError
        If `a` is not an array of this device.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64.

    References
    ----------
    .. [1] B. P. Welford, "Note on a Method for Calculating Corrected Sums of Squares
       and Products", Technometrics 4 (1962).

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.var(a, axis=1, ddof=1)
    array([1., 4.], dtype=float32)
    """
    if type(ddof) is not int:
        ddof = real("ddof", ddof)
        if ddof != ddof:
            raise ValueError("ddof must be a number, not nan")
    return _reduce("reduce_var", a, axis, out, keepdims, dtype=dtype, ddof=ddof)


@public
def norm(a: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """Compute the Euclidean norm over axes.

    The norm is the square root of the sum of squared magnitudes.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Norms, in the dtype of `a`; of complex numbers in the dtype of their real parts.

    Raises
    ------
    ValueError
        If an axis does not exist.
    TypeError
        If `a` is not an array of this device.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64.

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.norm(np.array([[3, 4], [6, 8]], "float32"), axis=1)
    array([ 5., 10.], dtype=float32)
    """
    return _reduce("l2_norm", a, axis, None, keepdims)


@public
def logsumexp(a: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """Compute `log(sum(exp(a)))` over axes without overflow.

    The meaning is that of `scipy.special.logsumexp`.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Logarithms, in the dtype of `a`.

    Raises
    ------
    ValueError
        If an axis does not exist, or a reduced axis has no elements.
    TypeError
        If `a` is not an array of this device.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64.

    References
    ----------
    .. [1] P. Blanchard, D. J. Higham and N. J. Higham, "Accurately computing the
       log-sum-exp and softmax functions", IMA J. Numer. Anal. 41 (2021).

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.logsumexp(a * 1000, axis=1)
    array([3000., 8000.], dtype=float32)
    """
    return _reduce("logsumexp", a, axis, None, keepdims)


def named_axes(axis: Any) -> int | tuple[int, ...] | None:
    """Return axes as integers, which can be hashed; raise TypeError for others."""
    if axis is None or type(axis) is int:
        return axis
    try:
        return operator.index(axis)
    except TypeError:
        return tuple(map(operator.index, axis))


@lru_cache(maxsize=4096, typed=True)
def rows_parameters(
    name: str,
    axis: int | tuple[int, ...] | None,
    rank: int,
    keepdims: bool = False,
    dtype: str | None = None,
    value: float | None = None,
    ddof: float = 0,
) -> tuple[Rows, Parameters]:
    """Return the Function of an operator on rows, and its parameters; cached, because every call needs them.

    Raises AxisError, a ValueError, as NumPy does.
    """
    from gensor_kernels.dispatch.functions.rows import Parameters, function_of
    from gensor_kernels.operators.rows.views import normal_axes

    axes = normal_axes(range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,), rank)
    return function_of(name), Parameters(name, axes, keepdims, dtype, value, ddof)


def _reduce(
    name: str,
    a: DeviceArray,
    axis: Any,
    out: DeviceArray,
    keepdims: bool,
    *,
    dtype: DTypeLike | None = None,
    ddof: float = 0,
) -> Any:
    runtime = current_runtime()
    runtime.require("a", a)
    dtype_name = None if dtype is None else named_dtype(dtype).name
    function, parameters = rows_parameters(name, named_axes(axis), a.ndim, bool(keepdims), dtype_name, ddof=ddof)
    return runtime.serve(function, (a,), parameters, out)
