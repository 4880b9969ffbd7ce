"""Resizing of images: repeats, selections, and products with the weights of an interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.dispatch.api.matmul import matmul
from gensor_kernels.shown import shown

from .base import FLOATS, Lowering, Run, Tensor, name_of, refusal

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
#: Mappings of places in the result to places among the input's elements.
_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",  # of version 11
)
#: nearest_mode of nodes of version 10, whose rounding no later version can name: floor, along axes that shrink ceil.
FLOOR_OR_CEIL = "floor_or_ceil"


def _resize(run: Run, node: Node, x: Tensor, roi: Tensor = None, scales: Tensor = None, sizes: Tensor = None) -> Tensor:
    """Resize the axes in turn: the nearest element, or a linear interpolation between two."""
    mode, coordinates, rounding = map(node.attribute, ("mode", "coordinate_transformation_mode", "nearest_mode"))
    if mode not in ("nearest", "linear"):
        raise refusal(node, f"mode {mode!r} is not served, only nearest and linear")
    if node.attribute("antialias"):
        raise refusal(node, "filters against aliasing are not served")
    if coordinates == "tf_crop_and_resize":
        raise refusal(node, "a region of interest is not served; crop by Slice")
    if coordinates not in _COORDINATES or rounding not in (*_ROUNDINGS, FLOOR_OR_CEIL):
        raise refusal(node, f"coordinates {shown(coordinates)} with rounding {shown(rounding)} are unknown")
    if node.attribute("keep_aspect_ratio_policy") != "stretch":
        raise refusal(node, "sizes that keep the aspect ratio are not served; give the sizes of the result")
    if mode == "linear" and name_of(x) not in FLOATS:
        raise refusal(node, f"linear interpolation of {name_of(x)} is not served, only of floating-point numbers")
    axes = node.attribute("axes")
    along = list(range(x.ndim)) if axes is None else [each % x.ndim for each in axes]
    if sizes is not None:
        wanted = [(int(size), int(size) / x.shape[axis]) for axis, size in zip(along, run.host(sizes), strict=True)]
    else:
        factors = [float(each) for each in run.host(scales)]
        extents = [math.floor(x.shape[axis] * np.float32(each)) for axis, each in zip(along, factors, strict=True)]
        wanted = list(zip(extents, factors, strict=True))
    for axis, (extent, scale) in zip(along, wanted, strict=True):
        if extent == x.shape[axis] and scale == 1:
            continue
        if mode == "nearest":
            x = _select(run, x, axis, _nearest(x.shape[axis], extent, scale, coordinates, rounding))
        else:
            x = _interpolate(run, x, axis, _weights(x.shape[axis], extent, scale, coordinates, name_of(x)))
    return x


def _places(given: int, extent: int, scale: float, coordinates: str) -> np.ndarray:
    """Return the place of each element of the result among those of the input, in float32 as other libraries do."""
    place = np.arange(extent, dtype=np.float32)
    if coordinates == "asymmetric":
        return place / scale
    if coordinates == "align_corners":
        last = scale * given - 1  # of the result, before its extent was rounded
        return place * (given - 1) / last if last > 0 else place * 0
    if coordinates == "pytorch_half_pixel" and extent == 1:
        return place * 0
    if coordinates == "tf_half_pixel_for_nn":
        return (place + np.float32(0.5)) / scale
    middle = (place + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        return given / 2 * (1 - extent / (scale * given)) + middle
    return middle


@lru_cache(maxsize=256)
def _nearest(given: int, extent: int, scale: float, coordinates: str, rounding: str) -> np.ndarray:
    if rounding == FLOOR_OR_CEIL:
        rounding = "ceil" if scale < 1 else "floor"
    found = _ROUNDINGS[rounding](_places(given, extent, scale, coordinates))
    return np.clip(found, 0, given - 1).astype(np.int64)


@lru_cache(maxsize=256)
def _weights(given: int, extent: int, scale: float, coordinates: str, dtype: str) -> np.ndarray:
    """Return the matrix (extent, given) that interpolates between two neighbours; the edges continue."""
    place = np.clip(_places(given, extent, scale, coordinates), 0, given - 1)
    first = np.minimum(np.floor(place).astype(np.int64), max(given - 2, 0))
    found, rows = np.zeros((extent, given)), np.arange(extent)
    found[rows, first] = 1 - (place - first)
    if given > 1:
        found[rows, first + 1] = place - first
    return found.astype(np.float32).astype(dtype)


def _select(run: Run, x: Tensor, axis: int, places: np.ndarray) -> Tensor:
    """Select elements along an axis; equal repeats of all are a broadcast view that is copied once."""
    xp, x = run.together(x)
    times, rest = divmod(len(places), x.shape[axis])
    if not rest and np.array_equal(places, np.repeat(np.arange(x.shape[axis]), times)):
        shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        repeated = xp.broadcast_to(xp.expand_dims(x, axis + 1), shape)
        return repeated.reshape(*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    return xp.take(x, xp.asarray(places), axis=axis)


def _interpolate(run: Run, x: Tensor, axis: int, weights: np.ndarray) -> Tensor:
    shape = (*x.shape[:axis], len(weights), *x.shape[axis + 1 :])
    if axis == x.ndim - 1:
        return run.call(matmul, x.reshape(-1, x.shape[axis]), run.device(weights).T).reshape(shape)
    lead, trail = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    return run.call(matmul, run.device(weights), x.reshape(lead, x.shape[axis], trail)).reshape(shape)


LOWERINGS: dict[str, Lowering] = {"Resize": _resize}
