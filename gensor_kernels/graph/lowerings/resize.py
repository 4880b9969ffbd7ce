"""Resizing of images: repeats, selections, and products with the weights of an interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
#: Places within a region of interest.
CROPPED = "tf_crop_and_resize"
#: Mappings of places in the result to places among the input's elements.
_COORDINATES = (
    *(CROPPED, "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",  # of version 11
)
#: nearest_mode of nodes of version 10, whose rounding no later version can name: floor, along axes that shrink ceil.
FLOOR_OR_CEIL = "floor_or_ceil"


def _resize(run: Run, node: Node, x: Tensor, roi: Tensor = None, scales: Tensor = None, sizes: Tensor = None) -> Tensor:
    """Resize the axes in turn: the nearest element, or an interpolation between neighbours."""
    mode, coordinates, rounding = map(node.attribute, ("mode", "coordinate_transformation_mode", "nearest_mode"))
    if mode not in ("nearest", "linear", "cubic"):
        raise refusal(node, f"mode {mode!r} is unknown")
    if coordinates not in _COORDINATES or rounding not in (*_ROUNDINGS, FLOOR_OR_CEIL):
        raise refusal(node, f"coordinates {shown(coordinates)} with rounding {shown(rounding)} are unknown")
    if mode != "nearest" and name_of(x) not in FLOATS:
        raise refusal(node, f"{mode} interpolation of {name_of(x)} is not served, only of floating-point numbers")
    axes = node.attribute("axes")
    along = list(range(x.ndim)) if axes is None else [each % x.ndim for each in axes]
    extents = [x.shape[axis] for axis in along]
    if sizes is None:
        factors = [float(each) for each in run.host(scales)]
        wanted = [math.floor(given * np.float32(each)) for given, each in zip(extents, factors, strict=True)]
    else:
        wanted = run.integers(sizes)
        factors = [size / given for size, given in zip(wanted, extents, strict=True)]
        policy = node.attribute("keep_aspect_ratio_policy")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(factors)
            wanted = [int(factor * given + 0.5) for given in extents]
    crops = [(0.0, 1.0)] * len(along)
    if coordinates == CROPPED:
        ends = [float(each) for each in run.host(roi)]
        crops = list(zip(ends[: len(along)], ends[len(along) :], strict=True))
    kernel: tuple[Any, ...] = (mode,)
    if mode != "nearest":
        antialias, outside = bool(node.attribute("antialias")), bool(node.attribute("exclude_outside"))
        kernel = (mode, antialias, outside, node.attribute("cubic_coeff_a"))
    for axis, extent, scale, crop in zip(along, wanted, factors, crops, strict=True):
        given = x.shape[axis]
        if extent == given and scale == 1 and crop == (0.0, 1.0):
            continue
        place = given, extent, scale, coordinates, crop
        if mode == "nearest":
            x = _select(run, x, axis, _nearest(*place, rounding))
        else:
            x = _interpolate(run, x, axis, _weights(*place, kernel, name_of(x)))
        if coordinates == CROPPED:
            places = _places(*place)
            outside = ((places < 0) | (places > given - 1)).reshape(-1, *(1,) * (x.ndim - axis - 1))
            if outside.any():
                xp, x = run.together(x)
                value = x.dtype.type(node.attribute("extrapolation_value"))
                x = xp.where(xp.asarray(outside), value, x)
    return x


def _places(given: int, extent: int, scale: float, coordinates: str, crop: tuple[float, float]) -> np.ndarray:
    """Return the place of each element of the result among those of the input, in float32 as other libraries do."""
    place = np.arange(extent, dtype=np.float32)
    if coordinates == "asymmetric":
        return place / scale
    if coordinates == CROPPED:
        low, high = (each * (given - 1) for each in crop)
        return low + place * (high - low) / (extent - 1) if extent > 1 else place + (low + high) / 2
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
def _nearest(
    given: int, extent: int, scale: float, coordinates: str, crop: tuple[float, float], rounding: str
) -> np.ndarray:
    if rounding == FLOOR_OR_CEIL:
        rounding = "ceil" if scale < 1 else "floor"
    found = _ROUNDINGS[rounding](_places(given, extent, scale, coordinates, crop))
    return np.clip(found, 0, given - 1).astype(np.int64)


@lru_cache(maxsize=256)
def _weights(
    given: int,
    extent: int,
    scale: float,
    coordinates: str,
    crop: tuple[float, float],
    kernel: tuple[str, bool, bool, float],
    dtype: str,
) -> np.ndarray:
    """Return the matrix (extent, given) that interpolates between neighbours; the edges continue."""
    mode, antialias, exclude_outside, slope = kernel
    place = _places(given, extent, scale, coordinates, crop)
    if mode == "linear" and not antialias:
        place = np.clip(place, 0, given - 1)
    spread = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil((2 if mode == "cubic" else 1) / spread)
    base = np.floor(place).astype(np.int64)
    taps = np.arange(1 - reach, reach + 1)
    columns = base[:, None] + taps
    distances = np.abs(taps - (place - base)[:, None]).astype(np.float64) * spread
    values = cubic(distances, slope) if mode == "cubic" else np.clip(1 - distances, 0, 1)
    if exclude_outside:
        values[(columns < 0) | (columns >= given)] = 0
    if exclude_outside or antialias:
        values /= values.sum(axis=1, keepdims=True)
    found = np.zeros((extent, given))
    np.add.at(found, (np.arange(extent)[:, None], np.clip(columns, 0, given - 1)), values)
    return found.astype(np.float32).astype(dtype)


def cubic(distances: Tensor, slope: float) -> Tensor:
    """Return the weights of a cubic convolution at distances from 0 to 2, and 0 beyond (Keys, 1981)."""
    near = ((slope + 2) * distances - (slope + 3)) * distances * distances + 1
    far = ((distances - 5) * distances + 8) * distances * slope - 4 * slope
    return near * (distances <= 1) + far * ((distances > 1) & (distances < 2))


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
