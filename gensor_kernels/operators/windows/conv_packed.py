"""A convolution whose channels are innermost in memory and padded to whole accesses: what kernels make of it first."""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Window
from gensor_kernels.operators.types.workload import Workload

from .conv_product import output_size

#: bytes of the widest access, and the least that a pixel's channels are padded to
WIDE, NARROWEST = 16, 4


def padded_channels(channels: int, size: int) -> int:
    """Channels of a group, of ``size`` bytes each, with their padding: what fits one access of 4 or 8 bytes, or a
    multiple of 16 (``padded_channels`` in packed.cuh)."""
    for width in (NARROWEST, 2 * NARROWEST):
        if 0 < channels * size <= width:
            return width // size
    whole = WIDE // size
    return -(-channels // whole) * whole


def packed(workload: Workload) -> Workload:
    """The same convolution of a packed image and packed filters: x "nhwc", w "krsc", y as it was.

    Along an axis with one tap, the packed image has the rows (columns) that outputs read, and no others.
    """
    z, size = workload.size, facts(workload.dtype["x"]).itemsize
    channels = padded_channels(z["c"] // z["groups"], size)
    width = min(channels * size, WIDE) if channels else WIDE
    return _arranged(workload, width).with_sizes(c=channels * z["groups"], **thin_sizes(workload))


def thin_sizes(workload: Workload) -> dict[str, int]:
    """Sizes of the image that has, along an axis with one tap, the rows (columns) that outputs read, and no others."""
    z, sizes = workload.size, dict[str, int]()
    for side, taps, ends in (("h", "r", ("top", "bottom")), ("w", "s", ("left", "right"))):
        if z[taps] == 1 and "output_padding_h" not in z:
            sizes |= {side: output_size(z, side, False), f"stride_{side}": 1, **{f"pad_{end}": 0 for end in ends}}
    return sizes


def packed_window(window: Window, k: int, size: int) -> tuple[Window, int, int]:
    """(the window of a packed image whose channels came first, ``size`` bytes each; its taps; a group's channels with
    their padding): ``window_of`` in packed.cuh."""
    taps = window.ks[0] * window.ks[1]
    channels = padded_channels(k // taps, size)
    changed = thin_window(window, (taps // window.ks[1], window.ks[1]))
    (height, width), own = changed.extent, (window.ks[1], max(channels, 1))
    strides = (height * width * channels, width * channels, channels)
    return replace(changed, row_strides=strides, ks=own), taps, channels


def thin_window(window: Window, taps: tuple[int, int]) -> Window:
    """The window of the image of `thin_sizes`, under filters of so many rows and columns."""
    ends = zip(taps, window.rows, window.extent, window.step, window.pad, strict=True)
    found = [(rows, 1, 0) if one == 1 else (extent, step, pad) for one, rows, extent, step, pad in ends]
    extent, step, pad = zip(*found, strict=True)
    return replace(window, extent=extent, step=step, pad=pad)


def filters_aligned(workload: Workload) -> bool:
    """Whether filters of one tap could be read 16 bytes at a time where they are."""
    return workload.layouts["w"] != "rsck" and workload.align["w"] == WIDE


def widely_packed(workload: Workload) -> Workload:
    """The same with accesses of 16 bytes, whatever its channels are: their class."""
    return _arranged(workload, WIDE)


def _arranged(workload: Workload, width: int) -> Workload:
    layouts, classes = {"x": "nhwc", "w": "krsc"}, {"x": width, "w": width}
    return replace(
        workload,
        layout=tuple((name, layouts.get(name, layout)) for name, layout in workload.layout),
        alignment=tuple((name, classes.get(name, given)) for name, given in workload.alignment),
    )
