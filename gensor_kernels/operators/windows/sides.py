"""The two sides of an image under a window, h and w: sizes, outputs and positions, for every operator with a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.affine import Affine, Axis


#: Sizes of the window, and of the padding before and after the image, by side.
SIDES = {"h": ("r", "pad_top", "pad_bottom"), "w": ("s", "pad_left", "pad_right")}
#: Sizes that shape a declaration, with their default values.
STEPS = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
PADS = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0)


class Along(NamedTuple):
    """Sizes along one side."""

    extent: int
    window: int
    stride: int
    dilation: int
    before: int
    after: int


def along(sizes: Mapping[str, int], side: str) -> Along:
    """Return the sizes along ``side`` ("h" or "w")."""
    window, before, after = SIDES[side]
    dilation = sizes.get(f"dilation_{side}", 1)
    return Along(sizes[side], sizes[window], sizes[f"stride_{side}"], dilation, sizes[before], sizes[after])


def output_size(sizes: Mapping[str, int], side: str, transposed: bool = False) -> int:
    """Return the outputs along ``side``, 0 where the window does not fit the padded image.

    With ceil_mode the last window may extend beyond the padding, but starts inside the image or the leading padding, as
    in torch.nn.functional.max_pool2d.
    """
    z = along(sizes, side)
    reach = z.dilation * (z.window - 1) + 1
    if transposed:
        return (z.extent - 1) * z.stride + reach - z.before - z.after + sizes[f"output_padding_{side}"]
    room = z.extent + z.before + z.after - reach
    if room < 0:
        return 0
    if not sizes.get("ceil_mode", 0):
        return room // z.stride + 1
    count = -(-room // z.stride) + 1
    return count - ((count - 1) * z.stride >= z.extent + z.before)


def declare_outputs(sizes: Mapping[str, int], side: str, image: Axis, tap: Axis) -> tuple[Axis, Affine]:
    """Declare the outputs along ``side``, and the position in the image that a tap of their window reads."""
    from gensor_kernels.operators.expression.affine import Axis

    stride, dilation, (_, before, after) = sizes[f"stride_{side}"], sizes[f"dilation_{side}"], SIDES[side]
    around = sizes[before] + sizes[after]
    output = Axis(f"o{side}", (image + (around - 1) - dilation * (tap - 1)) // stride + 1)
    return output, position(sizes, side, output, tap)


def position(sizes: Mapping[str, int], side: str, output: Axis, tap: Axis) -> Affine:
    """Return the declared position in the image that a tap of an output's window reads."""
    stride, dilation, (_, before, _) = sizes[f"stride_{side}"], sizes.get(f"dilation_{side}", 1), SIDES[side]
    return stride * output - sizes[before] + dilation * tap


def check_steps(sizes: Mapping[str, int]) -> None:
    """Raise ValueError for a window, steps or groups below 1."""
    for name in ("r", "s", *STEPS, "groups"):
        if sizes.get(name, 1) < 1:
            raise ValueError(f"{name} is {sizes[name]}: expected 1 or more")


def check_outputs(sizes: Mapping[str, int], window: str, transposed: bool = False) -> None:
    """Raise ValueError where there is no output; ``window`` is what messages call it."""
    for side in SIDES:
        if output_size(sizes, side, transposed) < 1:
            raise ValueError(f"the {window} does not fit the padded image along {side}: there is no output")
