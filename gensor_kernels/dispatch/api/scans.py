"""Running sums and products: public functions with the signatures of CuPy's. Imports little."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import named_dtype

from .current import current_runtime
from .interop import public
from .rows import rows_parameters

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray


@public
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: ArrayLike | None = None) -> Any:
    """Sum each element and those before it along an axis.

    The signature is that of `cupy.cumsum`.

    Parameters
    ----------
    a : array
        Input.
    axis : int, optional
        Axis along which elements are summed; by default `a` is flattened first.
    dtype : dtype, optional
        Dtype of the result; by default int64 for integers (uint64 for
        unsigned), else the dtype of `a`.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array
        Sums in the shape of `a`, with one axis by default, or `out`.

    Raises
    ------
    ValueError
        If the axis does not exist, or if `out` has another shape.
    TypeError
        If `a` is not an array of this device, or `out` is of another kind.

    Notes
    -----
    Kernels serve float16, bfloat16, float32, float64, bool, int8, int32 and int64, with
    the same bits in every run: they join elements in one order. float16 and bfloat16 are
    summed in float32, and each sum is rounded once.

    References
    ----------
    .. [1] G. E. Blelloch, "Prefix sums and their applications", technical report
       CMU-CS-90-190, Carnegie Mellon University (1990).

    Examples
    --------
    >>> a = np.array([[1, 2, 3], [4, 6, 8]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.cumsum(a, axis=1)
    array([[ 1.,  3.,  6.],
           [ 4., 10., 18.]], dtype=float32)
    """
    return _scan("cumsum", a, axis, dtype, out)


@public
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: ArrayLike | None = None) -> Any:
    """Multiply each element and those before it along an axis.

    The signature is that of `cupy.cumprod`.

    Parameters
    ----------
    a : array
        Input.
    axis : int, optional
        Axis along which elements are multiplied; by default `a` is flattened first.
    dtype : dtype, optional
        Dtype of the result, with the default of `cumsum`.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array
        Products in the shape of `a`, with one axis by default, or `out`.

    Raises
    ------
    ValueError
        If the axis does not exist, or if `out` has another shape.
    TypeError
        If `a` is not an array of this device, or `out` is of another kind.

    Notes
    -----
    Kernels serve float16, bfloat16, float32 and float64.

    Examples
    --------
    >>> a = np.array([1, 2, 3, 4], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.cumprod(a)
    array([ 1.,  2.,  6., 24.], dtype=float32)
    """
    return _scan("cumprod", a, axis, dtype, out)


def _scan(name: str, a: DeviceArray, axis: int | None, dtype: DTypeLike | None, out: DeviceArray) -> Any:
    """Serve a scan as its public function was called."""
    runtime = current_runtime()
    runtime.require("a", a)
    if axis is None:
        a, axis = (a if a.ndim == 1 else a.reshape(-1)), 0
    dtype_name = None if dtype is None else named_dtype(dtype).name
    function, parameters = rows_parameters(name, operator.index(axis), a.ndim, False, dtype_name)
    return runtime.serve(function, (a,), parameters, out)
