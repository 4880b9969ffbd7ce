"""Divisors of a launch with tensor maps, between Params and the maps: `TileDivisors` in contraction.cuh."""

from __future__ import annotations

import struct

from .params import TILING_OFFSET

#: Bits of a dividend.
DIVIDEND_BITS = 31

_TILING = struct.Struct("<2i 5i")
_DIVISORS = struct.Struct("<14I")
BYTES = _DIVISORS.size


def multiplier_and_shift(divisor: int) -> tuple[int, int]:
    """Return the two numbers of a `Divisor` in divisor.cuh.

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


def packed_divisors(packed: bytes | bytearray) -> bytes:
    """Return the bytes of `TileDivisors` for a call's packed Params."""
    middle, inner, tiles_m, tiles_n, split, _, raster = _TILING.unpack_from(packed, TILING_OFFSET)
    last = tiles_m % raster if raster > 0 else 0
    divisors = (tiles_m * tiles_n, split, inner, middle, raster * tiles_n, raster, last or raster)
    # Where a stream keeps other numbers there, or tiles are more than their numbers can count, nothing is divided.
    within = (min(max(each, 1), (1 << DIVIDEND_BITS) - 1) for each in divisors)
    return _DIVISORS.pack(*(number for each in within for number in multiplier_and_shift(each)))
