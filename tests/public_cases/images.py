"""Images and filters with channels in either place, and pooling by NumPy's sliding windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import onnx_ops
from .drawing import Draw

LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}  # channels last


def operand(draw: Draw, shape: tuple[int, ...], dtype: str, last: bool, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    """An operand as the function gets it, and the same with channels as the second axis."""
    order = LAST[len(shape)]
    if not last:
        x = draw.array(shape, dtype, **more)
        return x, x
    x = draw.array([shape[axis] for axis in order], dtype, **more)
    return x, x.transpose(np.argsort(order))


@dataclass(frozen=True)
class Pool:
    """A pooling of images (n, c, h, w); pairs are along h and w."""

    name: str
    window: Sequence[int]
    steps: Sequence[int]
    pads: Sequence[int]
    holes: Sequence[int]
    ceil: bool
    counted: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """By windows of a padded image; PyTorch's rules for the last window of ceil_mode and for what counts."""
        sizes = [self._size(axis, side) for axis, side in enumerate(x.shape[2:])]
        ends = [
            max(pad, (count - 1) * step + reach - side - pad)
            for side, pad, count, step, reach in zip(x.shape[2:], self.pads, sizes, self.steps, self.reach, strict=True)
        ]
        if self.name == "max_pool2d":
            return self._windows(self._pad(x, ends, -np.inf), sizes).max(-1)
        inner = self._pad(np.ones((1, 1, *x.shape[2:])), self.pads, float(self.counted))
        behind = [(0, end - pad) for end, pad in zip(ends, self.pads, strict=True)]
        counts = self._windows(np.pad(inner, [(0, 0), (0, 0), *behind]), sizes).sum(-1)
        return self._windows(self._pad(x, ends, 0.0), sizes).sum(-1) / counts

    @property
    def reach(self) -> list[int]:
        return [hole * (extent - 1) + 1 for extent, hole in zip(self.window, self.holes, strict=True)]

    def _size(self, axis: int, side: int) -> int:
        pad, step = self.pads[axis], self.steps[axis]
        room = side + 2 * pad - self.reach[axis]
        if not self.ceil:
            return room // step + 1
        count = -(-room // step) + 1
        return count - 1 if (count - 1) * step >= side + pad else count

    def _pad(self, x: np.ndarray, ends: Sequence[int], value: float) -> np.ndarray:
        return np.pad(x, [(0, 0), (0, 0), *zip(self.pads, ends, strict=True)], constant_values=value)

    def _windows(self, padded: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        views = np.lib.stride_tricks.sliding_window_view(padded, self.reach, (2, 3))
        views = views[:, :, :: self.steps[0], :: self.steps[1]][:, :, : sizes[0], : sizes[1]]
        views = views[..., :: self.holes[0], :: self.holes[1]]
        return views.reshape(*views.shape[:4], self.window[0] * self.window[1])

    def onnx(self, x: np.ndarray) -> np.ndarray:
        """ONNX's operator: the same but for NaN, and for ceil_mode, whose rules differ."""
        attributes: dict[str, Any] = {
            "kernel_shape": self.window,
            "strides": self.steps,
            "pads": [*self.pads, *self.pads],
        }
        if self.name == "max_pool2d":
            return onnx_ops.run("MaxPool", x, dilations=self.holes, **attributes)
        return onnx_ops.run("AveragePool", x, count_include_pad=int(self.counted), **attributes)
