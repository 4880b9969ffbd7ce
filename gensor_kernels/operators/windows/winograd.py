"""Winograd's F(2 x 2, 3 x 3): the convolutions it computes, and the meaning of its math mode.

Math mode "winograd" allows the algorithm, as "3m" allows three real products: sums are then rounded differently
(tolerance/winograd.py), and an infinity may become NaN.  For other convolutions the math mode becomes "ieee", so that
one argument serves a whole network.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Math mode that allows the algorithm.
MATH = "winograd"
_TAPS = {"r": 3, "s": 3}
_ONES = ("stride_h", "stride_w", "dilation_h", "dilation_w", "groups")


def fits(sizes: Mapping[str, int]) -> bool:
    """Return whether a convolution of these sizes has 3 x 3 taps and unit strides, without dilation or groups."""
    return all(sizes[name] == taps for name, taps in _TAPS.items()) and all(sizes[name] == 1 for name in _ONES)


def allowed(sizes: Mapping[str, int], math: str, transposed: bool = False) -> str:
    """Return ``math``, or "ieee" instead of "winograd" for sizes that the algorithm cannot compute."""
    return "ieee" if math == MATH and (transposed or not fits(sizes)) else math
