"""Convolutions by contraction_wgmma: which ones tensor copies of pixels (im2col) can read, and how k is walked.

Rows of a are pixels, moved by one tap of the filter at a time (tma_requests.cuh).  What a map
can say: see ``cuTensorMapEncodeIm2col`` in the CUDA driver API and ``cp.async.bulk.tensor`` in the PTX ISA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gensor_kernels.families.contraction.cases import granularity
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.tensor_maps import MOST_MOVED, MOST_STRIDE, Pixels
from gensor_kernels.operators.types.geometry import Geometry, Window
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sides import output_size

#: Product.order of a plain convolution whose k is (filter row, filter column, channel)
CHANNELS_LAST = 1
#: the small case of which others are made, and a window with other steps than its own, the last of which leaves a rest
SMALL = "batch"
OTHER_WINDOW = {
    **{"r": 3, "s": 2, "stride_h": 1, "stride_w": 3, "dilation_h": 2, "dilation_w": 1},
    **{"pad_top": 2, "pad_bottom": 1, "pad_left": 1, "pad_right": 1},
}


def unreadable(workload: Workload, image: str = "a") -> str | None:
    """Return why copies cannot walk the image of a convolution, which is to be one of these operands, or None. As
    b it is a packed or divided one, whose groups are separate images."""
    e, z = extents(workload), workload.size
    if not e.window or e.window not in image or e.order != CHANNELS_LAST or e.prologue:
        return f"tensor copies read no image of {workload.operator} in this layout"
    if e.window == "a" and z["groups"] != 1:
        return "tensor copies of pixels would read channels of other groups"
    if min(z["h"], z["w"]) < 1:
        return "the image has no pixels"
    moved = ((z["r"] - 1) * z["dilation_h"], (z["s"] - 1) * z["dilation_w"])
    if not _pixels(workload).possible or max(moved) > MOST_MOVED:
        return "tensor copies do not step, pad or dilate so far"
    return None


def _pixels(workload: Workload) -> Pixels:
    z = workload.size
    window = Window(
        row_strides=(0, 0, 0),
        k_strides=(0, 0, 0),
        rows=(output_size(z, "h", False), output_size(z, "w", False)),
        ks=(1, 1),
        extent=(z["h"], z["w"]),
        step=(z["stride_h"], z["stride_w"]),
        dilation=(1, 1),
        pad=(z["pad_top"], z["pad_left"]),
    )
    return Pixels.under(window)


def reads(workload: Workload, geometry: Geometry) -> bool:
    """Return whether copies can read operands of this geometry: they go forward only."""
    if unreadable(workload):
        return False
    window, size = Window.unpack(geometry.tail), extents(workload).bytes_a
    (height, width), n = window.extent, geometry.sizes[1]
    images = geometry.sizes[0] // (window.rows[0] * window.rows[1])
    filters = geometry.b.column if extents(workload).unit["b"] == "k" else geometry.b.row
    axes = ((images, window.row_strides[0]), (height, geometry.a.row), (width, geometry.a.column), (n, filters))
    return all(extent <= 1 or 0 < stride * size < MOST_STRIDE for extent, stride in axes)


def taps(workload: Workload) -> int:
    """Parts of k that whole steps are made of: the taps of a filter, or one of a product."""
    return workload.size["r"] * workload.size["s"] if extents(workload).window else 1


def least_terms(workload: Workload) -> int:
    """Terms of a product's shortest sums; a convolution's are sums of the output whose taps meet the padding most."""
    e, z = extents(workload), workload.size
    if not e.window:
        return e.k
    met = 1
    for side, taps, pad in (("h", "r", "pad_top"), ("w", "s", "pad_left")):
        outputs, steps = np.arange(output_size(z, side, False)), np.arange(z[taps])
        at = outputs[:, None] * z[f"stride_{side}"] + steps * z[f"dilation_{side}"] - z[pad]
        counts = ((at >= 0) & (at < z[side])).sum(1)
        met *= int(counts[counts > 0].min(initial=z[taps]))  # without a tap a sum is zero
    return met * max(1, z["c"] // z["groups"])


def cases(found: Sequence[Case], tile: Mapping[str, int], *, alone: bool) -> list[Case]:
    """Return a product's cases as convolutions, and taps of several steps, whole and with a rest.

    ``alone``: convolutions of one group.
    """
    made = [replace(case, workload=_one_group(case.workload)) if alone else case for case in found]
    small = next(case for case in made if case.name == SMALL)
    whole = small.workload.with_sizes(c=2 * tile["k"])
    least = granularity(small.workload)["k"]
    rest = _under(small.workload, OTHER_WINDOW).with_sizes(c=tile["k"] + least)
    return [
        *made,
        replace(small, name="whole steps", workload=whole, schedule=(("early", 4),)),
        replace(small, name="steps and a rest", workload=rest, schedule=(("late", "reverse"),)),
    ]


def _under(workload: Workload, window: Mapping[str, int]) -> Workload:
    """Return a Workload of the same outputs, which may have to be whole accesses, under another window."""
    z, sizes = workload.size, dict(window)
    for side, taps, ends in (("h", "r", ("top", "bottom")), ("w", "s", ("left", "right"))):
        reach = (output_size(z, side, False) - 1) * window[f"stride_{side}"]
        covered = reach + (window[taps] - 1) * window[f"dilation_{side}"] + 1
        sizes[side] = covered - sum(window[f"pad_{end}"] for end in ends)
    return workload.with_sizes(**sizes)


def _one_group(workload: Workload) -> Workload:
    z = workload.size
    return workload.with_sizes(groups=1, c=z["c"] // z["groups"], k_out=z["k_out"] // z["groups"])


def branches(workload: Workload) -> frozenset[str]:
    """Coverage names of the walk along taps."""
    return frozenset({"next_filter_row", "partial_tap"} if extents(workload).window else ())
