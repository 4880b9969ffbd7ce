"""Which pixels of an image tensor copies move (im2col), as ``cuTensorMapEncodeIm2col`` of the driver API takes it."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_kernels.operators.types.geometry import Window

#: Of an image (four axes): corners are signed and distances from a pixel to a tap unsigned numbers of 8 bits.
MOST_CORNER, MOST_PIXEL_STEP, MOST_MOVED = 128, 8, 255


@dataclass(frozen=True)
class Pixels:
    """How copies walk an image (im2col): along columns and rows, the corners of the pixel box, counted from the first
    and the last column and row, and the steps from pixel to pixel."""

    lower: tuple[int, int]
    upper: tuple[int, int]
    step: tuple[int, int]

    @staticmethod
    def under(window: Window) -> Pixels:
        """The pixels under a filter's first tap."""
        axes = list(zip(window.rows, window.step, window.pad, window.extent, strict=True))[::-1]
        lower = tuple(-pad for _, _, pad, _ in axes)
        upper = tuple((out - 1) * step - pad - (extent - 1) for out, step, pad, extent in axes)
        return Pixels(lower, upper, tuple(step for _, step, _, _ in axes))  # type: ignore[arg-type]

    @property
    def possible(self) -> bool:
        """Whether a map can say so (cuTensorMapEncodeIm2col, of four axes)."""
        near = all(-MOST_CORNER <= corner < MOST_CORNER for corner in (*self.lower, *self.upper))
        return near and all(0 < step <= MOST_PIXEL_STEP for step in self.step)
