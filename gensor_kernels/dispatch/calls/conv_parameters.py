"""Parameters of a convolution, which are part of every key, from the arguments of a call. Imports little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.shown import shown

from .whole import Pairs, padding_pairs, pair, whole

#: Where the axes n, h, w, c are in an image or a result of each layout.
IMAGES = {"NCHW": (0, 2, 3, 1), "NHWC": (0, 1, 2, 3)}
#: Where k, r, s, c are in weights; in those of a transposed convolution, k are one group's filters and c all channels.
WEIGHTS = {"NCHW": (0, 2, 3, 1), "NHWC": (0, 1, 2, 3)}
TRANSPOSED_WEIGHTS = {"NCHW": (1, 2, 3, 0), "NHWC": (3, 1, 2, 0)}


@dataclass(frozen=True)
class Parameters:
    """Order of axes, sizes named in conv.DEFAULTS, and the output padding of a transposed convolution."""

    layout: str
    sizes: tuple[tuple[str, int], ...]
    transposed: bool = False
    #: Dtype of the result, "" for that of the operands (int32 for int8).
    dtype: str = ""

    @property
    def weights(self) -> tuple[int, ...]:
        """Where k, r, s, c are in the weights."""
        return (TRANSPOSED_WEIGHTS if self.transposed else WEIGHTS)[self.layout]


def read_parameters(
    stride: Any, padding: Any, dilation: Any, groups: Any, layout: str, w: DeviceArray, output_padding: Any = None
) -> Parameters:
    """Return the Parameters of a call with these arguments; ValueError and TypeError for what they cannot be."""
    given = (stride, padding, dilation, groups, layout, output_padding)
    read = _read if all(map(_is_plain, given)) else _read.__wrapped__
    return read(stride, padding, dilation, groups, layout, tuple(w.shape), output_padding)


def image_layout(layout: str) -> str:
    """Return a layout of images; ValueError for another word."""
    if layout not in IMAGES:
        raise ValueError(f"layout must be one of {', '.join(map(repr, IMAGES))}, not {shown(layout)}")
    return layout


def _is_plain(value: Any) -> bool:
    """Return whether an argument may be a key: numbers of other types are equal to whole numbers, and refused."""
    kind = type(value)
    return kind is int or kind is str or value is None or (kind is tuple and all(type(each) is int for each in value))


@lru_cache(maxsize=4096)
def _read(
    stride: Any, padding: Any, dilation: Any, groups: Any, layout: str, w: tuple[int, ...], output_padding: Any
) -> Parameters:
    image_layout(layout)
    (stride_h, stride_w), (dilation_h, dilation_w) = pair("stride", stride, 1), pair("dilation", dilation, 1)
    transposed = output_padding is not None
    taps = [w[axis] for axis in Parameters(layout, (), transposed).weights[1:3]] if len(w) == 4 else [1, 1]
    (top, bottom), (left, right) = _padding(padding, (stride_h, stride_w), (dilation_h, dilation_w), taps)
    sizes = dict(stride_h=stride_h, stride_w=stride_w, dilation_h=dilation_h, dilation_w=dilation_w)
    sizes |= dict(groups=whole("groups", groups, 1), pad_top=top, pad_bottom=bottom, pad_left=left, pad_right=right)
    if transposed:
        sizes["output_padding_h"], sizes["output_padding_w"] = pair("output_padding", output_padding, 0)
    return Parameters(layout, tuple(sizes.items()), transposed)


def _padding(padding: Any, stride: Sequence[int], dilation: Sequence[int], taps: Sequence[int]) -> Pairs:
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"padding must be 'same' or 'valid' where it is a word, not {shown(padding)}")
        if padding == "valid":
            return (0, 0), (0, 0)
        if tuple(stride) != (1, 1):
            raise ValueError("padding='same' needs stride 1")
        h, w = (d * (t - 1) for d, t in zip(dilation, taps, strict=True))
        return (h // 2, h - h // 2), (w // 2, w - w // 2)
    return padding_pairs(padding)
