"""Arguments of conv3d, and the images that a volume becomes. Imports little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels.shown import shown

from .whole import pair, whole

if TYPE_CHECKING:
    from gensor_kernels.arrays import DeviceArray
    from gensor_kernels.devices.device import Device

#: Layout of the images, the axis of d in volumes and filters, and whether channels are last, for each layout.
LAYOUTS = {"NCDHW": ("NCHW", 2, False), "NDHWC": ("NHWC", 1, True)}
#: Zeros before and after each axis.
Pairs = tuple[tuple[int, int], ...]


def result_shape(x: DeviceArray, w: DeviceArray, count: int, sides: Sequence[int], depth: int) -> tuple[int, ...]:
    """Return the shape of the result of conv3d."""
    size, filters = (count, *sides), (w.shape[0],)
    return (x.shape[0], *size, *filters) if depth == 1 else (x.shape[0], *filters, *size)


def spread(device: Device, add: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """Return a term as a view of the shape of the result; ValueError where it does not broadcast."""
    own = tuple(add.shape)
    if len(own) > 5 or any(size not in (1, all_) for size, all_ in zip(own[::-1], shape[::-1], strict=False)):
        raise ValueError(f"add has shape {own}, the result {shape}")
    found: DeviceArray = device.xp.broadcast_to(add, shape)
    return found


def check_out(out: DeviceArray, shape: tuple[int, ...]) -> None:
    """Raise ValueError for an `out` of another shape than the result."""
    if out is not None and tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, the result {shape}")


def slices_of(
    device: Device,
    x: DeviceArray,
    w: DeviceArray,
    count: int,
    step: int,
    hole: int,
    pads: tuple[int, int],
    groups: int,
    last: bool,
    is_dry: bool,
) -> tuple[DeviceArray, DeviceArray]:
    """Return one image for each slice of the result, whose channels are the slices under its taps, and the filters.

    In a dry run the images are new memory: nothing is computed.
    """
    xp, taps = device.xp, w.shape[1 if last else 2]
    if last:
        n, _, h, width, c = x.shape
        share = w.shape[4]
        filters = w.transpose(0, 2, 3, 1, 4).reshape(w.shape[0], *w.shape[2:4], taps * share)
        shape = (n * count, h, width, c * taps)
    else:
        n, c, _, h, width = x.shape
        filters = w.reshape(w.shape[0], w.shape[1] * taps, *w.shape[3:])
        shape = (n * count, c * taps, h, width)
    if is_dry:
        return device.empty(shape, x.dtype), filters
    if any(pads):
        around = [(0, 0)] * 5
        around[1 if last else 2] = pads
        x = xp.pad(x, around, mode="constant")
    view: tuple[int, ...]
    by: tuple[int, ...]
    if last:
        a, b, i, j, k = x.strides
        view, by = (n, count, h, width, groups, taps, c // groups), (a, b * step, i, j, k * (c // groups), b * hole, k)
    else:
        a, k, b, i, j = x.strides
        view, by = (n, count, c, taps, h, width), (a, b * step, k, b * hole, i, j)
    return xp.lib.stride_tricks.as_strided(x, view, by).reshape(shape), filters


def three(name: str, value: Any, least: int) -> tuple[int, ...]:
    """Return numbers along d, h and w; one stands for all."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return (whole(name, value, least),) * 3
    if len(value) != 3:
        raise ValueError(f"{name} must be an integer or three, not {shown(value)}")
    return tuple(whole(name, each, least) for each in value)


def pads_of(padding: Any, steps: Sequence[int], holes: Sequence[int], taps: Sequence[int]) -> Pairs:
    """Return zeros before and after each axis; ValueError for other words than "same" and "valid"."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"padding must be 'same' or 'valid' where it is a word, not {shown(padding)}")
        if padding == "same" and tuple(steps) != (1, 1, 1):
            raise ValueError("padding='same' needs stride 1")
        total = [hole * (tap - 1) if padding == "same" else 0 for hole, tap in zip(holes, taps, strict=True)]
        return tuple((each // 2, each - each // 2) for each in total)
    if isinstance(padding, Sequence) and len(padding) == 3 and any(isinstance(each, Sequence) for each in padding):
        return tuple(pair("padding", each, 0) for each in padding)
    return tuple((each, each) for each in three("padding", padding, 0))
