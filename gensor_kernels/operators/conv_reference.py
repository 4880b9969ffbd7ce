"""Patches of an image under a sliding window, gathered by index arithmetic: the reference of convolutions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .conv_product import output_size


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
