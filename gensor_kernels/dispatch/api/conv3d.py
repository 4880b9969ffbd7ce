"""conv3d, by 2-D convolutions: the function, and the images that a volume becomes. Imports little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.whole import pair, whole
from gensor_kernels.dispatch.observe.dry_run import asking
from gensor_kernels.shown import is_masked, shown

from .convolution import conv2d
from .current import current_runtime
from .interop import like

if TYPE_CHECKING:
    from typing import Literal

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import Activation, ConvolutionPrecision, DeviceArray

#: Layout of the images, the axis of d in volumes and filters, and whether channels are last, for each layout.
LAYOUTS = {"NCDHW": ("NCHW", 2, False), "NDHWC": ("NHWC", 1, True)}
#: Zeros before and after each axis.
Pairs = tuple[tuple[int, int], ...]


@like(conv2d)
def conv3d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    add: ArrayLike | None = None,
    activation: Activation | None = None,
    layout: Literal["NCDHW", "NDHWC"] = "NCDHW",
    out: ArrayLike | None = None,
    precision: ConvolutionPrecision | None = None,
) -> DeviceArray:
    """Compute a 3-D convolution with a fused epilogue.

    The signature is that of `torch.nn.functional.conv3d`, with further keywords;
    `conv2d` has the notes on dtypes and precision.

    Parameters
    ----------
    x : array, shape (n, c, d, h, w)
        Volumes; (n, d, h, w, c) with `layout="NDHWC"`.
    w : array, shape (k, c / groups, t, r, s)
        Filters; (k, t, r, s, c / groups) with `layout="NDHWC"`.
    stride : int or three int, default 1
        Step of the filter along d, h and w.
    padding : int, three int, three pairs or str, default 0
        Zeros around the volume, in pairs before and after it; or "valid" for none, or
        "same" for as many elements as `x` has (stride 1).
    dilation : int or three int, default 1
        Distance between the taps of the filter.
    layout : {"NCDHW", "NDHWC"}, default "NCDHW"
        Order of axes.

    Returns
    -------
    array, shape (n, k, od, oh, ow) or (n, od, oh, ow, k)
        A new array, whose channels are innermost but for rows and columns in memory, or
        `out`.

    Notes
    -----
    The slices under the taps along d become channels of images, in a copy that has
    t / stride times the elements of `x`, and one 2-D convolution sums over all of them.
    Filters of one element in height and width need no copy, nor do filters of one element
    in depth with NDHWC and stride 1.

    Examples
    --------
    >>> x = np.arange(27, dtype="float32").reshape(1, 1, 3, 3, 3)
    >>> w = np.ones((1, 1, 2, 3, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.conv3d(x, w)
    array([[[[[153.]],
    <BLANKLINE>
             [[315.]]]]], dtype=float32)
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(map(repr, LAYOUTS))}, not {shown(layout)}")
    if any(map(is_masked, (x, w, bias, add, out))):
        raise TypeError("masks would be ignored")  # `public` names the argument
    if x.ndim != 5 or w.ndim != 5:
        raise ValueError(f"conv3d: x and w have 5 axes ({layout}), not {x.ndim} and {w.ndim}")
    image, depth, last = LAYOUTS[layout]
    steps, holes = _three("stride", stride, 1), _three("dilation", dilation, 1)
    taps = w.shape[depth : depth + 3]
    pads = _pads_of(padding, steps, holes, taps)
    count = (x.shape[depth] + sum(pads[0]) - (taps[0] - 1) * holes[0] - 1) // steps[0] + 1
    if count < 1 or taps[0] < 1:
        raise ValueError(f"x has {x.shape[depth]} slices with {pads[0]} around them, w has {taps[0]} taps")
    channels = w.shape[4 if last else 1] * whole("groups", groups, 1)
    if x.shape[4 if last else 1] != channels:
        raise ValueError(f"conv3d: x has {x.shape[4 if last else 1]} channels, w is for {channels}")
    device, sides = current_runtime().device, [*x.shape[depth + 1 : depth + 3]]
    target: DeviceArray = out
    more: dict[str, Any] = {"groups": groups, "activation": activation, "layout": image, "precision": precision}
    if tuple(taps[1:]) == tuple(steps[1:]) == (1, 1) and not any(map(any, pads[1:])):  # slices are long rows

        def rows(array: DeviceArray) -> DeviceArray:
            shape = array.shape
            return array.reshape(*shape[: depth + 1], shape[depth + 1] * shape[depth + 2], *shape[depth + 3 :])

        shape = _result_shape(x, w, count, sides, depth)
        term = None if add is None else rows(_spread(device, add, shape))
        _check_out(out, shape)
        steps, pads, holes = (steps[0], 1), (pads[0], (0, 0)), (holes[0], 1)
        if is_whole := target is not None and target.flags.c_contiguous:
            more["out"] = rows(target)
        found = conv2d(rows(x), rows(w), bias, steps, pads, holes, add=term, **more).reshape(shape)
    else:
        sides = [
            (sides[axis - 1] + sum(pads[axis]) - (taps[axis] - 1) * holes[axis] - 1) // steps[axis] + 1
            for axis in (1, 2)
        ]
        shape = _result_shape(x, w, count, sides, depth)
        _check_out(out, shape)
        volumes, filters = _slices_of(
            device, x, w, count, steps[0], holes[0], pads[0], whole("groups", groups, 1), last, asking.get()
        )
        term = None
        if add is not None:
            term = _spread(device, add, shape)
            term = (term if last else term.swapaxes(1, 2)).reshape(-1, *shape[2:] if last else (shape[1], *shape[3:]))
        if is_whole := last and target is not None and target.flags.c_contiguous:
            more["out"] = target.reshape(-1, *shape[2:])
        found = conv2d(volumes, filters, bias, steps[1:], pads[1:], holes[1:], add=term, **more)
        found = found.reshape(shape[0], count, *found.shape[1:])
        found = found if last else found.swapaxes(1, 2)
    if target is None:
        return found
    if not is_whole:
        if target.dtype != found.dtype:
            raise TypeError(f"out is {target.dtype}, the result is {found.dtype}")
        target[...] = found
    return target


def _result_shape(x: DeviceArray, w: DeviceArray, count: int, sides: Sequence[int], depth: int) -> tuple[int, ...]:
    """Return the shape of the result of conv3d."""
    size, filters = (count, *sides), (w.shape[0],)
    return (x.shape[0], *size, *filters) if depth == 1 else (x.shape[0], *filters, *size)


def _spread(device: Device, add: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """Return a term as a view of the shape of the result; ValueError where it does not broadcast."""
    own = tuple(add.shape)
    if len(own) > 5 or any(size not in (1, all_) for size, all_ in zip(own[::-1], shape[::-1], strict=False)):
        raise ValueError(f"add has shape {own}, the result {shape}")
    found: DeviceArray = device.xp.broadcast_to(add, shape)
    return found


def _check_out(out: DeviceArray, shape: tuple[int, ...]) -> None:
    """Raise ValueError for an `out` of another shape than the result."""
    if out is not None and tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, the result {shape}")


def _slices_of(
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


def _three(name: str, value: Any, least: int) -> tuple[int, ...]:
    """Return numbers along d, h and w; one stands for all."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return (whole(name, value, least),) * 3
    if len(value) != 3:
        raise ValueError(f"{name} must be an integer or three, not {shown(value)}")
    return tuple(whole(name, each, least) for each in value)


def _pads_of(padding: Any, steps: Sequence[int], holes: Sequence[int], taps: Sequence[int]) -> Pairs:
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
    return tuple((each, each) for each in _three("padding", padding, 0))
