"""Operators that move, make and select elements: views and copies of the array library."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.api import norms
from gensor_kernels.operators.types.workload import normal_axis

from .base import Lowering, Run, Tensor, channels_first, channels_last, is_served, name_of, refusal
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node


def _reshape(run: Run, node: Node, x: Tensor, shape: Tensor) -> Tensor:
    extents = run.integers(shape)
    if not node.attribute("allowzero"):
        extents = [x.shape[place] if extent == 0 else extent for place, extent in enumerate(extents)]
    try:
        if min(extents, default=0) < -1:
            raise ValueError
        return x.reshape(extents)
    except (ValueError, OverflowError):
        raise refusal(node, f"a tensor of shape {tuple(x.shape)} cannot have the shape {tuple(extents)}") from None


def _transpose(run: Run, node: Node, x: Tensor) -> Tensor:
    view = x.transpose(node.attribute("perm") or tuple(reversed(range(x.ndim))))
    if node.layout != "first":
        return view
    xp, view = run.together(view)
    return xp.ascontiguousarray(view)


def _flatten(run: Run, node: Node, x: Tensor) -> Tensor:
    axis = node.attribute("axis")
    axis += x.ndim if axis < 0 else 0
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _squeeze(run: Run, node: Node, x: Tensor, axes: Tensor = None) -> Tensor:
    chosen = None if axes is None else tuple(run.integers(axes))
    return x.squeeze(chosen)


def _unsqueeze(run: Run, node: Node, x: Tensor, axes: Tensor) -> Tensor:
    xp, x = run.together(x)
    return xp.expand_dims(x, tuple(run.integers(axes)))


def _concat(run: Run, node: Node, *values: Tensor) -> Tensor:
    xp, *values = run.together(*values)  # type: ignore[assignment]
    axis = node.attribute("axis")
    if node.layout == "last":
        return channels_first(xp.concatenate([channels_last(each) for each in values], axis=(0, 3, 1, 2)[axis]))
    return xp.concatenate(values, axis=axis)


def _layout(run: Run, node: Node, x: Tensor) -> Tensor:
    """Copy an image into the other layout."""
    xp, x = run.together(x)
    if node.layout == "last":
        return channels_first(xp.ascontiguousarray(channels_last(x)))
    return xp.ascontiguousarray(x)


def _split(run: Run, node: Node, x: Tensor, sizes: Tensor = None) -> Tensor:
    axis, count = node.attribute("axis"), len(node.outputs)
    if sizes is not None:
        extents = run.integers(sizes)
        if len(extents) != count or sum(extents) != x.shape[axis] or min(extents) < 0:
            raise ValueError(f"{x.shape[axis]} elements for {count} results are split into {extents}")
    else:
        step = -(-x.shape[axis] // count)
        extents = [min(step, x.shape[axis] - step * place) for place in range(count)]
    ends = np.cumsum(extents)
    key = [slice(None)] * x.ndim
    found = []
    for end, extent in zip(ends.tolist(), extents, strict=True):
        key[axis] = slice(end - extent, end)
        found.append(x[tuple(key)])
    return tuple(found)


def _slice(
    run: Run,
    node: Node,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor = None,
    steps: Tensor = None,
) -> Tensor:
    first, last = run.integers(starts), run.integers(ends)
    along = list(range(len(first))) if axes is None else run.integers(axes)
    stride = [1] * len(first) if steps is None else run.integers(steps)
    key = [slice(None)] * x.ndim
    for axis, begin, end, step in zip(along, first, last, stride, strict=True):
        extent = x.shape[axis]
        # NumPy counts from the end where ONNX clamps: an end below -extent is before the first element.
        stop: int | None = end if end >= 0 else end + extent
        if step < 0 and stop is not None and stop < 0:
            stop = None
        start = begin if begin >= 0 else max(begin + extent, 0)
        key[axis] = slice(start, None if stop is None else max(stop, 0), step)
    return x[tuple(key)]


def _gather(run: Run, node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.attribute("axis")
    if indices.ndim == 0 and run.is_known(node.inputs[1], indices):  # a view
        return x[(*(slice(None),) * (axis % x.ndim), int(indices))]
    xp, x, indices = run.together(x, indices)
    # A negative index counts from the end, as in NumPy.
    return xp.take(x, indices, axis=axis)


def _gather_elements(run: Run, node: Node, x: Tensor, indices: Tensor) -> Tensor:
    xp, x, indices = run.together(x, indices)
    return x[_elements(xp, node, x, indices)]


def _elements(xp: ModuleType, node: Node, x: Tensor, indices: Tensor) -> tuple[Tensor, ...]:
    """Return full indices for an array of indices along one axis."""
    axis, rank = node.attribute("axis"), indices.ndim
    key = [xp.arange(extent).reshape(-1, *(1,) * (rank - place - 1)) for place, extent in enumerate(indices.shape)]
    key[axis] = xp.where(indices < 0, indices + x.shape[axis], indices)
    return tuple(key)


def _gather_nd(run: Run, node: Node, x: Tensor, indices: Tensor) -> Tensor:
    xp, x, indices = run.together(x, indices)
    batch = node.attribute("batch_dims")
    lead = x.shape[:batch]
    flat = x.reshape(math.prod(lead), *x.shape[batch:])
    places = indices.reshape(math.prod(lead), -1, indices.shape[-1])
    rows = xp.arange(flat.shape[0])[:, None]
    found = flat[(rows, *(places[..., each] for each in range(places.shape[-1])))]
    return found.reshape((*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :]))


#: Functions of the array library whose method `at` applies updates one by one, by reduction.
_UPDATES = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _update(xp: ModuleType, node: Node, x: Tensor, key: tuple[Any, ...], updates: Tensor) -> Tensor:
    found, reduction = x.copy(), node.attribute("reduction")
    if reduction == "none":
        found[key] = updates
        return found
    try:
        getattr(xp, _UPDATES[reduction]).at(found, key, updates)
    except (AttributeError, TypeError):  # a function without atomics in this array library
        raise refusal(node, f"reduction {reduction!r} is not served by {xp.__name__}") from None
    return found


def _scatter_nd(run: Run, node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    xp, x, indices, updates = run.together(x, indices, updates)
    return _update(xp, node, x, tuple(indices[..., each] for each in range(indices.shape[-1])), updates)


def _scatter_elements(run: Run, node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    xp, x, indices, updates = run.together(x, indices, updates)
    return _update(xp, node, x, _elements(xp, node, x, indices), updates)


def _expand(run: Run, node: Node, x: Tensor, shape: Tensor) -> Tensor:
    xp, x = run.together(x)
    return xp.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(run.integers(shape))))


def _tile(run: Run, node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    xp, x = run.together(x)
    return xp.tile(x, run.integers(repeats))


def _shape(run: Run, node: Node, x: Tensor) -> Tensor:
    return np.array(x.shape[slice(node.attribute("start"), node.attribute("end"))], np.int64)


def _size(run: Run, node: Node, x: Tensor) -> Tensor:
    return np.array(x.size, np.int64)


def _cast(run: Run, node: Node, x: Tensor, like: Tensor = None) -> Tensor:
    if like is not None:
        dtype = like.dtype
    else:
        from onnx import helper

        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(node.attribute("to")))
    if dtype.kind in "OSU" or x.dtype.kind in "OSU":
        raise refusal(node, "tensors of text are not served")
    if dtype.name == "float8_e8m0fnu":
        raise refusal(node, "casts to float8_e8m0fnu are not served")
    if dtype.name.startswith("float8") and node.attribute("saturate"):
        xp, x = run.together(x)
        x = saturated(xp, x, dtype)
    if node.attribute("finite"):  # of this package: finite numbers stay finite
        xp, x = run.together(x)
        most = x.dtype.type(_largest(dtype))
        x = xp.where(xp.isfinite(x), xp.clip(x, -most, most), x)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def saturated(xp: ModuleType, x: Tensor, dtype: Dtype) -> Tensor:
    """Return floats within the range of another floating-point dtype."""
    most = _largest(dtype)
    return xp.clip(wide(xp, x), -most, most)  # NaN stays NaN


def _largest(dtype: Dtype) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


def _constant_of_shape(run: Run, node: Node, shape: Tensor) -> Tensor:
    value = np.asarray(node.attributes.get("value", np.float32(0)))
    return np.full(run.integers(shape), value.ravel()[0], value.dtype)


def _range(run: Run, node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, last, step = (run.host(each).item() for each in (start, limit, delta))
    return np.arange(first, last, step, dtype=start.dtype)


def _pad(run: Run, node: Node, x: Tensor, pads: Tensor, value: Tensor = None, axes: Tensor = None) -> Tensor:
    xp, x = run.together(x)
    along = list(range(x.ndim)) if axes is None else [each % x.ndim for each in run.integers(axes)]
    given = run.integers(pads)
    before, after = [0] * x.ndim, [0] * x.ndim
    for place, axis in enumerate(along):
        before[axis], after[axis] = given[place], given[place + len(along)]
    cut = tuple(
        slice(max(-low, 0), extent - max(-high, 0)) for low, high, extent in zip(before, after, x.shape, strict=True)
    )
    pairs = [(max(low, 0), max(high, 0)) for low, high in zip(before, after, strict=True)]
    mode = node.attribute("mode")
    if mode == "constant":
        fill = 0 if value is None else run.host(value).item()
        return xp.pad(x[cut], pairs, mode="constant", constant_values=fill)
    return xp.pad(x[cut], pairs, mode=mode)


def _depth_to_space(run: Run, node: Node, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = node.attribute("blocksize")
    if node.attribute("mode") == "DCR":
        return x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)
    return x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (b * b), h * b, w * b)


def _space_to_depth(run: Run, node: Node, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = node.attribute("blocksize")
    # Newer versions of the operator have the attribute.
    order = (0, 3, 5, 1, 2, 4) if node.attributes.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)


def _trilu(run: Run, node: Node, x: Tensor, k: Tensor = None) -> Tensor:
    xp, x = run.together(x)
    return (xp.triu if node.attribute("upper") else xp.tril)(x, 0 if k is None else int(run.host(k)))


def _one_hot(run: Run, node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    xp, indices, values = run.together(indices, values)
    count, axis = int(run.host(depth).item()), node.attribute("axis")
    axis += indices.ndim + 1 if axis < 0 else 0
    places = xp.where(indices < 0, indices + count, indices)
    shape = [1] * (indices.ndim + 1)
    shape[axis] = count
    hit = xp.expand_dims(places, axis) == xp.arange(count).reshape(shape)
    return xp.where(hit, values[1], values[0])


def _cumsum(run: Run, node: Node, x: Tensor, axis: Tensor) -> Tensor:
    return _running(run, node, x, axis, norms.cumsum)


def _running(run: Run, node: Node, x: Tensor, axis: Tensor, function: Callable[..., Tensor]) -> Tensor:
    """Return running sums or products along an axis, from either end, with or without the element itself."""
    xp, x = run.together(x)
    along = normal_axis(int(run.host(axis)), x.ndim)
    back, exclusive = node.attribute("reverse"), node.attribute("exclusive")
    turned = xp.flip(x, along) if back else x
    shifted = exclusive and x.shape[along] > 0
    outer = (slice(None),) * along
    turned = turned[(*outer, slice(-1))] if shifted else turned
    if is_served(turned) or (function is norms.cumsum and turned.size and name_of(x) == "int64" and xp is not np):
        total = run.call(function, turned, along)
    else:
        total = getattr(xp, function.__name__)(turned, axis=along, dtype=x.dtype)
    if shifted:
        first = xp.full_like(x[(*outer, slice(1))], function is norms.cumprod)
        total = xp.concatenate([first, total], axis=along)
    return xp.flip(total, along) if back else total


def _cumprod(run: Run, node: Node, x: Tensor, axis: Tensor) -> Tensor:
    return _running(run, node, x, axis, norms.cumprod)


def _top_k(run: Run, node: Node, x: Tensor, k: Tensor) -> Tensor:
    xp, x = run.together(x)
    count, axis = int(run.host(k).item()), node.attribute("axis")
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"{count} of {x.shape[axis]} elements are requested")
    if node.attribute("largest"):  # the first of equal elements comes first
        order = xp.flip(x.shape[axis] - 1 - xp.argsort(xp.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = xp.argsort(x, axis=axis, kind="stable")
    places = xp.take(order, xp.arange(count), axis=axis).astype(np.int64)
    return xp.take_along_axis(x, places, axis=axis), places


def _eye_like(run: Run, node: Node, x: Tensor) -> Tensor:
    xp, x = run.together(x)
    dtype = x.dtype
    if node.attribute("dtype") is not None:
        from onnx import helper

        dtype = helper.tensor_dtype_to_np_dtype(node.attribute("dtype"))
    return xp.eye(*x.shape, k=node.attribute("k"), dtype=dtype)


def _non_zero(run: Run, node: Node, x: Tensor) -> Tensor:
    run.reads_back()  # for the number of places
    xp, x = run.together(x)
    return xp.stack(xp.nonzero(xp.atleast_1d(x))).astype(np.int64)[: x.ndim]


def _compress(run: Run, node: Node, x: Tensor, condition: Tensor) -> Tensor:
    xp, x = run.together(x)
    axis = node.attribute("axis")
    places = np.flatnonzero(run.host(condition))
    return xp.take(x.ravel() if axis is None else x, xp.asarray(places), axis=0 if axis is None else axis)


def _reverse_sequence(run: Run, node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first elements along the time axis, as many as each row of the batch has."""
    xp, x, lengths = run.together(x, lengths)
    time, batch = node.attribute("time_axis"), node.attribute("batch_axis")
    place = xp.arange(x.shape[time])
    places = xp.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    places = places if batch < time else places.T
    places = places.reshape([extent if axis in (time, batch) else 1 for axis, extent in enumerate(x.shape)])
    return xp.take_along_axis(x, xp.broadcast_to(places, x.shape), axis=time)


def _unique(run: Run, node: Node, x: Tensor) -> tuple[Tensor, ...]:
    """Return distinct elements, or slices, where each is first, which one each is, and how often it occurs."""
    run.reads_back()
    axis, given = node.attribute("axis"), run.host(x)
    given = given.reshape(-1) if axis is None else given
    own = given.astype(np.float32) if name_of(given) == "bfloat16" else given
    _, first, which, count = np.unique(own, True, True, True, axis=0 if axis is None else axis)
    which = which.reshape(-1)
    if not node.attribute("sorted"):
        order = np.argsort(first)
        first, which, count = first[order], np.argsort(order)[which], count[order]
    found = np.take(given, first, axis=0 if axis is None else axis)
    return (found, *(each.astype(np.int64) for each in (first, which, count)))


def _det(run: Run, node: Node, x: Tensor) -> Tensor:
    xp, x = run.together(x)
    return xp.asarray(xp.linalg.det(wide(xp, x))).astype(x.dtype)


def _bit_cast(run: Run, node: Node, x: Tensor) -> Tensor:
    from onnx import helper

    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(node.attribute("to")))
    if dtype.itemsize != x.dtype.itemsize or dtype.kind in "OSU":
        raise refusal(node, f"elements of {x.dtype} are not as large as those of {dtype}")
    return x.view(dtype)


LOWERINGS: dict[str, Lowering] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast,
    "Compress": _compress,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumProd": _cumprod,
    "CumSum": _cumsum,
    "DepthToSpace": _depth_to_space,
    "Det": _det,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Layout": _layout,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unique": _unique,
    "Unsqueeze": _unsqueeze,
}
