"""Winograd's F(2 x 2, 3 x 3): which convolutions it computes, and what a caller allows by asking for it.

Math mode "winograd" allows it, as "3m" allows three real products: sums are then rounded differently
(tolerance/winograd.py), and an infinity may come out as NaN.  A convolution it cannot compute has math mode "ieee", so
that one word serves a whole network.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The math mode that allows it.
MATH = "winograd"
_TAPS = {"r": 3, "s": 3}
_ONES = ("stride_h", "stride_w", "dilation_h", "dilation_w", "groups")


def fits(sizes: Mapping[str, int]) -> bool:
    """Whether a convolution of these sizes has 3 x 3 taps, moves by one, and has neither holes nor groups."""
    return all(sizes[name] == taps for name, taps in _TAPS.items()) and all(sizes[name] == 1 for name in _ONES)


def allowed(sizes: Mapping[str, int], math: str, transposed: bool = False) -> str:
    """``math``, or "ieee" where that allows Winograd for sizes it cannot compute."""
    return "ieee" if math == MATH and (transposed or not fits(sizes)) else math
