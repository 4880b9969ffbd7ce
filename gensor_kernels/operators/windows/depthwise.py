"""Depthwise convolution: y[n, oh, ow, c] = sum over r, s of x[n, oh stride - pad + r dilation, ..., c] w[r, s, c].

One filter per channel, as torch.nn.functional.conv2d with groups = channels = filters; several filters per channel are
a grouped convolution (conv.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gensor_kernels.operators.products.matmul import default_output
from gensor_kernels.operators.types.workload import View, Workload

from .sides import check_outputs, check_steps, declare_outputs, output_size
from .sliding import DEFAULTS, FILTERS, IMAGES, ONES, Sliding, contiguous, workload_of

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


NAME = "depthwise_conv2d"


def declare(**p: int) -> Expression:
    """Declare the expression of the module's formula under strides, dilations and padding."""
    from gensor_kernels.operators.expression.expression import SUM, Expression, axes, tensor

    n, h, w, c, r, s = axes("n h w c r s")
    x, filters = tensor("x", n, h, w, c).pad(), tensor("w", r, s, c)
    (oh, row), (ow, column) = declare_outputs(p, "h", h, r), declare_outputs(p, "w", w, s)
    return Expression("y", (n, oh, ow, c), x[n, row, column, c] * filters[r, s, c], SUM)


OPERATOR = Sliding(NAME, declare, tuple(DEFAULTS), tuple(ONES.items()), kind="multiply")


def workload(
    *,
    n: int,
    h: int,
    w: int,
    c: int,
    r: int,
    s: int,
    layout: str = "nhwc",
    dtype: str = "float32",
    out: str | None = None,
    epilogue: str | Iterable[str] = (),
    **parameters: int,
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses.

    ``parameters`` are stride_h, stride_w, dilation_h, dilation_w (1 by default), pad_top, pad_bottom, pad_left and
    pad_right (0 by default).  ``layout`` of x and y is "nhwc" or "nchw"; it implies "rsc" or "crs" for the filter.
    ``out`` is y's dtype, by default x's (int32 for int8).  ValueError for sizes that do not fit, UnsupportedError for
    types and layouts that are not served.
    """
    sizes = _sizes(n=n, h=h, w=w, c=c, r=r, s=s, **parameters)
    last = layout == "nhwc"
    shape = (n, output_size(sizes, "h"), output_size(sizes, "w"), c)
    views = {
        "x": contiguous((n, h, w, c), IMAGES[layout], dtype),
        "w": contiguous((r, s, c), FILTERS["rsc" if last else "crs"], dtype),
        "y": contiguous(shape, IMAGES[layout], out or default_output(dtype)),
    }
    return _make_workload(sizes, views, layout, epilogue)


def workload_from_views(
    x: View, w: View, y: View, *, layout: str = "nhwc", epilogue: str | Iterable[str] = (), **parameters: int
) -> Workload:
    """Return the Workload of arrays in memory: x (n, h, w, c), w (r, s, c) and y (n, oh, ow, c).

    Axes are in this order for every ``layout``, which names their order in memory; ``parameters`` as in
    :func:`workload`. ValueError for shapes that do not fit, UnsupportedError for types that are not served and for an
    innermost axis without stride 1.
    """
    n, h, width, c = x.shape
    sizes = _sizes(n=n, h=h, w=width, c=c, r=w.shape[0], s=w.shape[1], **parameters)
    return _make_workload(sizes, {"x": x, "w": w, "y": y}, layout, epilogue)


def _sizes(**sizes: int) -> dict[str, int]:
    """Return all sizes of a call, checked."""
    unknown = set(sizes) - set(ONES)
    if unknown:
        raise ValueError(f"a depthwise convolution has no size {', '.join(sorted(unknown))}")
    complete = {**DEFAULTS, **sizes}
    check_steps(complete)
    check_outputs(complete, "window")
    return complete


def _make_workload(
    sizes: dict[str, int], views: dict[str, View], layout: str, epilogue: str | Iterable[str]
) -> Workload:
    layouts = {"x": layout, "w": "rsc" if layout == "nhwc" else "crs", "y": layout}
    return workload_of(OPERATOR, sizes, views, layouts, epilogue)
