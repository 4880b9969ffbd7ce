"""The reference of convolutions: patches of an image under a sliding window, gathered by index arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gensor_kernels.operators.products.matmul import product_and_bound
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.tolerance.prologue import spread
from gensor_kernels.operators.tolerance.winograd import bound as winograd_bound
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.workload import Workload

from . import winograd
from .conv_product import Convolution, output_size


def expected(
    operator: Convolution,
    workload: Workload,
    x: np.ndarray,
    w: np.ndarray,
    steps: Sequence[Step],
    *,
    structured: bool,
    integer_steps: int = 0,
    away: np.ndarray | None = None,
) -> tolerance_base.Expected:
    """What a kernel should store for a decoded image and filters: the product of patches and filters, in float64;
    kernels may multiply an image that is so far ``away`` from x."""
    z, transposed = workload.size, operator.transposed
    g, k, r, s, c = w.shape
    a = patches(x, z, transposed)  # (g, n oh ow, r s c)
    b = w.reshape(g, k, r * s * c).transpose(0, 2, 1)
    product, bound = product_and_bound(a, b, workload, workload.dtype["x"], structured=structured)
    if away is not None:
        bound = bound + spread(patches(away, z, transposed), b)
    shape = operator.operands(workload)[-1].shape
    flat = (shape[3], *shape[:3], shape[4])
    product, bound = (np.moveaxis(np.broadcast_to(v, (*a.shape[:2], k)).reshape(flat), 0, 3) for v in (product, bound))
    if winograd.allowed(z, workload.math, transposed) == winograd.MATH:
        pad, out = (z["pad_top"], z["pad_left"]), (shape[1], shape[2])
        apart = winograd_bound(x[:, :, :, 0], w[0], pad, out, structured)[:, :, :, None]
        bound = np.where(np.isfinite(product), np.maximum(bound, apart), 0.0)
    return tolerance_base.expect(
        product,
        bound,
        steps,
        accumulator=workload.accumulator,
        output=workload.dtype["y"],
        integer_steps=integer_steps,
        math=workload.math,
    )


def patches(x: np.ndarray, sizes: Mapping[str, int], transposed: bool = False) -> np.ndarray:
    """(g, n oh ow, r s c) float64: what each output pixel reads of ``x`` (n, h, w, g, c); 0 in the padding."""
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
    """(index in the image, whether it is there), each (output, filter), along one side."""
    out, window = output_size(sizes, side, transposed), sizes["r" if side == "h" else "s"]
    stride, dilation = sizes[f"stride_{side}"], sizes[f"dilation_{side}"]
    before = sizes["pad_top" if side == "h" else "pad_left"]
    o, f = np.arange(out)[:, None], np.arange(window)[None]
    if transposed:
        there = o + before - f * dilation
        index, whole = there // stride, there % stride == 0
    else:
        index, whole = o * stride - before + f * dilation, np.ones((out, window), dtype=bool)
    inside = whole & (index >= 0) & (index < sizes[side])
    return np.where(inside, index, 0), inside
