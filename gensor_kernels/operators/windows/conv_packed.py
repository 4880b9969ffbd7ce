"""The packed convolution of the pack rewrite: channels innermost in memory and padded to whole accesses."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Window
from gensor_kernels.operators.types.workload import Workload

from .sides import SIDES, output_size

#: Bytes of the widest access, and of the smallest padded pixel.
WIDE, NARROWEST = 16, 4


def padded_channels(channels: int, size: int) -> int:
    """Return the channels of a group with their padding, each of ``size`` bytes.

    A group fills one access of 4 or 8 bytes, or a multiple of 16 (``padded_channels`` in packed.cuh).
    """
    for width in (NARROWEST, 2 * NARROWEST):
        if 0 < channels * size <= width:
            return width // size
    whole = WIDE // size
    return -(-channels // whole) * whole


@lru_cache(maxsize=256)
def pack_workload(workload: Workload) -> Workload:
    """Return the same convolution of a packed image and packed filters: x "nhwc", w "krsc".

    A y with channels first is "knhw": columns of the product are the pixels of all images. Kernels store them where
    they belong (ALL_IMAGES). Along an axis with one tap, the packed image has only the rows (columns) that outputs
    read.
    """
    z, size = workload.size, facts(workload.dtype["x"]).itemsize
    channels = padded_channels(z["c"] // z["groups"], size)
    width = min(channels * size, WIDE) if channels else WIDE
    return _channels_last(workload, width).with_sizes(c=channels * z["groups"], **thin_sizes(workload))


def thin_sizes(workload: Workload) -> dict[str, int]:
    """Return the sizes of an image that has, along an axis with one tap, only the rows (columns) that outputs read."""
    z, sizes = workload.size, dict[str, int]()
    for side, (taps, before, after) in SIDES.items():
        if z[taps] == 1 and "output_padding_h" not in z:
            sizes |= {side: output_size(z, side), f"stride_{side}": 1, before: 0, after: 0}
    return sizes


def pack_window(window: Window, k: int, size: int) -> tuple[Window, int, int]:
    """Return (window of the packed image, its taps, a group's channels with their padding): ``window_of`` in
    packed.cuh.

    The given window is that of an image with channels first, ``size`` bytes each.
    """
    taps = window.ks[0] * window.ks[1]
    channels = padded_channels(k // taps, size)
    changed = thin_window(window, (taps // window.ks[1], window.ks[1]))
    (height, width), own = changed.extent, (window.ks[1], max(channels, 1))
    strides = (height * width * channels, width * channels, channels)
    return replace(changed, row_strides=strides, ks=own), taps, channels


def thin_window(window: Window, taps: tuple[int, int]) -> Window:
    """Return the window of the image of `thin_sizes`, under filters of ``taps`` rows and columns."""
    ends = zip(taps, window.rows, window.extent, window.step, window.pad, strict=True)
    found = [(rows, 1, 0) if one == 1 else (extent, step, pad) for one, rows, extent, step, pad in ends]
    extent, step, pad = zip(*found, strict=True)
    return replace(window, extent=extent, step=step, pad=pad)


def filters_aligned(workload: Workload) -> bool:
    """Return whether filters of one tap could be read in place, 16 bytes at a time."""
    return workload.layouts["w"] != "rsck" and workload.align["w"] == WIDE


def widest_packing(workload: Workload) -> Workload:
    """Return the packed convolution with accesses of 16 bytes for any number of channels: its class."""
    return _channels_last(workload, WIDE)


def _channels_last(workload: Workload, width: int) -> Workload:
    layouts, classes = {"x": "nhwc", "w": "krsc"}, {"x": width, "w": width}
    layouts |= {"y": "knhw"} if workload.layouts["y"] == "nkhw" else {}
    return replace(
        workload,
        layout=tuple((name, layouts.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, classes.get(name, given)) for name, given in workload.alignment),
    )
