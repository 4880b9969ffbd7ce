"""A convolution read as another one: neighbouring columns of the image are channels, bands of its rows are images.

Where windows move by f columns at a time (or a multiple), and image, padding and filter have whole groups of f columns,
x[n, h, w, c] read as x[n, h, w / f, f c] and w[k, r, s, c] as w[k, r, s / f, f c] give the same convolution with steps
of stride_w / f. Nothing moves: both are views. The products are the same ones in the same number, but a kernel reads f
times as many adjacent elements at once, and pads the channels of an element less.

Where windows do not overlap along the rows (a vision transformer's patches), the rows under one row of windows are an
image of their own: x[n, h, w, c] read as x[n h / stride_h, stride_h, w, c], and y[n, p, q, k] as y[n p, 1, q, k].
Windows then stay where they are, while tensor copies of pixels step by few rows only.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from gensor_kernels.operators.types.dtypes import facts

#: Bytes of the widest access.
WIDEST = 16
COUNTED = ("w", "s", "stride_w", "pad_left", "pad_right")


def fold(sizes: Mapping[str, int], dtype: str) -> int:
    """Columns that become channels, 1 for none, of a plain convolution whose pixels have no gaps between them: those
    with the widest accesses, and of these the most, which leave the fewest digits of k to count."""
    channel = sizes["c"] * facts(dtype).itemsize
    if sizes["groups"] != 1 or sizes["dilation_w"] != 1 or channel % WIDEST == 0:
        return 1
    common = gcd(*(sizes[name] for name in COUNTED))
    found = [f for f in range(1, common + 1) if common % f == 0]
    return max(found, key=lambda f: (gcd(f * channel, WIDEST), f))


def folded(sizes: Mapping[str, int], by: int) -> dict[str, int]:
    """The sizes behind `by` columns as channels."""
    return {**sizes, **{name: sizes[name] // by for name in COUNTED}, "c": sizes["c"] * by}


def foldable(sizes: Mapping[str, int], layouts: Mapping[str, str]) -> bool:
    """Whether pixels of contiguous operands in these layouts are neighbours along a row, as k is in the weights."""
    return layouts["w"] != "rsck" and (layouts["x"] == "nhwc" or sizes["c"] == 1)


def bands(sizes: Mapping[str, int], layouts: Mapping[str, str]) -> int:
    """Images that the rows of one become, 1 where they stay together, of a plain convolution without gaps between
    images, and between those of its output."""
    step, reach = sizes["stride_h"], (sizes["r"] - 1) * sizes["dilation_h"] + 1
    apart = sizes["r"] > 1 and reach <= step and sizes["h"] % step == 0
    padded = sizes["pad_top"] or sizes["pad_bottom"]
    return sizes["h"] // step if apart and not padded and (layouts["x"], layouts["y"]) == ("nhwc", "nhwk") else 1


def banded(sizes: Mapping[str, int], by: int) -> dict[str, int]:
    """The sizes of ``by`` bands as images, each of one row of windows."""
    if by == 1:
        return dict(sizes)
    height, reach = sizes["h"] // by, (sizes["r"] - 1) * sizes["dilation_h"] + 1
    return {**sizes, "n": sizes["n"] * by, "h": height, "stride_h": height - reach + 1}


def folded_layouts(layouts: Mapping[str, str]) -> dict[str, str]:
    """Those of folded operands; y stays as it is."""
    return {**layouts, "x": "nhwc", "w": "krsc"}
