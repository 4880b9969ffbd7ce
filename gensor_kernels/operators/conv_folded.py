"""A convolution of few channels as one of more: neighbouring columns of the image are channels.

Where windows move by f columns at a time (or a multiple), and image, padding and filter have whole groups of f columns,
x[n, h, w, c] read as x[n, h, w / f, f c] and w[k, r, s, c] as w[k, r, s / f, f c] give the same convolution with steps
of stride_w / f. Nothing moves: both are views. The products are the same ones in the same number, but a kernel reads f
times as many adjacent elements at once, and pads the channels of an element less.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from .dtypes import facts

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


def folded_layouts(layouts: Mapping[str, str]) -> dict[str, str]:
    """Those of folded operands; y stays as it is."""
    return {**layouts, "x": "nhwc", "w": "krsc"}
