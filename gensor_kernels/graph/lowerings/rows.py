"""Reductions, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.api import norms, reductions
from gensor_kernels.dispatch.api.norms import elementwise

from .base import Lowering, Run, Tensor, is_served, refusal
from .elementwise import wide

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node


def _along(function: Callable[..., Any]) -> Lowering:
    def lowering(run: Run, node: Node, x: Tensor) -> Tensor:
        return run.call(function, x, node.attribute("axis"))

    return lowering


def _layer_norm(run: Run, node: Node, x: Tensor, scale: Tensor, bias: Tensor = None) -> Tensor:
    axis = node.attribute("axis")
    shape, eps = x.shape[axis:], node.attribute("epsilon")
    given = [each for each in (scale, bias) if each is not None]
    if any(each.ndim > len(shape) for each in given):
        y = _by_rows(run, run.call(norms.layer_norm, x, shape, eps=eps), *given)
    else:
        y = run.call(norms.layer_norm, x, shape, *(_spread(run, each, shape) for each in (scale, bias)), eps)
    if len(node.outputs) == 1:
        return y
    xp, x = run.together(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    centre = wide(xp, x).mean(axis=axes, keepdims=True)
    deviation = 1 / xp.sqrt(((wide(xp, x) - centre) ** 2).mean(axis=axes, keepdims=True) + eps)
    return (y, centre.astype(np.float32), deviation.astype(np.float32))[: len(node.outputs)]


def _rms_norm(run: Run, node: Node, x: Tensor, scale: Tensor) -> Tensor:
    shape, eps = x.shape[node.attribute("axis") :], node.attribute("epsilon")
    if scale.ndim > len(shape):
        return _by_rows(run, run.call(norms.rms_norm, x, shape, eps=eps), scale)
    return run.call(norms.rms_norm, x, shape, _spread(run, scale, shape), eps)


def _by_rows(run: Run, y: Tensor, *given: Tensor) -> Tensor:
    """Apply a norm's scale and bias, which differ from row to row: PyTorch exports a scale for every element of `x`
    where there is no weight."""
    return run.call(elementwise, y, [*zip(("mul", "add"), map(run.device, given), strict=False)])


def _spread(run: Run, array: Tensor, shape: tuple[int, ...]) -> Tensor:
    if array is None or tuple(array.shape) == tuple(shape):
        return array
    xp, array = run.together(array)
    return xp.ascontiguousarray(xp.broadcast_to(array, shape))


def _scale_channels(run: Run, x: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Return x * factor + shift, of vectors along the channels (axis 1)."""
    shape = (-1, *(1,) * (x.ndim - 2))
    factor, shift = (run.device(each).reshape(shape) for each in (factor, shift))
    return run.call(elementwise, x, [("mul", factor), ("add", shift)])


def _batch_norm(
    run: Run,
    node: Node,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
) -> Tensor:
    if node.attribute("training_mode"):
        raise refusal(node, "models are run for inference; export the model in evaluation mode")
    xp, scale, bias, mean, variance = run.together(scale, bias, mean, variance)
    factor = wide(xp, scale) / xp.sqrt(wide(xp, variance) + node.attribute("epsilon"))
    shift = wide(xp, bias) - wide(xp, mean) * factor
    return _scale_channels(run, x, factor.astype(x.dtype), shift.astype(x.dtype))


def _group_norm(run: Run, node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Compute a GroupNormalization, or an InstanceNormalization: a group of each channel."""
    groups = node.attribute("num_groups") or x.shape[1]
    count = math.prod(x.shape[1:]) // groups
    rows = run.device(x).reshape(x.shape[0], groups, count)
    normed = run.call(norms.layer_norm, rows, (count,), None, None, node.attribute("epsilon"))
    return _scale_channels(run, normed.reshape(x.shape), scale, bias)


def _mean_variance(run: Run, node: Node, x: Tensor) -> Tensor:
    axes = node.attribute("axes")
    xp, x = run.together(x)
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / (xp.sqrt((centred * centred).mean(axis=axes, keepdims=True)) + 1e-9).astype(x.dtype)


def _lrn(run: Run, node: Node, x: Tensor) -> Tensor:
    """x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta."""
    xp, x = run.together(x)
    size, channels = node.attribute("size"), x.shape[1]
    alpha, beta, bias = map(node.attribute, ("alpha", "beta", "bias"))
    low = (size - 1) // 2
    squares = xp.pad(x * x, [(0, 0), (low, size - 1 - low)] + [(0, 0)] * (x.ndim - 2))
    total = squares[:, :channels].copy()
    for place in range(1, size):
        total += squares[:, place : place + channels]
    return (x / (bias + alpha / size * total) ** beta).astype(x.dtype)


def _hardmax(run: Run, node: Node, x: Tensor) -> Tensor:
    xp, x = run.together(x)
    axis = node.attribute("axis")
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return (xp.arange(x.shape[axis]).reshape(shape) == xp.argmax(x, axis=axis, keepdims=True)).astype(x.dtype)


def _lp_normalization(run: Run, node: Node, x: Tensor) -> Tensor:
    xp, x = run.together(x)
    axis = node.attribute("axis")
    powers = xp.abs(x) if node.attribute("p") == 1 else x * x
    total = powers.sum(axis=axis, keepdims=True)
    length = total if node.attribute("p") == 1 else xp.sqrt(total)
    return xp.where(length == 0, 0, x / xp.where(length == 0, 1, length)).astype(x.dtype)


#: Our function of a reduction, and the same from an array library.
_REDUCTIONS: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any]]] = {
    "ReduceL1": (None, lambda xp, x, **k: xp.abs(x).sum(**k)),
    "ReduceL2": (reductions.norm, lambda xp, x, **k: xp.sqrt((x * x).sum(**k))),
    "ReduceLogSum": (None, lambda xp, x, **k: xp.log(x.sum(**k))),
    "ReduceLogSumExp": (reductions.logsumexp, lambda xp, x, **k: xp.log(xp.exp(x).sum(**k))),
    "ReduceMax": (reductions.max, lambda xp, x, **k: x.max(**k)),
    "ReduceMean": (reductions.mean, lambda xp, x, **k: x.mean(**k)),
    "ReduceMin": (reductions.min, lambda xp, x, **k: x.min(**k)),
    "ReduceProd": (reductions.prod, lambda xp, x, **k: x.prod(**k)),
    "ReduceSum": (reductions.sum, lambda xp, x, **k: x.sum(**k)),
    "ReduceSumSquare": (None, lambda xp, x, **k: (x * x).sum(**k)),
}


def _of_nothing(op: str, dtype: Dtype) -> float:
    """Return the least or the greatest number of a dtype: the maximum or minimum of no elements."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if op == "ReduceMax" else np.iinfo(dtype).max
    return op == "ReduceMin" if dtype == np.bool_ else -math.inf if op == "ReduceMax" else math.inf


def _reduction(op: str) -> Lowering:
    ours, library = _REDUCTIONS[op]

    def lowering(run: Run, node: Node, x: Tensor, axes: Tensor = None) -> Tensor:
        chosen = None if axes is None else tuple(run.integers(axes))
        if not chosen:
            if node.attribute("noop_with_empty_axes"):
                xp, x = run.together(x)
                return library(xp, x[None], axis=0, keepdims=False).astype(x.dtype)
            chosen = tuple(range(x.ndim))
        keep = bool(node.attribute("keepdims"))
        if ours is not None and is_served(x) and chosen:
            return run.call(ours, x, axis=chosen, keepdims=keep)
        xp, x = run.together(x)
        more: dict[str, Any] = {}
        if op in ("ReduceMax", "ReduceMin") and x.size == 0:  # ONNX has a result where NumPy raises
            more["initial"] = _of_nothing(op, x.dtype)
        with np.errstate(all="ignore"):
            return xp.asarray(library(xp, x, axis=chosen, keepdims=keep, **more)).astype(x.dtype)

    return lowering


def _position(function: Callable[..., Any]) -> Lowering:
    def lowering(run: Run, node: Node, x: Tensor) -> Tensor:
        axis, keep = node.attribute("axis"), bool(node.attribute("keepdims"))
        last = node.attribute("select_last_index")
        xp, given = run.together(x)
        given = xp.flip(given, axis) if last else given
        if is_served(x):
            found = run.call(function, given, axis=axis, keepdims=keep)
        else:
            found = getattr(xp, function.__name__)(given, axis=axis, keepdims=keep).astype(np.int64)
        return x.shape[axis] - 1 - found if last else found

    return lowering


LOWERINGS: dict[str, Lowering] = {
    **{op: _reduction(op) for op in _REDUCTIONS},
    "ArgMax": _position(reductions.argmax),
    "ArgMin": _position(reductions.argmin),
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "Hardmax": _hardmax,
    "InstanceNormalization": _group_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _along(norms.log_softmax),
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm,
    "Softmax": _along(norms.softmax),
}
