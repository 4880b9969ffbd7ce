"""Reductions: public functions, named and shaped as in CuPy and SciPy. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.dispatch.calls.whole import real

from .current import current_runtime
from .rows import named_axes, reduce, reduction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike


@reduction
def sum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> DeviceArray:
    """Sum the elements over axes.

    Parameters
    ----------
    dtype : dtype, optional
        Dtype of the result; by default int64 for integers (uint64 for
        unsigned), else the dtype of `a`.

    Returns
    -------
    array
        Sums, or `out`.

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
    return reduce("reduce_sum", a, axis, out, keepdims, dtype=dtype)


@reduction
def mean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> DeviceArray:
    """Average the elements over axes.

    Returns
    -------
    array
        Averages, or `out`.

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
    return reduce("reduce_mean", a, axis, out, keepdims, dtype=dtype)


@reduction
def prod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> DeviceArray:
    """Multiply the elements over axes.

    Parameters
    ----------
    dtype : dtype, optional
        Dtype of the result, with the default of `sum`.

    Returns
    -------
    array
        Products, or `out`.

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
    return reduce("reduce_prod", a, axis, out, keepdims, dtype=dtype)


@reduction
def max(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, keepdims: bool = False
) -> DeviceArray:
    """Take the maximum over axes.

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
    return reduce("reduce_max", a, axis, out, keepdims)


@reduction
def min(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, keepdims: bool = False
) -> DeviceArray:
    """Take the minimum over axes.

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
    return reduce("reduce_min", a, axis, out, keepdims)


@reduction
def argmax(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, *, keepdims: bool = False
) -> DeviceArray:
    """Find the position of the maximum over axes.

    The signature is that of `cupy.argmax`, without the `dtype` before `out`, and with
    `keepdims` as a keyword, as in NumPy. `axis` may name several axes.

    Parameters
    ----------
    axis : int or sequence of int, optional
        Axes to reduce; by default all axes. A position counts through
        all reduced axes in their order.
    out : array, optional
        Array of signed integers that receives the result.

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
    return reduce("argmax", a, axis, out, keepdims)


@reduction
def argmin(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, *, keepdims: bool = False
) -> DeviceArray:
    """Find the position of the minimum over axes.

    The signature is that of `cupy.argmin`, without the `dtype` before `out`, and with
    `keepdims` as a keyword, as in NumPy. `axis` may name several axes.

    Parameters
    ----------
    out : array, optional
        Array of signed integers that receives the result.

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
    return reduce("argmin", a, axis, out, keepdims)


@reduction
def var(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> DeviceArray:
    """Compute the variance over axes.

    The variance is the sum of squared deviations from the mean, divided by
    max(count - `ddof`, 0): inf or NaN where `ddof` is the count or more. Deviations of
    complex numbers are their magnitudes.

    Parameters
    ----------
    ddof : float, default 0
        Number that is taken off the count of elements.

    Returns
    -------
    array
        Variances, which are real, or `out`.

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
    return reduce("reduce_var", a, axis, out, keepdims, dtype=dtype, ddof=ddof)


def _ddof(given: Any) -> float:
    """Return `ddof` as a number; TypeError and ValueError for one that is none."""
    number = given if type(given) is int else real("ddof", given)
    if number != number:
        raise ValueError("ddof must be a number, not nan")
    return number


@reduction
def std(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> DeviceArray:
    """Compute the standard deviation over axes: the square root of `var`.

    Parameters
    ----------
    ddof : float, default 0
        Number that is taken off the count of elements.

    Returns
    -------
    array
        Standard deviations, which are real, or `out`.

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
    return reduce("reduce_std", a, axis, out, keepdims, dtype=dtype, ddof=_ddof(ddof))


@reduction
def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    out: ArrayLike | None = None,
) -> DeviceArray:
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
        return reduce("l2_norm", x, axis, out, keepdims)
    from gensor_kernels.dispatch.plans import composed

    runtime = current_runtime()
    runtime.require("x", x)
    return composed.norm(runtime, x, ord, named_axes(axis), bool(keepdims), out)


@reduction
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Compute `log(sum(b * exp(a)))` over axes without overflow.

    The signature is that of `scipy.special.logsumexp`, with the keyword `out`. `a` and
    `b` are arrays, not numbers.

    Parameters
    ----------
    b : array, optional
        Factors of the exponentials, of any sign, by default 1. It broadcasts with `a`.
        Elements of `a` where it is 0 have no effect.
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
        return reduce("logsumexp", a, axis, out, keepdims)
    from gensor_kernels.dispatch.plans import composed

    runtime = current_runtime()
    runtime.require("a", a)
    return composed.logsumexp(runtime, a, b, named_axes(axis), bool(keepdims), bool(return_sign), out)
