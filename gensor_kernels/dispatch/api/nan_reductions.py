"""Reductions of the elements that are not NaN: public functions, named and shaped as in CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.arrays import DeviceArray

from .rows import reduce, reduction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike


@reduction
def nansum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> DeviceArray:
    """Sum the elements over axes that are not NaN.

    Parameters
    ----------
    dtype : dtype, optional
        Dtype of the result, with the default of `sum`.

    Returns
    -------
    array
        Sums, or `out`; 0 where all elements are NaN.

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
    return reduce("reduce_sum" if _is_whole(a) else "nansum", a, axis, out, keepdims, dtype=dtype)


@reduction
def nanmean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    keepdims: bool = False,
) -> DeviceArray:
    """Average the elements over axes that are not NaN.

    Returns
    -------
    array
        Averages, or `out`; NaN where all elements are NaN.

    Notes
    -----
    Kernels serve floats as in `nansum`: the second half of their copy counts elements.

    Examples
    --------
    >>> a = np.array([[1, np.nan, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.nanmean(a, axis=1)
    array([2., 6.], dtype=float32)
    """
    return reduce("reduce_mean" if _is_whole(a) else "nanmean", a, axis, out, keepdims, dtype=dtype)


@reduction
def nanmax(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, keepdims: bool = False
) -> DeviceArray:
    """Take the maximum over axes of the elements that are not NaN.

    Returns
    -------
    array
        Maxima, or `out`, in the dtype of `a`; NaN where all elements are NaN.

    Raises
    ------
    ValueError, TypeError
        As `max`.

    Warns
    -----
    RuntimeWarning
        If the result has a NaN. To see that takes CuPy, and this function, a wait for
        the GPU; inside graph capture there is none, nor a warning.

    Notes
    -----
    Kernels serve floats as in `nansum`: the second half of their copy says which
    elements count.

    Examples
    --------
    >>> a = np.array([[1, np.nan, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.nanmax(a, axis=1)
    array([3., 8.], dtype=float32)
    """
    return reduce("reduce_max" if _is_whole(a) else "nanmax", a, axis, out, keepdims)


@reduction
def nanmin(
    a: ArrayLike, axis: int | Sequence[int] | None = None, out: ArrayLike | None = None, keepdims: bool = False
) -> DeviceArray:
    """Take the minimum over axes of the elements that are not NaN.

    Returns
    -------
    array
        Minima, or `out`, in the dtype of `a`; NaN where all elements are NaN.

    Raises
    ------
    ValueError, TypeError
        As `max`.

    Warns
    -----
    RuntimeWarning
        As `nanmax`.

    Examples
    --------
    >>> a = np.array([[1, np.nan, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.nanmin(a, axis=1)
    array([1., 4.], dtype=float32)
    """
    return reduce("reduce_min" if _is_whole(a) else "nanmin", a, axis, out, keepdims)


def _is_whole(a: DeviceArray) -> bool:
    """Return whether an array's dtype has no NaN."""
    return getattr(getattr(a, "dtype", None), "kind", "") in ("i", "u", "b")
