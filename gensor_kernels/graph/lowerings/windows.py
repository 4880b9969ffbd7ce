"""Pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api import pooling, reductions

from .base import FLOATS, Lowering, Run, Tensor, channels_first, channels_last, name_of, refusal, window_of
from .contractions import padding, two_axes

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node


def _pool(run: Run, node: Node, x: Tensor) -> Tensor:
    average = node.op == "AveragePool"
    spatial, strides, dilations = window_of(node, x)
    if len(node.outputs) > 1 and node.outputs[1]:
        raise refusal(node, "the positions of maxima are not served")
    if name_of(x) not in FLOATS:
        raise refusal(node, f"poolings of {name_of(x)} are not served, only of floating-point numbers")
    taps = node.attribute("kernel_shape")
    pads = padding(node, x.shape[2:], taps, strides, dilations)
    if average and max(dilations) > 1:
        raise refusal(node, "average poolings with dilation are not served")
    reach = [(tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations, strict=True)]
    counts = bool(node.attribute("count_include_pad"))
    x = run.device(x)
    kept: tuple[slice, ...] = ()
    ceil = bool(node.attribute("ceil_mode"))
    if any(max(pair) > each // 2 for pair, each in zip(pads, reach, strict=True)):
        if average and not counts:
            raise refusal(node, f"a padding of {pads} is more than half of the window")
        fill = 0 if average else -np.inf
        if ceil:  # no window begins in the padding at the end
            sizes = zip(x.shape[2:], pads, strides, strict=True)
            kept = tuple(slice(-(-(extent + low) // stride)) for extent, (low, _), stride in sizes)
        x = run.xp.pad(x, [(0, 0), (0, 0), *pads], mode="constant", constant_values=fill)
        pads = [(0, 0)] * spatial
    first = (2 - spatial) * (1,)
    more: dict[str, Any] = {"stride": (*first, *strides), "padding": [(0, 0)] * (2 - spatial) + pads}
    more["ceil_mode"] = ceil
    if average:
        more["count_include_pad"] = counts
    else:
        more["dilation"] = (*first, *dilations)
    function = pooling.avg_pool2d if average else pooling.max_pool2d
    if node.layout == "last":
        y = channels_first(run.call(function, channels_last(x), (*first, *taps), layout="NHWC", **more))
    else:
        y = run.call(function, two_axes(x, spatial), (*first, *taps), **more)
        y = y if spatial == 2 else y[:, :, 0]
    return y[(..., *kept)]


def _max_pool(run: Run, node: Node, x: Tensor) -> Tensor:
    """Take maxima; integers of 8 bits are exact in 16-bit floats, which kernels read."""
    if name_of(x) not in ("int8", "uint8"):
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
    "GlobalMaxPool": _global_max,
    "MaxPool": _max_pool,
}
