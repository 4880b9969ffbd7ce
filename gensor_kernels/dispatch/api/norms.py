"""Maps of rows: softmax and norms, with the arguments of torch.nn.functional, running sums and products, with those of
CuPy, and element-wise steps. Imports little."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import Operation, named_dtype, plain_operations
from gensor_kernels.dispatch.calls.whole import real
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import like, public
from .rows import named_axes, reduction, rows_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray, Items


@public
def softmax(x: ArrayLike, axis: int | Sequence[int] | None = -1, out: ArrayLike | None = None) -> DeviceArray:
    """Compute `exp(x) / sum(exp(x))` along an axis without overflow.

    The signature is that of `torch.nn.functional.softmax`, with `axis` in the place of
    `dim`, and `out` in that of `dtype`. The default of `axis` is -1;
    `scipy.special.softmax` takes all axes together by default, as `axis=None` does
    here.

    Parameters
    ----------
    x : array
        Input.
    axis : int, default -1
        Axis along which elements sum to one.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array, shape of `x`
        A new array with the dtype of `x` (float64 for integers), or `out`.

    Raises
    ------
    ValueError
        If the axis does not exist.
    TypeError
        If `x` is not an array of this device.

    References
    ----------
    .. [1] P. Blanchard, D. J. Higham and N. J. Higham, "Accurately computing the
       log-sum-exp and softmax functions", IMA J. Numer. Anal. 41 (2021).

    Examples
    --------
    >>> x = np.array([[0, 0], [1000, 0]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.softmax(x)
    array([[0.5, 0.5],
           [1. , 0. ]], dtype=float32)
    """
    return _softmax("softmax", x, axis, out)


@like(softmax)
def log_softmax(x: ArrayLike, axis: int | Sequence[int] | None = -1, out: ArrayLike | None = None) -> DeviceArray:
    """Compute the logarithm of `softmax` along an axis without overflow.

    The signature is that of `torch.nn.functional.log_softmax`, with `axis` in the place
    of `dim`, and `out` in that of `dtype`. The default of `axis` is -1;
    `scipy.special.log_softmax` takes all axes together by default, as `axis=None` does
    here.

    Parameters
    ----------
    axis : int, default -1
        Axis along which the exponentials of the result sum to one.

    Returns
    -------
    array, shape of `x`
        A new array with the dtype of `x` (float64 for integers), or `out`.

    Examples
    --------
    >>> x = np.array([[1000, 0]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.log_softmax(x)
    array([[    0., -1000.]], dtype=float32)
    """
    return _softmax("log_softmax", x, axis, out)


@reduction
def cumsum(a: ArrayLike, axis: int | None = None, dtype: Dtype | None = None, out: ArrayLike | None = None) -> Any:
    """Sum each element and those before it along an axis.

    Parameters
    ----------
    axis : int, optional
        Axis along which elements are summed; by default `a` is flattened first.
    dtype : dtype, optional
        Dtype of the result; by default int64 for integers (uint64 for
        unsigned), else the dtype of `a`.

    Returns
    -------
    array
        Sums in the shape of `a`, with one axis by default, or `out`.

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


@reduction
def cumprod(a: ArrayLike, axis: int | None = None, dtype: Dtype | None = None, out: ArrayLike | None = None) -> Any:
    """Multiply each element and those before it along an axis.

    Parameters
    ----------
    axis : int, optional
        Axis along which elements are multiplied; by default `a` is flattened first.
    dtype : dtype, optional
        Dtype of the result, with the default of `cumsum`.

    Returns
    -------
    array
        Products in the shape of `a`, with one axis by default, or `out`.

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


def _scan(name: str, a: DeviceArray, axis: int | None, dtype: Dtype | None, out: DeviceArray) -> Any:
    """Serve a running sum or product as its public function was called."""
    runtime = current_runtime()
    runtime.require("a", a)
    if axis is None:
        a, axis = (a if a.ndim == 1 else a.reshape(-1)), 0
    dtype_name = None if dtype is None else named_dtype(dtype).name
    function, parameters = rows_parameters(name, operator.index(axis), a.ndim, False, dtype_name)
    return runtime.serve(function, (a,), parameters, out)


@public
def layer_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Normalise the last axes: `(x - mean) / sqrt(variance + eps) * weight + bias`.

    The signature is that of `torch.nn.functional.layer_norm`, with the keyword `out`.

    Parameters
    ----------
    x : array
        Input.
    normalized_shape : int or sequence of int
        Extents of the last axes of `x`, which are normalised together.
    weight, bias : array, shape `normalized_shape`, optional
        Factors and terms of the normalised elements.
    eps : float, default 1e-5
        Term added to the variance.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array, shape of `x`
        A new array with the dtype of `x` (float64 for integers), or `out`. The
        arithmetic of float16 and bfloat16 is float32.

    Raises
    ------
    ValueError
        If shapes do not fit.
    TypeError
        If `x` is not an array of this device.

    References
    ----------
    .. [1] J. L. Ba, J. R. Kiros and G. E. Hinton, "Layer Normalization",
       arXiv:1607.06450.

    Examples
    --------
    >>> x = np.array([[1, 3], [4, 8]], "float32")
    >>> weight = np.array([2, 1], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     y = gensor_kernels.layer_norm(x, 2, weight)
    >>> y.round(3)
    array([[-2.,  1.],
           [-2.,  1.]], dtype=float32)
    """
    return _norm("layernorm", x, normalized_shape, weight, bias, eps, out)


@like(layer_norm)
def rms_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    eps: float | None = None,
    *,
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Normalise the last axes: `x / sqrt(mean(x^2) + eps) * weight`.

    The signature is that of `torch.nn.functional.rms_norm`, with the keyword `out`.

    Parameters
    ----------
    weight : array, shape `normalized_shape`, optional
        Factors of the normalised elements.
    eps : float, optional
        Term added to the mean square; by default the spacing of the dtype of `x` at 1.

    Returns
    -------
    array, shape of `x`
        A new array, or `out`; dtype and arithmetic are those of `layer_norm`.

    References
    ----------
    .. [1] B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization",
       arXiv:1910.07467.

    Examples
    --------
    >>> x = np.array([[1, 7]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     y = gensor_kernels.rms_norm(x, 2)
    >>> y.round(3)
    array([[0.2, 1.4]], dtype=float32)
    """
    return _norm("rmsnorm", x, normalized_shape, weight, None, _spacing(x.dtype) if eps is None else eps, out)


@lru_cache
def _spacing(dtype: Dtype) -> float:
    """Return the spacing of a dtype at 1; float64's for integers, whose norm is of that dtype."""
    from gensor_kernels.operators.types.dtypes import DTYPES

    digits = DTYPES[dtype.name].digits if dtype.name in DTYPES else 0
    return 2.0 ** (1 - (digits or DTYPES["float64"].digits))


def _softmax(name: str, x: DeviceArray, axis: Any, out: DeviceArray) -> DeviceArray:
    runtime = current_runtime()
    runtime.require("x", x)
    function, parameters = rows_parameters(name, named_axes(axis), x.ndim)
    return runtime.serve(function, (x,), parameters, out)


def _norm(
    name: str, x: DeviceArray, shape: Any, weight: DeviceArray, bias: DeviceArray, eps: float, out: DeviceArray
) -> DeviceArray:
    runtime = current_runtime()
    runtime.require("x", x)
    try:
        given = (shape,) if type(shape) is int or not isinstance(shape, Iterable) else shape
        shape = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(f"normalized_shape must be an integer, or some, not {shown(shape)}") from None
    rank = len(shape)
    if not shape or tuple(x.shape[x.ndim - rank :]) != shape:
        raise ValueError(f"the last extents of x {tuple(x.shape)} are not normalized_shape: {shown(shape)}")
    for what, operand in (("weight", weight), ("bias", bias)):
        if operand is not None and tuple(operand.shape) != shape:
            raise ValueError(f"{what} has shape {tuple(operand.shape)}, normalized_shape is {shape}")
    steps: tuple[Operation, ...] = () if weight is None else (Operation("mul", weight),)
    if bias is not None:
        steps += (Operation("bias", bias),)
    axes = tuple(range(-rank, 0))
    function, parameters = rows_parameters(name, axes, x.ndim, value=real("eps", eps))
    return runtime.serve(function, (x,), parameters, out, steps)


@public
def elementwise(x: ArrayLike, epilogue: Items, out: ArrayLike | None = None) -> DeviceArray:
    """Apply up to six operations to every element of an array, in one kernel.

    The signature is its own: no other library has this function.

    Parameters
    ----------
    x : array, shape (..., n)
        Input.
    epilogue : list
        Operations in order, as in `matmul`: activations by name, `("scale", number)`,
        `("bias", array)` of shape (n,), and `("add", array)`, `("mul", array)` or
        `("mask", array, fill)` with arrays that broadcast to `x`.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array, shape of `x`
        A new array with the dtype of `x`, or `out`.

    Raises
    ------
    ValueError
        If shapes do not fit, or a name is unknown.
    TypeError
        If `x` is not an array of this device.
    UnsupportedError
        If the operations have a gate or a norm.

    Notes
    -----
    float16 and bfloat16 are computed in float32 and rounded once.

    Examples
    --------
    >>> x = np.array([[-1, 2], [3, 4]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.elementwise(x, [("add", x), "relu"])
    array([[0., 4.],
           [6., 8.]], dtype=float32)
    """
    runtime = current_runtime()
    runtime.require("x", x)
    steps = plain_operations("elementwise", 1, None, None, None, epilogue)
    function, parameters = rows_parameters("elementwise", (), x.ndim)
    return runtime.serve(function, (x,), parameters, out, steps)
