"""Depthwise convolution and pooling: their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Dtype, Namespace
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters
from gensor_kernels.dispatch.calls.fallback import holds
from gensor_kernels.operators.types.workload import View, Workload
from gensor_kernels.operators.windows import depthwise, pooling
from gensor_kernels.operators.windows.sliding import DEFAULTS, sides

from .base import AbstractCall, Copy, Function, Inputs, KernelCall, LibraryCall, NeedsCopies, Result
from .convolution import Convolution, joined_rows

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: An image's axes from the outermost to the innermost in memory, by the order its axes are given in.
MEMORY = {"NCHW": {"nchw": (0, 1, 2, 3), "nhwc": (0, 2, 3, 1)}, "NHWC": {"nchw": (0, 3, 1, 2), "nhwc": (0, 1, 2, 3)}}


@dataclass(frozen=True)
class PoolParameters:
    """The operator of a pooling, the order of axes, and sizes of its window."""

    operator: str
    layout: str
    sizes: tuple[tuple[str, int], ...]


class Pooling(Function):
    """A pooling of four-dimensional arrays; `parameters` is a PoolParameters."""

    name = "pooling"
    stands_in = False  # there is no product in it at which the library could be faster

    def result(self, inputs: Inputs, parameters: PoolParameters) -> Result:
        """Return the image's dtype, axes and order in memory."""
        x, images = inputs[0], IMAGES[parameters.layout]
        if x.ndim != 4:
            raise ValueError(f"{parameters.operator}: x has 4 axes ({parameters.layout}), not {x.ndim}")
        n, h, w, c = (x.shape[axis] for axis in images)
        if 0 in (h, w):
            raise ValueError(f"{parameters.operator}: x is an image with rows and columns, not {h} by {w}")
        oh, ow = pooling.output_sizes(parameters.operator, h=h, w=w, **dict(parameters.sizes))
        if parameters.layout == "NHWC":
            return Result((n, oh, ow, c), x.dtype)
        return Result((n, c, oh, ow), x.dtype, MEMORY["NCHW"]["nhwc"] if _last(x.strides, x.shape, images) else None)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Return the image in the result's order of axes in memory, copied where it has another one."""
        (x,), p = call.given, call.parameters
        images = IMAGES[p.layout]
        memory = "nhwc" if _last(call.out.strides, call.out.shape, images) else "nchw"
        if not _has_unit_stride(x, images, memory):
            raise NeedsCopies(Copy(x.dtype, MEMORY[p.layout][memory]))
        views = {"x": _turn(x, images), "y": _turn(call.out, images)}
        workload = pooling.workload_from_views(
            p.operator, *views.values(), layout=memory, epilogue=call.epilogue, **dict(p.sizes)
        )
        return KernelCall.of_views(workload, views, declared=lambda strides: tuple(strides[axis] for axis in images))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with axes (n, h, w, c) whatever the layout."""
        sizes = tuple((name, size) for name, size in workload.sizes if name not in "nhwc")
        return LibraryCall((arrays["x"],), PoolParameters(workload.operator, "NHWC", sizes))

    def library(
        self, device: Backend, inputs: Inputs, p: PoolParameters, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Make one pass over the image per position in the window."""
        x = inputs[0]
        images = IMAGES[p.layout]
        found = pool(device.xp, x.transpose(images), p, None if out is None else out.transpose(images))
        if out is not None:
            return out
        return found.transpose(0, 3, 1, 2) if p.layout == "NCHW" else found


class Depthwise(Convolution):
    """A convolution with one channel and one filter per group; `parameters` is a convolution's Parameters."""

    name = "depthwise_conv2d"

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take image and filter in the result's order of axes in memory, and copy others."""
        (x, w), p = call.given, call.parameters
        images, taps = IMAGES[p.layout], (p.weights[1], p.weights[2], p.weights[0])
        dtype = np.promote_types(x.dtype, w.dtype).name
        memory = "nhwc" if _last(call.out.strides, call.out.shape, images) else "nchw"
        k, r, s, c = p.weights
        order = (c, r, s, k) if memory == "nhwc" else (c, k, r, s)
        shape, strides = (tuple(values[a] for a in taps) for values in (w.shape, w.strides))
        filters = View(shape, strides, w.dtype, w.alignment)
        inner = filters.strides[2 if memory == "nhwc" else 1]
        good_w = w.dtype == dtype and (inner == 1 or filters.shape[2 if memory == "nhwc" else 1] == 1)
        good_x = x.dtype == dtype and _has_unit_stride(x, images, memory)
        if not (good_x and good_w):
            raise NeedsCopies(
                None if good_x else Copy(dtype, MEMORY[p.layout][memory]), None if good_w else Copy(dtype, order)
            )
        sizes = {name: size for name, size in p.sizes if name != "groups"}
        views = {"x": _turn(x, images), "w": filters, "y": _turn(call.out, images)}
        workload = depthwise.workload_from_views(*views.values(), layout=memory, epilogue=call.epilogue, **sizes)
        return KernelCall.of_views(workload, views, declared=lambda strides: tuple(strides[axis] for axis in images))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with axes (n, h, w, c) and (c, r, s, 1) whatever the layouts."""
        sizes = {name: workload.size[name] for name in DEFAULTS} | {"groups": workload.size["c"]}
        filters = arrays["w"].transpose(2, 0, 1)[..., None]
        return LibraryCall((arrays["x"], filters), Parameters("NHWC", tuple(sizes.items())))


class ReplacedConvolution(Depthwise):
    """Convolution of two images (h, w), as (1, 1, h, w) with the second reversed, that `accelerate` computes in the
    place of a function of CuPy: that serves where no kernel is faster, and is what kernels race.

    `compute` calls CuPy's function, for two images and a mode: "full", "same" or "valid".
    """

    one_call = True

    def __init__(self, name: str, mode: str, compute: Callable[[DeviceArray, DeviceArray, str], DeviceArray]):
        self.name, self._mode, self._compute = f"{name} {mode}", mode, compute

    def parameters(self, filter: Sequence[int]) -> Parameters:
        """Return the Parameters of a filter's shape."""
        sizes = {**dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "groups"), 1)}
        for extent, before, after in zip(filter, ("pad_top", "pad_left"), ("pad_bottom", "pad_right"), strict=True):
            whole = 0 if self._mode == "valid" else extent - 1
            sizes[before] = extent // 2 if self._mode == "same" else whole
            sizes[after] = whole - sizes[before] if self._mode == "same" else whole
        return Parameters("NCHW", tuple(sizes.items()))

    def by_library(
        self, device: Backend, operands: Operands, parameters: Any, result: Result, math: str | None
    ) -> DeviceArray:
        """Call CuPy's function."""
        x, w = (array[0, 0] for array in operands.inputs)
        return operands.give(self._compute(x, w[::-1, ::-1], self._mode)[None, None])


POOLING, DEPTHWISE = Pooling(), Depthwise()


def _turn(view: View, images: Sequence[int]) -> View:
    """Return a view with the axes (n, h, w, c)."""
    shape, strides = (tuple(values[axis] for axis in images) for values in (view.shape, view.strides))
    return View(shape, strides, view.dtype, view.alignment)


def _last(strides: Sequence[int], shape: Sequence[int], images: Sequence[int]) -> bool:
    """Return whether the channels of an array with these strides are innermost in memory."""
    _, h, w, c = (abs(strides[axis]) for axis in images)
    _, high, wide, channels = (shape[axis] for axis in images)
    if channels == 1:
        return wide == 1 == high
    return (wide == 1 or c < w) and (high == 1 or c < h)


def _has_unit_stride(view: View, images: Sequence[int], memory: str) -> bool:
    """Return whether the innermost axis of that order has stride 1."""
    axis = images[3 if memory == "nhwc" else 2]
    return view.strides[axis] == 1 or view.shape[axis] == 1


# ---- pooling by the array library: one pass over the image per position in the window


def pool(xp: Namespace, x: DeviceArray, p: PoolParameters, out: DeviceArray = None) -> DeviceArray:
    """Return the pooling of an image (n, h, w, c), in an `out` with its dtype where there is one."""
    n, h, w, c = x.shape
    high, wide = sides(pooling.complete(p.operator, n=n, h=h, w=w, c=c, **dict(p.sizes)))
    shape = (n, high.output, wide.output, c)
    maximum = p.operator == "max_pool2d"
    if maximum:
        least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        y = out
        if y is None:
            y = xp.full(shape, least, x.dtype)
        else:
            y[...] = least
    else:
        y = xp.zeros(shape, np.promote_types(x.dtype, np.float32))
    for r in range(high.window):
        rows = joined_rows(high.stride, r * high.dilation - high.pad, high.extent, high.output)
        for s in range(wide.window):
            columns = joined_rows(wide.stride, s * wide.dilation - wide.pad, wide.extent, wide.output)
            if rows is None or columns is None:
                continue
            seen = x[:, rows[0], columns[0]]
            where = (slice(None), rows[1], columns[1])
            y[where] = xp.maximum(y[where], seen) if maximum else y[where] + seen
    if maximum:
        return y
    counts = np.maximum(high.count()[:, None] * wide.count()[None], 1)
    counts = xp.asarray(counts)[None, :, :, None].astype(y.dtype)
    return _give(out, xp.divide(y, counts, out=out) if holds(out, y) else y / counts, x.dtype)


def _give(out: DeviceArray, value: DeviceArray, dtype: Dtype) -> DeviceArray:
    """Return a value as this dtype, in `out` where there is one."""
    return value.astype(dtype, copy=False) if out is None else Operands((), out, ()).give(value)
