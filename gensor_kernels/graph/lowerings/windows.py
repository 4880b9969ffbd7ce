"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gensor_kernels.dispatch.api import pooling, reductions

from .base import FLOATS, Lowering, Run, Tensor, channels_first, channels_last, is_served, name_of, window_of
from .contractions import padding, two_axes
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

#: Taps, stride, dilation, and padding on both sides along one axis.
Window: TypeAlias = tuple[int, int, int, tuple[int, int]]
#: Positions of the taps of each window along each axis.
Places: TypeAlias = list[np.ndarray]
#: The window of one element.
ALONE: Window = (1, 1, 1, (0, 0))


def _pool(run: Run, node: Node, x: Tensor) -> Tensor:
    average = node.op == "AveragePool"
    spatial, strides, dilations = window_of(node, x)
    taps = node.attribute("kernel_shape")
    pads = padding(node, x.shape[2:], taps, strides, dilations)
    window = list(zip(taps, strides, dilations, pads, strict=True))
    reach = [(tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations, strict=True)]
    counts, ceil = bool(node.attribute("count_include_pad")), bool(node.attribute("ceil_mode"))
    is_wide = any(max(pair) > each // 2 for pair, each in zip(pads, reach, strict=True))
    if len(node.outputs) > 1 and node.outputs[1]:
        return _with_places(run, node, x, window)
    if name_of(x) not in FLOATS or (average and (max(dilations) > 1 or (is_wide and not counts))):
        return _pool_by_library(run, node, x, window)
    x = run.device(x)
    kept: tuple[slice, ...] = ()
    if is_wide:
        fill = 0 if average else -np.inf
        if ceil:  # no window begins in the padding at the end
            sizes = zip(x.shape[2:], pads, strides, strict=True)
            kept = tuple(slice(-(-(extent + low) // stride)) for extent, (low, _), stride in sizes)
        x = run.xp.pad(x, [(0, 0), (0, 0), *pads], mode="constant", constant_values=fill)
        window = [(*each[:3], (0, 0)) for each in window]
    function = pooling.avg_pool2d if average else pooling.max_pool2d

    def pooled(x: Tensor, window: list[Window], last: bool = False) -> Tensor:
        taps, strides, dilations, pads = zip(*window, strict=True)
        more: dict[str, Any] = {"stride": strides, "padding": pads, "ceil_mode": ceil}
        more |= {"count_include_pad": counts} if average else {"dilation": dilations}
        if last:
            return channels_first(run.call(function, channels_last(x), taps, layout="NHWC", **more))
        return run.call(function, x, taps, **more)

    if spatial == 3:  # rows and columns of all slices, then the slices
        n, c, d, *image = x.shape
        y = pooled(x.reshape(n, c * d, *image), window[1:])
        image = y.shape[2:]
        y = pooled(y.reshape(n, c, d, image[0] * image[1]), [window[0], ALONE])
        y = y.reshape(n, c, y.shape[2], *image)
    elif spatial == 2:
        y = pooled(x, window, node.layout == "last")
    else:
        y = pooled(two_axes(x, spatial), [ALONE, *window])[:, :, 0]
    return y[(..., *kept)]


def _windows(xp: ModuleType, x: Tensor, window: Sequence[Window], fill: float, ceil: bool) -> tuple[Tensor, Places]:
    """Return all windows of x as a view (n, c, window places, taps) of a padded copy, and their places along each axis.

    A place has the positions of its taps in x; those outside are negative or not below the extent.
    """
    places, counts, ends = [], [], []
    for extent, (taps, by, hole, (low, high)) in zip(x.shape[2:], window, strict=True):
        room = extent + low + high - (taps - 1) * hole - 1
        count = (-(-room // by) if ceil else room // by) + 1
        count -= ceil and (count - 1) * by >= extent + low  # no window begins in the padding at the end
        places.append(np.arange(count)[:, None] * by - low + np.arange(taps) * hole)
        counts.append(count)
        ends.append((low, max(int(places[-1].max(initial=0)) + 1 - extent, 0)))
    padded = xp.pad(x, [(0, 0), (0, 0), *ends], mode="constant", constant_values=fill)
    steps = padded.strides[2:]
    strides = [step * each[1] for step, each in zip(steps, window, strict=True)]
    far = [step * each[2] for step, each in zip(steps, window, strict=True)]
    shape = (*x.shape[:2], *counts, *(each[0] for each in window))
    view = xp.lib.stride_tricks.as_strided(padded, shape, (*padded.strides[:2], *strides, *far))
    return view, places


def _pool_by_library(run: Run, node: Node, x: Tensor, window: Sequence[Window]) -> Tensor:
    """Reduce windows of any elements by the array library: maxima, means, or roots of sums of powers."""
    xp, x = run.together(x)
    spatial, ceil = len(window), bool(node.attribute("ceil_mode"))
    over = tuple(range(2 + spatial, 2 + 2 * spatial))
    if node.op == "MaxPool":
        return _windows(xp, x, window, _least(x), ceil)[0].max(axis=over)
    given, power = wide(xp, x), node.attribute("p")
    if node.op == "LpPool":
        total = _windows(xp, xp.abs(given) ** power, window, 0, ceil)[0].sum(axis=over)
        return (total ** (1 / power)).astype(x.dtype)
    view, places = _windows(xp, given, window, 0, ceil)
    number = np.ones((), np.float32)
    for each, extent, (*_, (low, high)) in zip(places, x.shape[2:], window, strict=True):
        first, end = (-low, extent + high) if node.attribute("count_include_pad") else (0, extent)
        number = number[..., None] * ((each >= first) & (each < end)).sum(1).astype(np.float32)
    return (view.sum(axis=over) / xp.asarray(number)).astype(x.dtype)


def _least(x: Tensor) -> float:
    return -np.inf if name_of(x) in FLOATS else int(np.iinfo(x.dtype).min)


def _with_places(run: Run, node: Node, x: Tensor, window: Sequence[Window]) -> tuple[Tensor, Tensor]:
    """Return maxima, and their places in the whole tensor."""
    xp, x = run.together(x)
    view, places = _windows(xp, x, window, _least(x), bool(node.attribute("ceil_mode")))
    spatial, extents = len(window), x.shape[2:]
    shape = view.shape[: 2 + spatial]
    flat = view.reshape(*shape, -1)
    chosen = flat.argmax(axis=-1)
    found = xp.take_along_axis(flat, chosen[..., None], axis=-1)[..., 0]
    is_row_major = node.attribute("storage_order") == 0
    steps = [math.prod(extents[axis + 1 :] if is_row_major else extents[:axis]) for axis in range(spatial)]
    index = xp.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1,) * spatial) * math.prod(extents)
    rest = chosen
    for axis in reversed(range(spatial)):
        rest, tap = xp.divmod(rest, window[axis][0])
        spread = (-1, *(1,) * (spatial - axis - 1))
        begins = xp.asarray(places[axis][:, 0].reshape(spread))
        index = index + (begins + tap * window[axis][2]) * steps[axis]
    return found, index.astype(np.int64)


def _lp_pool(run: Run, node: Node, x: Tensor) -> Tensor:
    _, strides, dilations = window_of(node, x)
    taps = node.attribute("kernel_shape")
    pads = padding(node, x.shape[2:], taps, strides, dilations)
    return _pool_by_library(run, node, x, list(zip(taps, strides, dilations, pads, strict=True)))


def _global_lp_pool(run: Run, node: Node, x: Tensor) -> Tensor:
    axes, power = tuple(range(2, x.ndim)), node.attribute("p")
    if power == 2 and is_served(x):
        return run.call(reductions.norm, x, axis=axes, keepdims=True)
    xp, x = run.together(x)
    return ((xp.abs(wide(xp, x)) ** power).sum(axis=axes, keepdims=True) ** (1 / power)).astype(x.dtype)


def _max_pool(run: Run, node: Node, x: Tensor) -> Tensor:
    """Take maxima; integers of 8 bits are exact in 16-bit floats, which kernels read."""
    if name_of(x) not in ("int8", "uint8") or any(node.outputs[1:]):
        return _pool(run, node, x)
    found = _pool(run, node, run.device(x).astype(np.float16))
    with np.errstate(invalid="ignore"):  # of a dry run, whose arrays have any elements
        return found.astype(x.dtype)


def _global_average(run: Run, node: Node, x: Tensor) -> Tensor:
    return run.call(reductions.mean, x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _global_max(run: Run, node: Node, x: Tensor) -> Tensor:
    return run.call(reductions.max, x, axis=tuple(range(2, x.ndim)), keepdims=True)


LOWERINGS: dict[str, Lowering] = {
    "AveragePool": _pool,
    "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global_max,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
