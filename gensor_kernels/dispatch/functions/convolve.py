"""A convolution by the array library, where no kernel serves: one product per tap of the filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters
from gensor_kernels.operators.windows.conv_product import output_size


def convolve(device: Any, x: Any, w: Any, sizes: Mapping[str, int], p: Parameters, math: str | None) -> Any:
    """A convolution by the array library: a product of the strided, padded image and the weights for every tap."""
    xp, groups, z = device.xp, sizes["groups"], sizes
    dtype = np.promote_types(x.dtype, w.dtype)
    wide = np.dtype(np.int32) if dtype == np.int8 else np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    image = x.transpose(IMAGES[p.layout]).astype(wide, copy=False)
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


def _tap(z: Mapping[str, int], side: str, tap: int, out: int, transposed: bool) -> tuple[slice, slice] | None:
    """(rows of the image, rows of the result) that one row of the filter joins; None where there are none."""
    stride, shift = z[f"stride_{side}"], tap * z[f"dilation_{side}"] - z["pad_top" if side == "h" else "pad_left"]
    # The result's row o reads the image's o stride + shift; a transposed one's row i stride + shift is fed by i.
    longer, shorter = (out, z[side]) if transposed else (z[side], out)
    first = max(0, -(shift // stride)) if shift < 0 else 0
    end = min(shorter, (longer - 1 - shift) // stride + 1)
    if first >= end:
        return None
    near = slice(first, end)
    far = slice(first * stride + shift, (end - 1) * stride + shift + 1, stride)
    return (near, far) if transposed else (far, near)
