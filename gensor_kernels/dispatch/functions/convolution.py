"""Convolutions: their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Namespace
from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts
from gensor_kernels.operators.types.workload import View, Workload
from gensor_kernels.operators.windows import conv, conv_folded
from gensor_kernels.operators.windows.sides import output_size

from .base import AbstractCall, Copy, Function, Inputs, KernelCall, LibraryCall, NeedsCopies, Result, compact

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: Axes of the run that is read or written in vectors, by operand and its layout in memory.
RUNS = {"nhwc": "c", "nchw": "", "krsc": "rsc", "rsck": "k", "kcrs": "crs", "nhwk": "c", "nkhw": "hw"}


class Convolution(Function):
    """A convolution of four-dimensional arrays; `parameters` is a Parameters."""

    name = "conv2d"
    #: whether neighbouring columns may become channels, and bands of rows images (windows/conv_folded.py)
    folds = True

    def result(self, inputs: Inputs, parameters: Parameters) -> Result:
        """Return (n, k, oh, ow) or (n, oh, ow, k), in the order of the image in memory where kernels take that."""
        x, w = inputs
        sizes = full_sizes(x.shape, w.shape, parameters)
        dtype = np.promote_types(x.dtype, w.dtype)
        dtype = np.dtype(parameters.dtype or (np.int32 if dtype == np.int8 else dtype))
        oh, ow = (output_size(sizes, side, parameters.transposed) for side in "hw")
        grouped = parameters.transposed and sizes["groups"] > 1  # no kernel writes these with channels innermost
        if parameters.layout == "NHWC":
            return Result((sizes["n"], oh, ow, sizes["k_out"]), dtype, (0, 3, 1, 2) if grouped else None)
        last = x.shape[1] > 1 and abs(x.strides[1]) < min(abs(stride) for stride in x.strides[2:])
        return Result((sizes["n"], sizes["k_out"], oh, ow), dtype, (0, 2, 3, 1) if last and not grouped else None)

    def nothing(self, inputs: Inputs, parameters: Any) -> float | None:
        """Return zeros where the image has no channels, or nothing but padding."""
        return 0.0 if inputs[0].size == 0 else None

    def op(self, parameters: Parameters) -> str:
        """Return the operator, which differs for transposed convolutions."""
        return "conv2d_transpose" if parameters.transposed else self.name

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides of the image, and weights whose filters are contiguous; copy others."""
        (x, w), p = call.given, call.parameters
        sizes = full_sizes(x.shape, w.shape, p)
        dtype = np.promote_types(x.dtype, w.dtype).name
        if dtype not in ACCUMULATORS:
            raise UnsupportedError(f"a convolution takes {', '.join(ACCUMULATORS)}, got {dtype}: cast x and w")
        images = IMAGES[p.layout]
        last = _has_channels_last(call.out, images)
        layout = _weight_layout(w, p, sizes, last)
        copy_x = None if x.dtype == dtype else compact(x, dtype)
        copy_w = None if layout and w.dtype == dtype else Copy(dtype, _weight_order(p, last))
        if copy_x or copy_w or layout is None:
            raise NeedsCopies(copy_x, copy_w)
        layouts = {"x": "nhwc" if last else "nchw", "w": layout, "y": "nhwk" if last else "nkhw"}
        named = {
            "x": _name_axes(x, images, "nhwc"),
            "w": _name_axes(w, p.weights, "krsc"),
            "y": _name_axes(call.out, images, "nhwc"),
        }
        bands = 1
        if self.folds and not p.transposed:
            sizes, layouts, named = _fold(sizes, layouts, named, dtype)
            bands = _bands(sizes, layouts, named, [_name_axes(v, images, "nhwc") for v in call.operands if v])
            sizes, named = conv_folded.split_bands(sizes, bands), _split_bands(named, bands)
        alignment = {name: _alignment(*named[name], RUNS[layouts[name]]) for name in named}
        workload = conv.from_layouts(
            sizes,
            layouts=layouts,
            dtypes={"x": dtype, "w": dtype, "y": call.result.dtype.name},
            alignment=alignment,
            math=call.math if dtype == "float32" else "ieee",
            epilogue=call.epilogue,
            transposed=p.transposed,
        )

        def declared(strides: Sequence[int]) -> tuple[int, ...]:
            n, h, *others = (strides[axis] for axis in images)
            return _group_strides([n if bands == 1 else h, h, *others], sizes["k_out"] // sizes["groups"])

        arrays = _strides(sizes, named, p.transposed) | {"y": declared(call.out.strides)}
        return KernelCall(workload, operator(workload.operator).geometry(workload, arrays), declared)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return arguments with axes (n, h, w, c) and (k, r, s, c); transposed: (c, r, s, k); whatever the layouts."""
        declared: Any = operator(workload.operator)
        x, w, shape = arrays["x"], arrays["w"], declared.operands(workload)[-1].shape
        if declared.transposed:
            w = w.transpose(0, 4, 2, 3, 1)
        p = Parameters("NHWC", tuple((n, workload.size[n]) for n in declared.parameters), declared.transposed)
        inputs = x.reshape(*x.shape[:3], -1), w.reshape(-1, *w.shape[2:])
        return LibraryCall(inputs, p, lambda value: value.reshape(shape))

    def library(
        self, device: Backend, inputs: Inputs, p: Parameters, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Add up one product per tap of the filter."""
        x, w = inputs
        return convolve(device, x, w, full_sizes(x.shape, w.shape, p), p, math)


CONVOLUTION = Convolution()


def full_sizes(x: Sequence[int], w: Sequence[int], p: Parameters) -> dict[str, int]:
    """Return all sizes of a convolution; ValueError for shapes that do not fit."""
    if len(x) != 4 or len(w) != 4:
        raise ValueError(f"convolution: x and w have 4 axes ({p.layout}), not {len(x)} and {len(w)}")
    n, h, width, c = (x[axis] for axis in IMAGES[p.layout])
    k, r, s, depth = (w[axis] for axis in p.weights)
    sizes = dict(n=n, h=h, w=width, c=c, k_out=k, r=r, s=s) | dict(p.sizes)
    groups = sizes["groups"]
    if p.transposed:
        sizes["k_out"] = k * groups
    if (c != depth) if p.transposed else (c != depth * groups):
        what = f"{depth}" if p.transposed or groups == 1 else f"{depth} x {groups} groups"
        raise ValueError(f"convolution: x has {c} channels, w is for {what}")
    conv.check(sizes, p.transposed)
    return sizes


Named = tuple[View, Mapping[str, tuple[int, int]]]


def _group_strides(strides: Sequence[int], channels: int) -> tuple[int, ...]:
    """Return the strides of (image, row, column, group, channel), for groups of `channels` channels."""
    n, h, w, channel = strides
    return n, h, w, channel * channels, channel


def _strides(sizes: Mapping[str, int], named: Mapping[str, Named], transposed: bool) -> dict[str, tuple[int, ...]]:
    """Return the strides of image and weights along the axes that the operator declares."""
    k, c = sizes["k_out"] // sizes["groups"], sizes["c"] // sizes["groups"]
    s = {axis: stride for axis, (_, stride) in named["w"][1].items()}
    group = s["c"] * c if transposed else s["k"] * k
    image = _group_strides([stride for _, stride in named["x"][1].values()], c)
    return {"x": image, "w": (group, s["k"], s["r"], s["s"], s["c"])}


def _name_axes(view: View, axes: Sequence[int], names: str) -> Named:
    """Return a view with its (extent, stride) by axis."""
    return view, {name: (view.shape[a], view.strides[a]) for name, a in zip(names, axes, strict=True)}


def _fold(
    sizes: dict[str, int], layouts: dict[str, str], named: dict[str, Named], dtype: str
) -> tuple[dict[str, int], dict[str, str], dict[str, Named]]:
    """Return (sizes, layouts, operands) with neighbouring columns as channels, as far as windows move by as many."""
    by, c = conv_folded.fold(sizes, dtype), sizes["c"]
    for name, column in (("x", "w"), ("w", "s")):
        axes = named[name][1]
        if axes[column][1] != c or (c > 1 and axes["c"][1] != 1):
            by = 1
    if by == 1:
        return sizes, layouts, named

    def wide(name: str, column: str) -> Named:
        view, axes = named[name]
        extent, stride = axes[column]
        return view, {**axes, column: (extent // by, stride * by), "c": (c * by, 1)}

    arranged = {"x": wide("x", "w"), "w": wide("w", "s"), "y": named["y"]}
    return conv_folded.fold_columns(sizes, by), conv_folded.folded_layouts(layouts), arranged


def _bands(
    sizes: Mapping[str, int], layouts: Mapping[str, str], named: Mapping[str, Named], operands: Sequence[Named]
) -> int:
    """Return the images that the rows of one become: one where an operand has gaps between its images."""
    by = conv_folded.bands(sizes, layouts)
    each = [named["x"][1], named["y"][1], *(axes for _, axes in operands)]
    return by if all(axes["n"][1] == axes["h"][0] * axes["h"][1] for axes in each) or sizes["n"] == 1 else 1


def _split_bands(named: Mapping[str, Named], by: int) -> dict[str, Named]:
    """Return the operands with bands of rows as images."""

    def cut(view: View, axes: Mapping[str, tuple[int, int]]) -> Named:
        height, row = axes["h"]
        band = height // by
        return view, {**axes, "n": (axes["n"][0] * by, row * band), "h": (band, row)}

    return {name: each if by == 1 or name == "w" else cut(*each) for name, each in named.items()}


def _alignment(view: View, axes: Mapping[str, tuple[int, int]], run: str) -> int:
    """Return the bytes that divide the address and all strides but the run's; an element's where the run has a gap."""
    size, reach = facts(view.dtype).itemsize, 1
    for name in reversed(run):
        extent, stride = axes[name]
        if extent > 1 and stride != reach:
            return size
        reach *= extent
    steps = [view.alignment, *(s * size for name, (e, s) in axes.items() if name not in run and e > 1)]
    return next((width for width in (16, 8, 4) if run and not any(step % width for step in steps)), size)


def _has_channels_last(out: View, images: Sequence[int]) -> bool:
    """Return whether the result's channels are innermost in memory; UnsupportedError where its rows are not either."""
    (_, h, w, c), strides = (out.shape[a] for a in images), [out.strides[a] for a in images]
    if (strides[3] == 1 and c > 1) or (c == 1 and h * w > 1 and strides[2] != 1):
        return True
    if (w == 1 or strides[2] == 1) and (h == 1 or strides[1] == w * (strides[2] if w > 1 else 1)):
        return False
    raise UnsupportedError("a result whose rows and channels both have gaps in memory")


def _weight_layout(w: View, p: Parameters, sizes: Mapping[str, int], last: bool) -> str | None:
    """Return the layout of the weights, None where no kernel takes it."""
    axes = _name_axes(w, p.weights, "krsc")[1]
    c = sizes["c"] // sizes["groups"]
    digits = {"r": axes["r"], "s": axes["s"], "c": (c, axes["c"][1])}
    reach = None
    for name in "csr" if last else "src":
        extent, stride = digits[name]
        if extent > 1:
            reach = stride if reach is None else reach
            if stride != reach:
                return None
        reach = None if reach is None else reach * extent
    inner = next((digits[name][1] for name in ("csr" if last else "src") if digits[name][0] > 1), 1)
    if inner == 1:
        return "krsc" if last else "kcrs"
    return "rsck" if last and axes["k"][1] == 1 and axes["k"][0] > 1 else None


def _weight_order(p: Parameters, last: bool) -> tuple[int, ...]:
    """Return the axes of weights in the order that kernels take."""
    k, r, s, c = p.weights
    if p.transposed and last and dict(p.sizes)["groups"] > 1:
        raise UnsupportedError("a grouped transposed convolution with channels last")
    return (k, r, s, c) if last else (k, c, r, s)


# ---- by the array library: one product per tap of the filter


def convolve(
    device: Backend, x: DeviceArray, w: DeviceArray, sizes: Mapping[str, int], p: Parameters, math: str | None
) -> DeviceArray:
    """Convolve by the array library: a product of the strided, padded image and the weights for every tap."""
    xp, groups = device.xp, sizes["groups"]
    dtype = np.promote_types(x.dtype, w.dtype)
    wide = np.dtype(np.int32) if dtype == np.int8 else np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    image, z = _pad(xp, x.transpose(IMAGES[p.layout]).astype(wide, copy=False), sizes, p.transposed)
    weights = w.transpose(p.weights).astype(wide, copy=False)
    n, h, width, c = image.shape
    c, k = c // groups, z["k_out"] // groups
    image = image.reshape(n, h, width, groups, c).transpose(3, 0, 1, 2, 4)  # (g, n, h, w, c)
    if p.transposed:
        weights = weights.reshape(k, z["r"], z["s"], groups, c).transpose(3, 1, 2, 4, 0)
    else:
        weights = weights.reshape(groups, k, z["r"], z["s"], c).transpose(0, 2, 3, 4, 1)  # (g, r, s, c, k)
    oh, ow = (output_size(z, side, p.transposed) for side in "hw")
    y = xp.zeros((groups, n, oh, ow, k), wide)
    for r in range(z["r"]):
        rows = _tap(z, "h", r, oh, p.transposed)
        for s in range(z["s"]):
            columns = _tap(z, "w", s, ow, p.transposed)
            if rows is None or columns is None:
                continue
            taken = image[:, :, rows[0], columns[0]]
            flat = xp.ascontiguousarray(taken).reshape(groups, -1, c)
            part = device.product(flat, xp.ascontiguousarray(weights[:, r, s]), math)
            y[:, :, rows[1], columns[1]] += part.reshape(*taken.shape[:-1], k)
    found = y.transpose(1, 2, 3, 0, 4).reshape(n, oh, ow, groups * k)
    return found.transpose(0, 3, 1, 2) if p.layout == "NCHW" else found


def _pad(
    xp: Namespace, image: DeviceArray, z: Mapping[str, int], transposed: bool
) -> tuple[DeviceArray, Mapping[str, int]]:
    """Return the image (n, h, w, c) with its zeros, and the sizes of a convolution without padding: where weights are
    not finite, their products with these zeros are NaN, as in kernels."""
    top, left = z["pad_top"], z["pad_left"]
    h, w = z["h"] + top + z["pad_bottom"], z["w"] + left + z["pad_right"]
    if transposed or (h, w) == (z["h"], z["w"]):
        return image, z
    padded = xp.zeros((image.shape[0], h, w, image.shape[3]), image.dtype)
    padded[:, top : top + z["h"], left : left + z["w"]] = image
    return padded, {**z, "h": h, "w": w, "pad_top": 0, "pad_left": 0, "pad_bottom": 0, "pad_right": 0}


def _tap(z: Mapping[str, int], side: str, tap: int, out: int, transposed: bool) -> tuple[slice, slice] | None:
    """Return (rows of the image, rows of the result) that one row of the filter joins, or None if there are none."""
    stride, shift = z[f"stride_{side}"], tap * z[f"dilation_{side}"] - z["pad_top" if side == "h" else "pad_left"]
    if not transposed:
        return joined_rows(stride, shift, z[side], out)
    found = joined_rows(stride, shift, out, z[side])
    return None if found is None else (found[1], found[0])


def joined_rows(stride: int, shift: int, extent: int, count: int) -> tuple[slice, slice] | None:
    """Return (those of `extent` rows that are row o stride + shift of an o, these o of `count`), or None for none."""
    first = max(0, -(shift // stride)) if shift < 0 else 0
    end = min(count, (extent - 1 - shift) // stride + 1)
    if first >= end:
        return None
    return slice(first * stride + shift, (end - 1) * stride + shift + 1, stride), slice(first, end)
