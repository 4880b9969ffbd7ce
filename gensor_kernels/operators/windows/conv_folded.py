"""Rewrites of a convolution as views: adjacent columns of the image become channels, bands of its rows become images.

If windows move by a multiple of f columns, and image, padding and filter have whole groups of f columns, then
x[n, h, w, c] as x[n, h, w / f, f c] and w[k, r, s, c] as w[k, r, s / f, f c] give the same convolution with steps of
stride_w / f.  Both are views, without a copy.  The products are the same, but a kernel reads f times as many adjacent
elements at once, and pads the channels of an element less.

If windows do not overlap along the rows (a vision transformer's patches), the rows under one row of windows are a
separate image: x[n, h, w, c] as x[n h / stride_h, stride_h, w, c], and y[n, p, q, k] as y[n p, 1, q, k].  Windows
then stay in place, while tensor copies of pixels step by few rows only.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from gensor_kernels.operators.types.dtypes import facts

#: Bytes of the widest access.
WIDEST = 16
COUNTED = ("w", "s", "stride_w", "pad_left", "pad_right")


def fold(sizes: Mapping[str, int], dtype: str) -> int:
    """Return the number of columns that become channels, 1 for none, of a plain convolution without gaps between
    pixels.

    The choice has the widest accesses and, among equals, the most columns, which leave the fewest digits of k to count.
    """
    channel = sizes["c"] * facts(dtype).itemsize
    if sizes["groups"] != 1 or sizes["dilation_w"] != 1 or channel % WIDEST == 0:
        return 1
    common = gcd(*(sizes[name] for name in COUNTED))
    found = [f for f in range(1, common + 1) if common % f == 0]
    return max(found, key=lambda f: (gcd(f * channel, WIDEST), f))


def fold_columns(sizes: Mapping[str, int], by: int) -> dict[str, int]:
    """Return the sizes with ``by`` columns as channels."""
    return {**sizes, **{name: sizes[name] // by for name in COUNTED}, "c": sizes["c"] * by}


def foldable(sizes: Mapping[str, int], layouts: Mapping[str, str]) -> bool:
    """Return whether pixels of contiguous operands in these layouts are adjacent along a row, as k is in the
    weights."""
    return layouts["w"] != "rsck" and (layouts["x"] == "nhwc" or sizes["c"] == 1)


def bands(sizes: Mapping[str, int], layouts: Mapping[str, str]) -> int:
    """Return the number of images that the rows of one image become, 1 for no split.

    The convolution is plain, without gaps between images of x and of y.
    """
    step, reach = sizes["stride_h"], (sizes["r"] - 1) * sizes["dilation_h"] + 1
    apart = sizes["r"] > 1 and reach <= step and sizes["h"] % step == 0
    padded = sizes["pad_top"] or sizes["pad_bottom"]
    return sizes["h"] // step if apart and not padded and (layouts["x"], layouts["y"]) == ("nhwc", "nhwk") else 1


def split_bands(sizes: Mapping[str, int], by: int) -> dict[str, int]:
    """Return the sizes with ``by`` bands as images, each of one row of windows."""
    if by == 1:
        return dict(sizes)
    height, reach = sizes["h"] // by, (sizes["r"] - 1) * sizes["dilation_h"] + 1
    return {**sizes, "n": sizes["n"] * by, "h": height, "stride_h": height - reach + 1}


def folded_layouts(layouts: Mapping[str, str]) -> dict[str, str]:
    """Return the layouts of folded operands; y stays as it is."""
    return {**layouts, "x": "nhwc", "w": "krsc"}
