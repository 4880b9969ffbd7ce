"""Implicit GEMM: a convolution as a matrix product whose operand, the image, is read through a window.

Channels of y last: C[pixel, filter] = A[pixel, k] B[k, filter], a batch entry per group, A the image.  Channels of y
first: C[filter, pixel] = A[filter, k] B[k, pixel], a batch entry per image and group, B the image; or per group, where
they come before the images too ("knhw").  So y is stored along its unit stride.  k is (r, s, c) if channels of x are
last and (c, r, s) if they are first, so that the weights are a plain matrix in both cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gensor_kernels.operators.declaration.lowered import Product, Side
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.products.matmul import product_and_bound
from gensor_kernels.operators.types.dtypes import decode, facts
from gensor_kernels.operators.types.geometry import Geometry, Strides, Window, flat_stride
from gensor_kernels.operators.types.workload import Workload

from .sides import along, output_size

#: Memory orders of the declared axes (n, h, w, g, c), (g, k, r, s, c), (n, oh, ow, g, k), the outermost first.
IMAGES = {"nhwc": (0, 1, 2, 3, 4), "nchw": (0, 3, 4, 1, 2)}
WEIGHTS = {"krsc": (0, 1, 2, 3, 4), "rsck": (2, 3, 4, 0, 1), "kcrs": (0, 1, 4, 2, 3)}
OUTPUTS = {"nhwk": (0, 1, 2, 3, 4), "nkhw": (0, 3, 4, 1, 2), "knhw": (3, 4, 0, 1, 2)}
#: The digits of k (see Product.order): plain, transposed.
ORDERS = {"nhwc": (1, 3), "nchw": (2, 4)}


@dataclass(frozen=True)
class Convolution(Operator):
    """A convolution, or a transposed convolution, for tuner and dispatch."""

    columns = 2  # a bias runs along (g, k)

    @property
    def transposed(self) -> bool:
        """Whether this is the transposed convolution."""
        return self.name.startswith("conv2d_transpose")

    def flops(self, workload: Workload) -> int:
        """Return the operations; see Operator.

        In a transposed convolution every pixel meets every tap once, even if cropped: a stride leaves most taps of an
        output without a pixel, and kernels need not multiply them.
        """
        if not self.transposed:
            return super().flops(workload)
        z = workload.size
        each = 8 if facts(workload.accumulator).is_complex else 2
        return each * z["n"] * z["h"] * z["w"] * z["c"] * (z["k_out"] // z["groups"]) * z["r"] * z["s"]

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return x (n, h, w, g, c), w (g, k, r, s, c) and y (n, oh, ow, g, k)."""
        return self.plain_operands(workload)

    def plain_operands(self, workload: Workload) -> tuple[Operand, Operand, Operand]:
        """Return x, w and y, also for a convolution with more inputs."""
        z, layouts = workload.size, {name: workload.layouts[name] for name in "xwy"}
        g, oh, ow = z["groups"], self.out(z, "h"), self.out(z, "w")
        c, k = z["c"] // g, z["k_out"] // g
        for name, known in (("x", IMAGES), ("w", WEIGHTS), ("y", OUTPUTS)):
            if layouts[name] not in known:
                raise ValueError(f"'layout' of {name} is one of {', '.join(known)}, not {layouts[name]!r}")
        last = layouts["x"] == "nhwc"
        if (not last and layouts["y"] == "nhwk") or last == (layouts["w"] == "kcrs"):
            raise ValueError(f"the layouts {', '.join(layouts.values())} do not go together")
        return (
            Operand("x", (z["n"], z["h"], z["w"], g, c), IMAGES[layouts["x"]], 2 if last else 1),
            # k is flattened: nothing may come between its digits.
            Operand("w", (g, k, z["r"], z["s"], c), WEIGHTS[layouts["w"]], 2 if layouts["w"] == "rsck" else 3),
            Operand("y", (z["n"], oh, ow, g, k), OUTPUTS[layouts["y"]], 2),
        )

    def out(self, sizes: Mapping[str, int], side: str) -> int:
        """Return the output rows (side "h") or columns ("w")."""
        return output_size(sizes, side, self.transposed)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the implicit product; UnsupportedError if the weights' k or the output's pixels are not evenly
        spaced."""
        z, last = workload.size, workload.layouts["x"] == "nhwc"
        _, w, y = self.plain_operands(workload)
        g, k, r, s, c = w.shape
        x_n, x_h, x_w, x_g, _ = strides["x"]
        w_g, w_k, w_r, w_s, w_c = strides["w"]
        digits = ((r, w_r), (s, w_s), (c, w_c)) if last else ((c, w_c), (r, w_r), (s, w_s))
        depth = flat_stride(digits, "the weights' filter rows, columns and channels")
        pixels = y.shape[1] * y.shape[2]
        tail = self._window(workload, strides["x"]).pack()
        out = self.output(workload, strides["y"])
        # The implicit matrix has no stride per row and column: the image's own strides are given.
        if _pixels_are_rows(workload):
            sizes = z["n"] * pixels, k, r * s * c
            images, weights = Strides((0, 0, x_g), x_h, x_w), Strides((0, 0, w_g), depth, w_k)
            return Geometry(sizes, (1, 1, g), images, weights, out, tail=tail)
        entries, columns = _entries_and_columns(workload, pixels)
        images, weights = Strides((0, x_n, x_g), x_h, x_w), Strides((0, 0, w_g), w_k, depth)
        return Geometry((k, columns, c * r * s), (1, entries, g), weights, images, out, tail=tail, swapped=True)

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides with pixels as rows, or as columns if channels come first."""
        shape = self.operands(workload)[-1].shape
        n, h, w, g, k = strides
        what = "the output's rows and columns"
        digits = tuple(zip(shape[:3], (n, h, w), strict=True))
        if workload.layouts["y"] == "nkhw":
            return Strides((0, n, g), k, flat_stride(digits[1:], what))
        pixel = flat_stride(digits, what)
        return Strides((0, 0, g), pixel, k) if _pixels_are_rows(workload) else Strides((0, 0, g), k, pixel)

    def _window(self, workload: Workload, strides: tuple[int, ...]) -> Window:
        z, (x_n, x_h, x_w, _, x_c) = workload.size, strides
        last, groups = workload.layouts["x"] == "nhwc", z["groups"]
        step, dilation = (z["stride_h"], z["stride_w"]), (z["dilation_h"], z["dilation_w"])
        pad, c = (z["pad_top"], z["pad_left"]), max(z["c"] // groups, 1)  # kernels divide by it
        taps = (dilation[0] * x_h, dilation[1] * x_w)
        rows, ks = (self.out(z, "h"), self.out(z, "w")), (z["s"], c) if last else (z["r"], z["s"])
        if self.transposed:  # index = (output + pad - dilation * filter) / stride
            return Window(
                rows=rows,
                ks=ks,
                row_strides=(x_n, x_h, x_w),
                k_strides=(0, 0, x_c) if last else (x_c, 0, 0),
                extent=(z["h"], z["w"]),
                step=(1, 1),
                dilation=(-dilation[0], -dilation[1]),
                pad=(-pad[0], -pad[1]),
                divisor=step,
            )
        return Window(
            rows=rows,
            ks=ks,
            row_strides=(x_n, step[0] * x_h, step[1] * x_w),
            k_strides=(*taps, x_c) if last else (x_c, *taps),
            extent=(z["h"], z["w"]),
            step=step,
            dilation=dilation,
            pad=pad,
            shift=pad[0] * x_h + pad[1] * x_w,
        )

    def product(self, workload: Workload) -> Product:
        """Return sizes and sides of the implicit product."""
        z, types, align = workload.size, workload.dtype, workload.align
        _, (g, k, r, s, c), y = (each.shape for each in self.plain_operands(workload))
        rows = _pixels_are_rows(workload)
        depth, pixels = r * s * c, y[1] * y[2]
        filters = "k" if workload.layouts["w"] != "rsck" else "n" if rows else "m"
        image = Side(
            types["x"], "k" if workload.layouts["x"] == "nhwc" else "n", align["x"], z["n"] * z["h"] * z["w"] * z["c"]
        )
        weights = Side(types["w"], filters, align["w"], g * k * depth)
        out = Side(types["y"], "n", align["y"])
        order = ORDERS[workload.layouts["x"]][self.transposed]
        if rows:
            return Product(g, z["n"] * pixels, k, depth, image, weights, out, "a", order)
        entries, columns = _entries_and_columns(workload, pixels)
        return Product(entries * g, k, columns, depth, weights, image, out, "b", order)

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a strided, dilated, asymmetrically padded 3 x 3 convolution of about the wanted product."""
        last, channels_last = _pixels_are_rows(workload), workload.layouts["x"] == "nhwc"
        vector = {name: workload.align[name] // facts(workload.dtype[name]).itemsize for name in workload.dtype}
        whole = {"c": max(vector["x"] if channels_last else 1, vector["w"] if workload.layouts["w"] != "rsck" else 1)}
        whole["k"] = max(vector["y"] if last else 1, vector["w"] if workload.layouts["w"] == "rsck" else 1)
        rows, filters = ("m", "n") if last else ("n", "m")
        # An odd number of accesses: row counts that are no multiple of a tile of two accesses occur.
        ow = 7 if last else (-(-13 // vector["y"]) | 1) * vector["y"]
        if workload.layouts["y"] == "nkhw":
            groups, oh = 1 + (wanted["batch"] > 2), max(1, -(-wanted[rows] // ow))
            n = -(-wanted["batch"] // groups)
        else:  # pixels of all images are one axis; at least two images, where they are columns
            groups, oh = wanted["batch"], 3 if last else min(max(wanted[rows] // (2 * ow), 1), 3)
            n = max(1, -(-wanted[rows] // (oh * ow)))
        z = {"r": 3, "s": 3, "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 2, "groups": groups}
        z |= {"pad_top": 1, "pad_bottom": 0, "pad_left": 2, "pad_right": 1, "n": n}
        z["c"] = -(-wanted["k"] // (9 * whole["c"])) * whole["c"] * groups
        z["k_out"] = -(-wanted[filters] // whole["k"]) * whole["k"] * groups
        if self.transposed:
            z |= {"stride_w": 2, "output_padding_h": 1, "output_padding_w": 0}
            # The smallest image with at least the wanted output, cropped to it.
            z |= {"h": max(1, oh // 2), "w": max(1, ow // 2)}
            z["pad_bottom"] = output_size(z, "h", True) - oh
            z["pad_right"] += output_size(z, "w", True) - ow
        else:
            z |= {"pad_bottom": 2, "h": max(1, 2 * (oh - 1)), "w": (ow - 1) + 5 - 3}
        return workload.with_sizes(**z)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product of gathered patches and the filters in float64; see Operator."""
        from gensor_kernels.operators.tolerance.fused import spread

        x, w = (decode(workload.dtype[name], arrays[name]) for name in "xw")
        z = workload.size
        g, k, r, s, c = w.shape
        a = patches(x, z, self.transposed)  # (g, n oh ow, r s c)
        b = w.reshape(g, k, r * s * c).transpose(0, 2, 1)
        product, bound = product_and_bound(a, b, workload, workload.dtype["x"], structured=conditions.structured)
        if conditions.away is not None:
            bound = bound + spread(patches(conditions.away, z, self.transposed), b)
        shape = self.operands(workload)[-1].shape
        flat = (shape[3], *shape[:3], shape[4])
        product, bound = (
            np.moveaxis(np.broadcast_to(each, (*a.shape[:2], k)).reshape(flat), 0, 3) for each in (product, bound)
        )
        return product, bound


def _pixels_are_rows(workload: Workload) -> bool:
    """Return whether pixels are rows of C and filters its columns: channels of y are last."""
    return workload.layouts["y"] == "nhwk"


def _entries_and_columns(workload: Workload, pixels: int) -> tuple[int, int]:
    """Return (batch entries of a group, columns of C) where columns are ``pixels`` of each image, or of all images."""
    images = workload.size["n"]
    return (1, images * pixels) if workload.layouts["y"] == "knhw" else (images, pixels)


def patches(x: np.ndarray, sizes: Mapping[str, int], transposed: bool = False) -> np.ndarray:
    """Return the pixels that each output reads of ``x`` (n, h, w, g, c), float64 (g, n oh ow, r s c); 0 in the
    padding."""
    rows, row_inside = _indices(sizes, "h", transposed)
    columns, column_inside = _indices(sizes, "w", transposed)
    n, _, _, g, c = x.shape
    if x.size == 0:
        found = np.zeros((n, *rows.shape, *columns.shape, g, c))
    else:
        # (n, oh, r, ow, s, g, c)
        found = x[:, rows][:, :, :, columns]
        inside = row_inside[:, :, None, None] & column_inside[None, None]
        found = np.where(inside[None, ..., None, None], found, 0.0)
    ordered = found.transpose(5, 0, 1, 3, 2, 4, 6)
    return ordered.reshape(g, n * rows.shape[0] * columns.shape[0], rows.shape[1] * columns.shape[1] * c)


def _indices(sizes: Mapping[str, int], side: str, transposed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (index in the image, whether it exists), each (output, filter), along one side."""
    extent, window, stride, dilation, before, _ = along(sizes, side)
    out = output_size(sizes, side, transposed)
    o, f = np.arange(out)[:, None], np.arange(window)[None]
    if transposed:
        there = o + before - f * dilation
        index, whole = there // stride, there % stride == 0
    else:
        index, whole = o * stride - before + f * dilation, np.ones((out, window), dtype=bool)
    inside = whole & (index >= 0) & (index < extent)
    return np.where(inside, index, 0), inside
