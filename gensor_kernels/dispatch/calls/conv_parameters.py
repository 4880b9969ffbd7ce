"""Parameters of a convolution. Imports nothing: they are part of every key."""

from __future__ import annotations

from dataclasses import dataclass

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

    @property
    def weights(self) -> tuple[int, ...]:
        """Where k, r, s, c are in the weights."""
        return (TRANSPOSED_WEIGHTS if self.transposed else WEIGHTS)[self.layout]
