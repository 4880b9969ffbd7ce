"""Pooling: the public functions, with the arguments of torch.nn.functional. Imports little."""

from __future__ import annotations

from typing import Any

from gensor_kernels.dispatch.calls.conv_parameters import IMAGES
from gensor_kernels.dispatch.calls.whole import padding_pairs, pair

from .current import current_runtime
from .interop import adopting


@adopting
def max_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    layout: str = "NCHW",
    out: Any = None,
) -> Any:
    """Maximum of each channel under a sliding window, as torch.nn.functional.max_pool2d.

    `x` is (n, c, h, w), or (n, h, w, c) with `layout="NHWC"`; the result likewise, in memory as `x` lies.
    `kernel_size`, `stride` (the window's own by default) and `dilation` are integers or (h, w) pairs; `padding` too, or
    ((top, bottom), (left, right)), and is at most half of what a window spans, as in PyTorch. Padding never wins; NaN
    does. With `ceil_mode` the last window may reach past the padding. Raises ValueError for shapes and arguments that
    do not fit, and for images without rows or columns.
    """
    return _pooled("max_pool2d", x, kernel_size, stride, padding, layout, out, dilation, ceil_mode=int(ceil_mode))


@adopting
def avg_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    layout: str = "NCHW",
    out: Any = None,
) -> Any:
    """Average of each channel under a sliding window, as torch.nn.functional.avg_pool2d.

    `count_include_pad`: positions in the padding count, as zeros. Sums of float16 and bfloat16 are taken in float32.
    Everything else as in :func:`max_pool2d`.
    """
    more = {"ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad)}
    return _pooled("avg_pool2d", x, kernel_size, stride, padding, layout, out, None, **more)


@adopting
def global_avg_pool2d(x: Any, *, layout: str = "NCHW", out: Any = None) -> Any:
    """Average of each channel over the whole image: (n, c, 1, 1), or (n, 1, 1, c) with `layout="NHWC"`."""
    from gensor_kernels.dispatch.functions.window import POOLING, PoolParameters
    from gensor_kernels.dispatch.plans.calls import call

    return call(current_runtime(), POOLING, (x,), PoolParameters("global_avg_pool2d", _layout(layout), ()), out)


def _layout(layout: str) -> str:
    if layout not in IMAGES:
        raise ValueError(f"layout must be one of {', '.join(map(repr, IMAGES))}, not {layout!r}")
    return layout


def _pooled(
    op: str, x: Any, kernel: Any, stride: Any, padding: Any, layout: str, out: Any, dilation: Any, **more: int
) -> Any:
    from gensor_kernels.dispatch.functions.window import POOLING, PoolParameters
    from gensor_kernels.dispatch.plans.calls import call

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
    parameters = PoolParameters(op, _layout(layout), tuple(sizes.items()))
    return call(current_runtime(), POOLING, (x,), parameters, out)
