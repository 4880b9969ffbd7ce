"""Pooling by the array library, where no kernel serves: one pass over the image per position in the window."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_kernels.operators.windows.sliding import sides

from .window import PoolParameters


def pool(xp: Any, x: Any, p: PoolParameters) -> Any:
    """The pooling of an image (n, h, w, c)."""
    n, h, w, c = x.shape
    if p.operator == "global_avg_pool2d":
        wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
        return wide.mean(axis=(1, 2), keepdims=True).astype(x.dtype)
    from gensor_kernels.operators.windows.pooling import complete

    high, wide_side = sides(complete(p.operator, n=n, h=h, w=w, c=c, **dict(p.sizes)))
    shape = (n, high.output, wide_side.output, c)
    maximum = p.operator == "max_pool2d"
    if maximum:
        least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        y = xp.full(shape, least, x.dtype)
    else:
        y = xp.zeros(shape, np.promote_types(x.dtype, np.float32))
    for r in range(high.window):
        rows = _reached(high, r)
        for s in range(wide_side.window):
            columns = _reached(wide_side, s)
            if rows is None or columns is None:
                continue
            seen = x[:, rows[0], columns[0]]
            where = (slice(None), rows[1], columns[1])
            y[where] = xp.maximum(y[where], seen) if maximum else y[where] + seen
    if maximum:
        return y
    counts = np.maximum(high.count()[:, None] * wide_side.count()[None], 1)
    return (y / xp.asarray(counts)[None, :, :, None].astype(y.dtype)).astype(x.dtype)


def _reached(side: Any, tap: int) -> tuple[slice, slice] | None:
    """(rows of the image, rows of the result) that one position of the window joins; None where there are none."""
    shift = tap * side.dilation - side.pad
    first = max(0, -(shift // side.stride)) if shift < 0 else 0
    end = min(side.output, (side.extent - 1 - shift) // side.stride + 1)
    if first >= end:
        return None
    return slice(first * side.stride + shift, (end - 1) * side.stride + shift + 1, side.stride), slice(first, end)
