"""Divisors of the numbers of tiles: `TileDivisors` in params.cuh."""

from __future__ import annotations

import struct
from collections.abc import Iterable

#: Bits of a dividend.
DIVIDEND_BITS = 31

_DIVISOR = struct.Struct("<3I")
DIVISOR_BYTES = _DIVISOR.size


def multiplier_and_shift(divisor: int) -> tuple[int, int]:
    """Return the multiplier and the shift of a `Divisor` in divisor.cuh.

    Parameters
    ----------
    divisor : int
        At least 1, below 2**31.

    Returns
    -------
    tuple of int
        A multiplier below 2**32 and a shift such that ``(2 * n * multiplier >> 32) >> shift == n // divisor`` for
        every n from 0 to 2**31 - 1.

    Examples
    --------
    >>> multiplier, shift = multiplier_and_shift(7)
    >>> (2 * 1000 * multiplier >> 32) >> shift
    142

    Notes
    -----
    T. Granlund and P. Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
    """
    shift = (divisor - 1).bit_length()
    return -(-(1 << DIVIDEND_BITS + shift) // divisor), shift


def packed_divisors(divisors: Iterable[int]) -> bytes:
    """Return the bytes of a `Divisor` for each number; where a number is none, such as 0, those of the nearest."""
    within = (min(max(each, 1), (1 << DIVIDEND_BITS) - 1) for each in divisors)
    return b"".join(_DIVISOR.pack(each, *multiplier_and_shift(each)) for each in within)
