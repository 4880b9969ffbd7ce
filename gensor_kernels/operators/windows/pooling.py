"""Poolings: the maximum or the average of each channel under a sliding window.

Semantics are those of torch.nn.functional.max_pool2d and avg_pool2d, with padding per side.  Padding never wins a
maximum, and a NaN in the window is the result; a window inside the padding has the least value of its type (-infinity)
or the average 0.  With ceil_mode the last window may extend beyond the padding; positions beyond it do not count in an
average.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.workload import View, Workload

from .sides import check_outputs, check_steps, output_size, position
from .sliding import DEFAULTS, IMAGES, ONES, Sliding, contiguous, sides, workload_of

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


_SHAPING = {"count_include_pad": 0, "ceil_mode": 0}
#: Names of sizes by operator.  A window of an average has no holes.
_MAX = {**ONES, "ceil_mode": 0}
_AVERAGE = {name: value for name, value in {**ONES, **_SHAPING}.items() if not name.startswith("dilation_")}


def _parameters(sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return every size but n and c: extents of outputs and counts are plain numbers in the declaration."""
    return tuple(name for name in sizes if name not in ("n", "c"))


def declare_max(**p: int) -> Expression:
    """y[n, oh, ow, c] = maximum over r, s of x[n, oh stride - pad + r dilation, ..., c]."""
    from gensor_kernels.operators.expression.expression import MAX, Axis, Expression, axes, tensor

    n, h, w, c, r, s = axes("n h w c r s")
    oh, ow = Axis("oh", output_size(p, "h")), Axis("ow", output_size(p, "w"))
    row, column = position(p, "h", oh, r), position(p, "w", ow, s)
    return Expression("y", (n, oh, ow, c), tensor("x", n, h, w, c).pad(float("-inf"))[n, row, column, c], MAX)


def declare_average(**p: int) -> Expression:
    """y[n, oh, ow, c] = sum over r, s of x[n, oh stride - pad + r, ..., c], over the positions counted there."""
    from gensor_kernels.operators.expression import expression as ex

    n, h, w, c, r, s = ex.axes("n h w c r s")
    oh, ow = ex.Axis("oh", output_size(p, "h")), ex.Axis("ow", output_size(p, "w"))
    row, column = position(p, "h", oh, r), position(p, "w", ow, s)
    counts = []
    for place, side in zip((oh, ow), sides(p), strict=True):
        first, (low, high) = side.stride * place - side.pad, side.counted
        counts.append(ex.maximum(ex.minimum(ex.index(first + side.window), high) - ex.maximum(ex.index(first), low), 0))
    body = ex.tensor("x", n, h, w, c).pad()[n, row, column, c]
    return ex.Expression("y", (n, oh, ow, c), body, ex.SUM, map=ex.result() / ex.maximum(counts[0] * counts[1], 1))


OPERATORS: Mapping[str, Sliding] = {
    "max_pool2d": Sliding("max_pool2d", declare_max, _parameters(_MAX), tuple(_MAX.items()), kind="maximum"),
    "avg_pool2d": Sliding(
        "avg_pool2d", declare_average, _parameters(_AVERAGE), tuple(_AVERAGE.items()), kind="average"
    ),
}


def workload(
    op: str,
    *,
    n: int,
    h: int,
    w: int,
    c: int,
    layout: str = "nhwc",
    dtype: str = "float32",
    epilogue: str | Iterable[str] = (),
    **parameters: int,
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses; ``op`` is a name in OPERATORS.

    ``parameters`` are the window r and s, stride_h and stride_w (the window's extents by default), pad_top, pad_bottom,
    pad_left, pad_right and ceil_mode (0 by default), dilation_h and dilation_w of a maximum (1 by default), and
    count_include_pad of an average (0 by default: padding does not count).  ``layout`` is "nhwc" or "nchw".

    ValueError for sizes that do not fit, UnsupportedError for types and layouts that are not served.
    """
    sizes = _sizes(op, n=n, h=h, w=w, c=c, **parameters)
    complete = {**DEFAULTS, **sizes}
    shape = (n, output_size(complete, "h"), output_size(complete, "w"), c)
    views = {"x": contiguous((n, h, w, c), IMAGES[layout], dtype), "y": contiguous(shape, IMAGES[layout], dtype)}
    return _make_workload(op, sizes, views, layout, epilogue)


def workload_from_views(
    op: str, x: View, y: View, *, layout: str = "nhwc", epilogue: str | Iterable[str] = (), **parameters: int
) -> Workload:
    """Return the Workload of arrays in memory: x (n, h, w, c) and y (n, oh, ow, c).

    Axes are in this order for every ``layout``, which names their order in memory; ``parameters`` as in
    :func:`workload`. ValueError for shapes that do not fit, UnsupportedError for types that are not served and for an
    innermost axis without stride 1.
    """
    n, h, w, c = x.shape
    return _make_workload(op, _sizes(op, n=n, h=h, w=w, c=c, **parameters), {"x": x, "y": y}, layout, epilogue)


def complete(op: str, **sizes: int) -> dict[str, int]:
    """Return all sizes of a call, checked, with sizes that a Workload omits; ValueError for sizes that do not fit."""
    return {**DEFAULTS, **_sizes(op, **sizes)}


def output_sizes(op: str, **sizes: int) -> tuple[int, int]:
    """Return (oh, ow) of a call with these sizes; ValueError for sizes that do not fit."""
    whole = complete(op, n=1, c=1, **sizes)
    return output_size(whole, "h"), output_size(whole, "w")


def _sizes(op: str, **sizes: int) -> dict[str, int]:
    """Return the Workload's sizes, checked; strides are the window's extents by default."""
    if op not in OPERATORS:
        raise UnsupportedError(f"{op!r} is no pooling: expected one of {', '.join(OPERATORS)}")
    names = OPERATORS[op].size_names
    unknown = set(sizes) - set(names)
    if unknown:
        raise ValueError(f"{op} has no size {', '.join(sorted(unknown))}")
    missing = {"r", "s"} - set(sizes)
    if missing:
        raise ValueError(f"{op} needs {' and '.join(sorted(missing))}, the extents of its window")
    sizes = {"stride_h": sizes["r"], "stride_w": sizes["s"], **sizes}
    sizes = {name: sizes.get(name, DEFAULTS.get(name, 0)) for name in names}
    whole = {**DEFAULTS, **sizes}
    check_steps(whole)
    check_outputs(whole, "window")
    return sizes


def _make_workload(
    op: str, sizes: Mapping[str, int], views: Mapping[str, View], layout: str, epilogue: str | Iterable[str]
) -> Workload:
    declared = OPERATORS[op]
    if declared.kind == "average" and views["x"].dtype == "int8":
        raise UnsupportedError(f"{op} of int8: an average is no integer, cast, as in x.astype('float32')")
    return workload_of(declared, sizes, views, {"x": layout, "y": layout}, epilogue)
