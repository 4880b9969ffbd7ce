"""Operators that sample and place parts of images: by the array library, boxes on the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.dispatch.api.matmul import matmul

from .base import Lowering, Run, Tensor, refusal
from .elementwise import wide
from .resize import cubic

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

#: Coefficient of the cubic convolution of a GridSample.
SLOPE = -0.75


def _grid_sample(run: Run, node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Sample an image, or a volume, at the places of a grid from -1 to 1."""
    mode, padding = node.attribute("mode"), node.attribute("padding_mode")
    xp, x, grid = run.together(x, grid)
    extents, found = x.shape[2:], []
    for axis, extent in enumerate(extents):
        place = wide(xp, grid[..., len(extents) - 1 - axis])
        if node.attribute("align_corners"):
            low, high = 0.0, extent - 1.0
            place = (place + 1) / 2 * (extent - 1)
        else:
            low, high = -0.5, extent - 0.5
            place = ((place + 1) * extent - 1) / 2
        if padding == "border":
            place = xp.clip(place, 0, extent - 1)
        elif padding == "reflection":
            place = _reflect(xp, place, low, high)
        found.append(
            [
                (weight, _reflect(xp, tap, low, high) if padding == "reflection" else tap)
                for weight, tap in _taps(xp, place, mode)
            ]
        )
    return _sampled(xp, x, found, is_open=padding == "zeros").astype(x.dtype)


def _reflect(xp: ModuleType, place: Tensor, low: float, high: float) -> Tensor:
    """Reflect places at both borders until they are between them."""
    span = high - low
    if span <= 0:
        return xp.full_like(place, low)
    away = xp.abs(place - low) % (2 * span)
    return low + xp.minimum(away, 2 * span - away)


def _taps(xp: ModuleType, place: Tensor, mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield weights and neighbours of places along one axis."""
    if mode == "nearest":
        yield xp.ones_like(place), xp.rint(place)
        return
    base = xp.floor(place)
    for offset in range(-1, 3) if mode == "cubic" else range(2):
        distance = xp.abs(place - base - offset)
        yield cubic(distance, SLOPE) if mode == "cubic" else 1 - distance, base + offset


def _sampled(xp: ModuleType, x: Tensor, taps: Sequence[Sequence[tuple[Tensor, Tensor]]], is_open: bool) -> Tensor:
    """Return the weighted sums of elements of x (n, c, ...) at the taps (n, ...) of each axis.

    Elements beyond the borders are 0 if these are open, else those at the borders.
    """
    n, c, *extents = x.shape
    flat, shape = x.reshape(n, c, -1), taps[0][0][0].shape
    total: Tensor = 0
    for chosen in itertools.product(*taps):
        index: Tensor = 0
        share: Tensor = 1
        for (weight, tap), extent in zip(chosen, extents, strict=True):
            if is_open:
                weight = xp.where((tap >= 0) & (tap <= extent - 1), weight, 0)
            tap = xp.where(tap == tap, xp.clip(tap, 0, extent - 1), 0)
            index, share = index * extent + tap.astype(np.int64), share * weight
        places = xp.broadcast_to(index.reshape(n, 1, -1), (n, c, index[0].size))
        total = total + wide(xp, xp.take_along_axis(flat, places, axis=2)) * share.reshape(n, 1, -1)
    return total.reshape(n, c, *shape[1:])


def _affine_grid(run: Run, node: Node, theta: Tensor, size: Tensor) -> Tensor:
    """Return the places (n, ..., axes) that affine maps give for an image of a size."""
    n, _, *extents = run.integers(size)
    axes = []
    for extent in extents:
        if node.attribute("align_corners"):
            axes.append(np.linspace(-1, 1, extent) if extent > 1 else np.zeros(1))
        else:
            axes.append((2 * np.arange(extent) + 1) / extent - 1)
    places = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(extents)], axis=-1)
    xp, theta, base = run.together(theta, places.reshape(-1, len(extents) + 1).astype(np.float32))
    found = xp.matmul(base.astype(wide(xp, theta).dtype), wide(xp, theta).transpose(0, 2, 1))
    return found.reshape(n, *extents, len(extents)).astype(theta.dtype)


def _deform_conv(
    run: Run, node: Node, x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor = None, mask: Tensor = None
) -> Tensor:
    """Convolve an image at places that are moved: sample what is under the taps, and multiply by the weights."""
    xp, x, w, offsets, bias, mask = run.together(x, w, offsets, bias, mask)
    (n, c), (filters, share, *taps), sides = x.shape[:2], w.shape, offsets.shape[2:]
    parts, groups, count = node.attribute("offset_group"), node.attribute("group"), math.prod(taps)
    if len(taps) != 2:
        raise refusal(node, f"convolutions at moved places have two spatial axes, not {len(taps)}")
    strides, dilations = (node.attribute(name) or (1, 1) for name in ("strides", "dilations"))
    pads = node.attribute("pads") or (0, 0)
    moved = wide(xp, offsets).reshape(n * parts, count, 2, *sides)
    axes = []
    for axis, grid in enumerate(np.meshgrid(*map(np.arange, taps), indexing="ij")):
        tap = grid.reshape(-1, 1, 1) * dilations[axis] - pads[axis]
        base = np.arange(sides[axis]).reshape((-1, 1) if axis == 0 else (1, -1)) * strides[axis]
        axes.append(list(_taps(xp, moved[:, :, axis] + xp.asarray((tap + base).astype(moved.dtype)), "linear")))
    found = _sampled(xp, x.reshape(n * parts, c // parts, *x.shape[2:]), axes, is_open=True)
    if mask is not None:
        found = found * wide(xp, mask).reshape(n * parts, 1, count, *sides)
    columns = found.astype(x.dtype).reshape(n, groups, share * count, math.prod(sides))
    y = run.call(matmul, w.reshape(groups, filters // groups, share * count), columns)
    y = y.reshape(n, filters, *sides)
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def _roi_align(run: Run, node: Node, x: Tensor, rois: Tensor, batches: Tensor) -> Tensor:
    """Sample a grid of places in each bin of regions, and return their means or maxima."""
    xp, x, rois, batches = run.together(x, rois, batches)
    half = node.attribute("coordinate_transformation_mode") == "half_pixel"
    bins = node.attribute("output_height"), node.attribute("output_width")
    ratio, regions = node.attribute("sampling_ratio"), wide(xp, rois) * node.attribute("spatial_scale") - 0.5 * half
    starts, spans = regions[:, 1::-1], regions[:, :1:-1] - regions[:, 1::-1]
    spans = spans if half else xp.maximum(spans, 1)
    if ratio > 0:
        return _aligned(xp, node, x, batches, starts, spans / xp.asarray(bins, spans.dtype), (ratio, ratio))
    counts = np.ceil(run.host(spans) / bins).astype(np.int64)
    found = xp.zeros((len(counts), x.shape[1], *bins), x.dtype)
    for count in np.unique(counts, axis=0):
        rows = xp.asarray(np.flatnonzero((counts == count).all(1)))
        if (count > 0).all():
            steps = spans[rows] / xp.asarray(bins, spans.dtype)
            found[rows] = _aligned(xp, node, x, batches[rows], starts[rows], steps, count.tolist())
    return found


def _aligned(
    xp: ModuleType, node: Node, x: Tensor, batches: Tensor, starts: Tensor, steps: Tensor, counts: Sequence[int]
) -> Tensor:
    """Return the bins of regions that have the same number of samples along each axis of a bin."""
    bins = node.attribute("output_height"), node.attribute("output_width")
    axes, flat, c = [], x.reshape(*x.shape[:2], -1), x.shape[1]
    for axis, (extent, count) in enumerate(zip(x.shape[2:], counts, strict=True)):
        inside = xp.arange(bins[axis])[:, None] + (xp.arange(count) + 0.5) / count
        place = starts[:, axis, None] + inside.reshape(1, -1).astype(starts.dtype) * steps[:, axis, None]
        is_inside = (place >= -1) & (place <= extent)
        place = xp.clip(place, 0, extent - 1)
        base = xp.floor(place)
        ends = ((1 - (place - base), base), (place - base, xp.minimum(base + 1, extent - 1)))
        axes.append([(weight * is_inside, tap.astype(np.int64)) for weight, tap in ends])
    parts = []
    for (high, row), (wide_, column) in itertools.product(*axes):
        index = row[:, :, None] * x.shape[3] + column[:, None, :]
        values = flat[batches[:, None], :, index.reshape(len(index), -1)]  # (regions, places, channels)
        values = values.transpose(0, 2, 1).reshape(-1, c, *index.shape[1:])
        parts.append(wide(xp, values) * (high[:, :, None] * wide_[:, None, :])[:, None])
    is_mean = node.attribute("mode") == "avg"
    total = sum(parts[1:], parts[0]) if is_mean else xp.maximum(xp.maximum(*parts[:2]), xp.maximum(*parts[2:]))
    total = total.reshape(-1, c, bins[0], counts[0], bins[1], counts[1])
    return (total.mean(axis=(3, 5)) if is_mean else total.max(axis=(3, 5))).astype(x.dtype)


def _center_crop_pad(run: Run, node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """Crop or pad axes at both ends."""
    xp, x = run.together(x)
    axes = node.attribute("axes") or range(x.ndim)
    key, pads = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, extent in zip(axes, run.integers(shape), strict=True):
        more = extent - x.shape[axis]
        if more < 0:
            key[axis] = slice(-more // 2, -more // 2 + extent)
        else:
            pads[axis] = more // 2, more - more // 2
    return xp.pad(x[tuple(key)], pads, mode="constant")


def _col2im(run: Run, node: Node, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Add up overlapping blocks: each tap of a block is a strided part of the image."""
    extents, taps = run.integers(image), run.integers(block)
    rank = len(extents)
    strides, dilations = (node.attribute(name) or (1,) * rank for name in ("strides", "dilations"))
    pads = node.attribute("pads") or (0,) * (2 * rank)
    whole = [extent + low + high for extent, low, high in zip(extents, pads[:rank], pads[rank:], strict=True)]
    reach = [(tap - 1) * far + 1 for tap, far in zip(taps, dilations, strict=True)]
    counts = [(size - each) // by + 1 for size, each, by in zip(whole, reach, strides, strict=True)]
    xp, x = run.together(x)
    blocks = x.reshape(x.shape[0], -1, *taps, *counts)
    found = xp.zeros((*blocks.shape[:2], *whole), x.dtype)
    for tap in np.ndindex(*taps):
        sizes = zip(tap, dilations, strides, counts, strict=True)
        key = tuple(slice(at * far, at * far + by * (count - 1) + 1, by) for at, far, by, count in sizes)
        found[(..., *key)] += blocks[(slice(None), slice(None), *tap)]
    return found[(..., *(slice(low, low + extent) for low, extent in zip(pads, extents, strict=False)))]


def _max_unpool(run: Run, node: Node, x: Tensor, places: Tensor, shape: Tensor = None) -> Tensor:
    """Put maxima at the places that a MaxPool found, and zeros elsewhere."""
    taps = node.attribute("kernel_shape")
    rank = len(taps)
    strides, pads = node.attribute("strides") or (1,) * rank, node.attribute("pads") or (0,) * (2 * rank)
    sizes = zip(x.shape[2:], strides, pads[:rank], pads[rank:], taps, strict=True)
    extents = [(extent - 1) * by - low - high + tap for extent, by, low, high, tap in sizes]
    xp, x, places = run.together(x, places)
    found = xp.zeros(math.prod(x.shape[:2]) * math.prod(extents), x.dtype)
    found[places.ravel()] = x.ravel()
    found = found.reshape(*x.shape[:2], *extents)
    if shape is None:
        return found
    more = [(0, wanted - extent) for wanted, extent in zip(run.integers(shape), found.shape, strict=True)]
    if min(high for _, high in more) < 0:
        raise refusal(node, f"an output smaller than {tuple(found.shape)} is not served")
    return xp.pad(found, more, mode="constant")


def _non_max_suppression(
    run: Run,
    node: Node,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor = None,
    overlap: Tensor = None,
    least: Tensor = None,
) -> Tensor:
    """Return (batch, class, box) of the boxes with the largest scores that overlap none with a larger one."""
    run.reads_back()
    count = 0 if most is None else int(run.host(most).item())
    limit = 0.0 if overlap is None else float(run.host(overlap).item())
    floor = None if least is None else float(run.host(least).item())
    ends, values = run.host(boxes).astype(np.float32), run.host(scores)
    if node.attribute("center_point_box"):
        low, high = ends[..., :2] - ends[..., 2:] / 2, ends[..., :2] + ends[..., 2:] / 2
    else:
        low, high = np.minimum(ends[..., :2], ends[..., 2:]), np.maximum(ends[..., :2], ends[..., 2:])
    found = []
    for batch, kind in np.ndindex(*values.shape[:2]) if count > 0 else ():
        row = values[batch, kind]
        places = np.arange(len(row)) if floor is None else np.flatnonzero(row > floor)
        places = places[np.argsort(-row[places], kind="stable")]
        kept = _suppressed(low[batch, places], high[batch, places], limit, count)
        found += [(batch, kind, place) for place in places[kept].tolist()]
    return np.array(found, np.int64).reshape(-1, 3)


def _suppressed(low: np.ndarray, high: np.ndarray, limit: float, most: int) -> list[int]:
    """Return the places of boxes, in order, that overlap no earlier one by more than a share of their union."""
    sizes, kept = (high - low).prod(-1), list[int]()
    left = np.arange(len(sizes))
    while len(left) and len(kept) < most:
        first, left = int(left[0]), left[1:]
        kept.append(first)
        shared = np.minimum(high[left], high[first]) - np.maximum(low[left], low[first])
        common = np.where((shared > 0).all(-1), shared.prod(-1), 0)
        union = sizes[left] + sizes[first] - common
        with np.errstate(all="ignore"):
            is_clear = ~((common > 0) & (union > 0) & (common / union > limit))
        left = left[is_clear]
    return kept


LOWERINGS: dict[str, Lowering] = {
    "AffineGrid": _affine_grid,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "MaxUnpool": _max_unpool,
    "NonMaxSuppression": _non_max_suppression,
    "RoiAlign": _roi_align,
}
