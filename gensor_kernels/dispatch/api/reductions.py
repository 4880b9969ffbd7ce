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
    """Sum the elements over axes.

    The signature is that of `cupy.sum`.

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
    """Average the elements over axes.

    The signature is that of `cupy.mean`.

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
    """Multiply the elements over axes.

    The signature is that of `cupy.prod`.

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
    """Take the maximum over axes.

    The signature is that of `cupy.max`.

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
    """Take the minimum over axes.

    The signature is that of `cupy.min`.

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
    """Find the position of the maximum over axes.

    The signature is that of `cupy.argmax`, without the `dtype` before `out`, and with
    `keepdims` as a keyword, as in NumPy. `axis` may name several axes.

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
    """Find the position of the minimum over axes.

    The signature is that of `cupy.argmin`, without the `dtype` before `out`, and with
    `keepdims` as a keyword, as in NumPy. `axis` may name several axes.

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
    """Compute the variance over axes.

    The variance is the sum of squared deviations from the mean, divided by
    max(count - `ddof`, 0): inf or NaN where `ddof` is the count or more. Deviations of
    complex numbers are their magnitudes.

    The signature is that of `cupy.var`.

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
    ddof = ddof if type(ddof) is int else _ddof(ddof)
    return _reduce("reduce_var", a, axis, out, keepdims, dtype=dtype, ddof=ddof)


def _ddof(given: Any) -> float:
    """Return `ddof` as a number; TypeError and ValueError for one that is none."""
    number = given if type(given) is int else real("ddof", given)
    if number != number:
        raise ValueError("ddof must be a number, not nan")
    return number


@public
def std(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    """Compute the standard deviation over axes: the square root of `var`.

    The signature is that of `cupy.std`.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    dtype : dtype, optional
        Dtype of the result, with the default of `var`.
    out : array, optional
        Array that receives the result.
    ddof : float, default 0
        Number that is taken off the count of elements.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.

    Returns
    -------
    array
        Standard deviations, which are real, or `out`.

    Raises
    ------
    ValueError, TypeError
        As `var`.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64; the square root is an
    operation on the result. The variance of float16 and bfloat16 stays in float32, so
    that it neither overflows nor underflows.

    Examples
    --------
    >>> a = np.array([[1, 3], [4, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.std(a, axis=1)
    array([1., 2.], dtype=float32)
    """
    return _reduce("reduce_std", a, axis, out, keepdims, dtype=dtype, ddof=_ddof(ddof))


@public
def nansum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> Any:
    """Sum the elements over axes that are not NaN.

    The signature is that of `cupy.nansum`.

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
        Sums, or `out`; 0 where all elements are NaN.

    Raises
    ------
    ValueError, TypeError
        As `sum`.

    Notes
    -----
    Kernels sum a copy in which 0 stands for NaN. With this copy they must be faster
    than `cupy.nansum` in a race before they serve.

    Examples
    --------
    >>> a = np.array([[1, np.nan, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.nansum(a, axis=1)
    array([ 4., 18.], dtype=float32)
    """
    name = "reduce_sum" if getattr(getattr(a, "dtype", None), "kind", "") in ("i", "u", "b") else "nansum"
    return _reduce(name, a, axis, out, keepdims, dtype=dtype)


@public
def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    out: ArrayLike | None = None,
) -> Any:
    """Compute the norm of vectors or matrices.

    The signature is that of `cupy.linalg.norm`, with the keyword `out`. Without `ord`,
    `axis` may name any number of axes.

    Parameters
    ----------
    x : array
        Input.
    ord : {None, number, inf, -inf, "fro", "nuc"}, optional
        Order of the norm. By default the square root of the sum of squared magnitudes,
        over all axes that `axis` names. For vectors: inf is the largest magnitude, -inf
        the smallest, 0 the number of elements that are not 0, and any other order
        `sum(abs(x) ** ord) ** (1 / ord)`. For matrices: 1 is the largest sum of
        magnitudes of a column, inf that of a row, -1 and -inf the smallest; 2 is the
        largest singular value, -2 the smallest, "nuc" their sum.
    axis : int or sequence of int, optional
        Axis of vectors, or axes (row, column) of matrices; by default all axes.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array
        Norms, or `out`, in the dtype of `x` (float64 for integers); of complex numbers in
        the dtype of their real parts.

    Raises
    ------
    ValueError
        If an axis does not exist, if no norm of this order is over that number of axes,
        or if `out` has another shape.
    TypeError
        If `x` is not an array of this device, or `out` is of another kind.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64: the default and order 2 of
    vectors in one kernel; other orders are a reduction of magnitudes, which CuPy
    computes. CuPy computes singular values.

    Examples
    --------
    >>> x = np.array([[3, -4], [6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.norm(x, axis=1), gensor_kernels.norm(x, 1, axis=1)
    (array([ 5., 10.], dtype=float32), array([ 7., 14.], dtype=float32))
    """
    if ord is None:
        return _reduce("l2_norm", x, axis, out, keepdims)
    from gensor_kernels.dispatch.plans import composed

    runtime = current_runtime()
    runtime.require("x", x)
    return composed.norm(runtime, x, ord, named_axes(axis), bool(keepdims), out)


@public
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    out: ArrayLike | None = None,
) -> Any:
    """Compute `log(sum(b * exp(a)))` over axes without overflow.

    The signature is that of `scipy.special.logsumexp`, with the keyword `out`. `a` and
    `b` are arrays, not numbers.

    Parameters
    ----------
    a : array
        Input.
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes.
    b : array, optional
        Factors of the exponentials, of any sign, by default 1. It broadcasts with `a`.
        Elements of `a` where it is 0 have no effect.
    keepdims : bool, default False
        Whether reduced axes stay, with one element.
    return_sign : bool, default False
        Whether the result is the logarithm of the magnitude of the sum, and its sign.
        Without it the logarithm of a negative sum is NaN.
    out : array, optional
        Array that receives the logarithms.

    Returns
    -------
    array, or pair of arrays
        Logarithms, in the dtype of `a` (with `b`, the promoted one; float64 for
        integers), or `out`; with `return_sign` also signs: 1, 0 or -1, of complex numbers
        the sum over its magnitude.

    Raises
    ------
    ValueError
        If an axis does not exist, if a reduced axis has no elements, if `b` does not
        broadcast with `a`, or if `out` has another shape.
    TypeError
        If `a` or `b` is not an array of this device, or `out` is of another kind.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64. With `b` they compute maxima
    and sums, between which CuPy computes the terms.

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
    if b is None and not return_sign:
        return _reduce("logsumexp", a, axis, out, keepdims)
    from gensor_kernels.dispatch.plans import composed

    runtime = current_runtime()
    runtime.require("a", a)
    return composed.logsumexp(runtime, a, b, named_axes(axis), bool(keepdims), bool(return_sign), out)


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
    root = name == "reduce_std"
    name = "reduce_var" if root else name
    return function_of(name), Parameters(name, axes, keepdims, dtype, value, ddof, root)


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
