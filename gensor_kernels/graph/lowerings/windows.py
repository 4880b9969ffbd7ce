"""Pooling, and images repeated to a larger size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api import pooling, reductions

from .base import FLOATS, Lowering, Run, attribute, name_of, refused
from .contractions import lifted, padding

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node


def _pooled(run: Run, node: Node, x: Any, average: bool) -> Any:
    spatial = x.ndim - 2
    if spatial not in (1, 2):
        raise refused(node, f"poolings have one or two spatial axes, not {spatial}")
    if len(node.outputs) > 1 and node.outputs[1]:
        raise refused(node, "the positions of maxima are not served")
    if name_of(x) not in FLOATS:
        raise refused(node, f"poolings of {name_of(x)} are not served, only of floating-point numbers")
    taps = attribute(node, "kernel_shape")
    strides = attribute(node, "strides", (1,) * spatial)
    dilations = attribute(node, "dilations", (1,) * spatial)
    pads = padding(node, x.shape[2:], taps, strides, dilations)
    if average and max(dilations) > 1:
        raise refused(node, "average poolings with dilation are not served")
    reach = [(tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations, strict=True)]
    counts = bool(attribute(node, "count_include_pad", 0))
    x = run.device(x)
    if any(max(pair) > each // 2 for pair, each in zip(pads, reach, strict=True)):
        if average and not counts:
            raise refused(node, f"a padding of {pads} is more than half of the window")
        fill = 0 if average else -np.inf
        x = run.xp.pad(x, [(0, 0), (0, 0), *pads], mode="constant", constant_values=fill)
        pads = [(0, 0)] * spatial
    first = (2 - spatial) * (1,)
    more: dict[str, Any] = {"stride": (*first, *strides), "padding": [(0, 0)] * (2 - spatial) + pads}
    more["ceil_mode"] = bool(attribute(node, "ceil_mode", 0))
    if average:
        more["count_include_pad"] = counts
    else:
        more["dilation"] = (*first, *dilations)
    function = pooling.avg_pool2d if average else pooling.max_pool2d
    y = run.call(function, lifted(x, spatial), (*first, *taps), **more)
    return y if spatial == 2 else y[:, :, 0]


def _max_pool(run: Run, node: Node, x: Any) -> Any:
    return _pooled(run, node, x, False)


def _average_pool(run: Run, node: Node, x: Any) -> Any:
    return _pooled(run, node, x, True)


def _global_average(run: Run, node: Node, x: Any) -> Any:
    if x.ndim == 4:
        return run.call(pooling.global_avg_pool2d, x)
    return run.call(reductions.mean, x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _global_max(run: Run, node: Node, x: Any) -> Any:
    return run.call(reductions.max, x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _resize(run: Run, node: Node, x: Any, region: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Repeat the elements of an image: its nearest neighbours, at whole factors, as detectors upsample features."""
    coordinates, nearest = attribute(node, "coordinate_transformation_mode", "half_pixel"), "round_prefer_floor"
    rounded = (coordinates, attribute(node, "nearest_mode", nearest))
    same = {("asymmetric", "floor"), *(("half_pixel", each) for each in (nearest, "round_prefer_ceil"))}
    if attribute(node, "mode", "nearest") != "nearest" or rounded not in same or attribute(node, "axes") is not None:
        raise refused(node, "images are resized to the nearest neighbour at asymmetric or half_pixel coordinates")
    if scales is not None and scales.size:
        factors = [float(each) for each in np.ravel(run.host(scales))]
    else:
        if attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
            raise refused(node, "sizes that keep the ratio of width and height are not served")
        extents = run.integers(sizes)
        factors = [wanted / extent if extent else 1.0 for wanted, extent in zip(extents, x.shape, strict=True)]
    if any(factor < 1 or factor != int(factor) for factor in factors):
        raise refused(node, f"images are resized by whole factors, not by {factors}")
    xp, x = run.together(x)
    shape = [each for extent in x.shape for each in (extent, 1)]
    repeated = [each for extent, factor in zip(x.shape, factors, strict=True) for each in (extent, int(factor))]
    found = xp.broadcast_to(x.reshape(shape), repeated)
    return found.reshape([extent * int(factor) for extent, factor in zip(x.shape, factors, strict=True)])


LOWERINGS: dict[str, Lowering] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "MaxPool": _max_pool,
    "Resize": _resize,
}
