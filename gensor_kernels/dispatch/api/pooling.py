"""Pooling: the public functions, with the arguments of torch.nn.functional. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.conv_parameters import image_layout
from gensor_kernels.dispatch.calls.whole import padding_pairs, pair

from .current import current_runtime
from .interop import like, public
from .rows import reduce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray


@public
def max_pool2d(
    x: ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | Sequence[Sequence[int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    *,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Take the maximum of each channel under a sliding window.

    The signature is that of `torch.nn.functional.max_pool2d`, without `return_indices`,
    and with the keywords `layout` and `out`. `padding` may differ at the two sides of
    an axis.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
        Images; (n, h, w, c) with `layout="NHWC"`.
    kernel_size : int or pair of int
        Rows and columns of the window.
    stride : int or pair of int, optional
        Step of the window, by default `kernel_size`.
    padding : int, pair or pair of pairs, default 0
        Padding: one number, (h, w) or ((top, bottom), (left, right)), at most half of
        the elements that a window spans. Padding never is the maximum.
    dilation : int or pair of int, default 1
        Distance between the elements of the window.
    ceil_mode : bool, default False
        Whether the last window may reach past the padding.
    layout : {"NCHW", "NHWC"}, default "NCHW"
        Order of axes.
    out : array, optional
        Array that receives the result.

    Returns
    -------
    array, shape (n, c, oh, ow) or (n, oh, ow, c)
        A new array with the dtype of `x`, in the order of `x` in memory, or `out`. A
        window with a NaN gives NaN.

    Raises
    ------
    ValueError
        If shapes or arguments do not fit, or images have no rows or columns.

    Examples
    --------
    >>> x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.max_pool2d(x, 2)
    array([[[[ 5.,  7.],
             [13., 15.]]]], dtype=float32)
    """
    return _pool("max_pool2d", x, kernel_size, stride, padding, layout, out, dilation, ceil_mode=int(bool(ceil_mode)))


@like(max_pool2d)
def avg_pool2d(
    x: ArrayLike,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | Sequence[Sequence[int]] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Take the average of each channel under a sliding window.

    The signature is that of `torch.nn.functional.avg_pool2d`, without
    `divisor_override`, and with the keywords `layout` and `out`. `padding` may differ
    at the two sides of an axis.

    Parameters
    ----------
    padding : int, pair or pair of pairs, default 0
        Padding as in `max_pool2d`.
    count_include_pad : bool, default True
        Whether positions in the padding count, as zeros.

    Returns
    -------
    array, shape (n, c, oh, ow) or (n, oh, ow, c)
        A new array with the dtype of `x`, in the order of `x` in memory, or `out`.
        float16 and bfloat16 are summed in float32.

    Examples
    --------
    >>> x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.avg_pool2d(x, 2)
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]], dtype=float32)
    """
    more = {"ceil_mode": int(bool(ceil_mode)), "count_include_pad": int(bool(count_include_pad))}
    return _pool("avg_pool2d", x, kernel_size, stride, padding, layout, out, None, **more)


@like(max_pool2d)
def global_avg_pool2d(
    x: ArrayLike, *, layout: Literal["NCHW", "NHWC"] = "NCHW", out: ArrayLike | None = None
) -> DeviceArray:
    """Take the average of each channel over the whole image.

    The signature is its own: it is `torch.nn.functional.adaptive_avg_pool2d` with an
    output size of 1.

    Returns
    -------
    array, shape (n, c, 1, 1) or (n, 1, 1, c)
        A new array with the dtype of `x` (float64 of integers, as `mean`), or `out`.
        float16 and bfloat16 are summed in float32.

    Examples
    --------
    >>> x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.global_avg_pool2d(x)
    array([[[[7.5]]]], dtype=float32)
    """
    axes = (2, 3) if image_layout(layout) == "NCHW" else (1, 2)
    current_runtime().require("x", x)
    if x.ndim != 4:
        raise ValueError(f"global_avg_pool2d: x has 4 axes ({layout}), not {x.ndim}")
    if 0 in (x.shape[axes[0]], x.shape[axes[1]]):
        raise ValueError("global_avg_pool2d: x is an image with rows and columns")
    return reduce("reduce_mean", x, axes, out, True)


def _pool(
    op: str,
    x: DeviceArray,
    kernel: Any,
    stride: Any,
    padding: Any,
    layout: str,
    out: DeviceArray,
    dilation: Any,
    **more: int,
) -> DeviceArray:
    from gensor_kernels.dispatch.functions.window import POOLING, PoolParameters

    r, s = pair("kernel_size", kernel, 1)
    stride_h, stride_w = (r, s) if stride is None else pair("stride", stride, 1)
    (top, bottom), (left, right) = padding_pairs(padding)
    sizes = dict(r=r, s=s, stride_h=stride_h, stride_w=stride_w, **more)
    sizes |= dict(pad_top=top, pad_bottom=bottom, pad_left=left, pad_right=right)
    dilation_h, dilation_w = (1, 1) if dilation is None else pair("dilation", dilation, 1)
    for reach, pads in (((r - 1) * dilation_h + 1, (top, bottom)), ((s - 1) * dilation_w + 1, (left, right))):
        if max(pads) > reach // 2:
            raise ValueError(f"padding must be at most half of the {reach} elements under the window, not {max(pads)}")
    if dilation is not None:
        sizes["dilation_h"], sizes["dilation_w"] = dilation_h, dilation_w
    parameters = PoolParameters(op, image_layout(layout), tuple(sizes.items()))
    return current_runtime().serve(POOLING, (x,), parameters, out)
