"""Geometry: extents and strides of one call, as run-time arguments of a kernel.

Strides are in elements; a stride of 0 broadcasts.  The batch has up to three axes, the innermost last.  Operators make
a Geometry from a Workload and the strides of its arrays; families/core/params.py packs it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from gensor_kernels.errors import UnsupportedError

BATCH_AXES = 3

#: Bytes of ``Params`` that belong to the operator: a Window, or another struct of the family.
TAIL_BYTES = 128
_WINDOW = struct.Struct("<7q 16i")


def _pack(of: struct.Struct, *numbers: float) -> bytes:
    """Return the bytes of a struct; UnsupportedError for numbers that do not fit into it."""
    try:
        return of.pack(*numbers)
    except struct.error:
        raise UnsupportedError(f"kernels count in 32 bits, got {max(numbers):.3g}: give smaller numbers") from None


@dataclass(frozen=True)
class Strides:
    """Strides of one operand in elements: of the batch axes, the rows and the columns.

    Rows and columns are (m, k) for a, (k, n) for b, and (m, n) for c, d and epilogue operands.
    """

    batch: tuple[int, int, int] = (0, 0, 0)
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Window:
    """Read of an operand through a sliding window (an implicit matrix): ``Window`` in params.cuh.

    The matrix's rows are the digits (image, output row, output column), its k the digits of the filter: (r, s, channel)
    or (channel, r, s).  An element is at ``step * output + dilation * filter - pad`` of the image, and is 0 outside
    ``extent``; each of these is (along h, along w).

    Attributes
    ----------
    row_strides, k_strides : tuple[int, int, int]
        Elements per digit.
    rows, ks : tuple[int, int]
        Extents of the two inner digits.
    extent, step, dilation, pad : tuple[int, int]
        Of the formula above.
    divisor : tuple[int, int]
        Divisor of the index, for transposed convolutions; elements at other than whole quotients are 0 too.
    shift : int
        Elements by which leading padding moves the first tap before the image.
    """

    row_strides: tuple[int, int, int]
    k_strides: tuple[int, int, int]
    rows: tuple[int, int]
    ks: tuple[int, int]
    extent: tuple[int, int]
    step: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    divisor: tuple[int, int] = (1, 1)
    shift: int = 0

    def pack(self) -> bytes:
        """Return the bytes of a ``Window``."""
        pairs = (self.rows, self.ks, self.extent, self.step, self.dilation, self.pad, self.divisor)
        numbers = (x for pair in pairs for x in pair)
        return _pack(_WINDOW, *self.row_strides, *self.k_strides, self.shift, *numbers, 0, 0)

    @staticmethod
    def unpack(packed: bytes | bytearray, offset: int = 0) -> Window:
        """Return the Window whose bytes begin at ``offset``."""
        v = _WINDOW.unpack_from(packed, offset)
        rows, ks, extent, step, dilation, pad, divisor = (v[i : i + 2] for i in range(7, 21, 2))
        return Window(v[:3], v[3:6], rows, ks, extent, step, dilation, pad, divisor, v[6])


_ROWS = struct.Struct("<d 2q 2i")


@dataclass(frozen=True)
class RowsTail:
    """Arguments of the rows family other than strides and sizes: ``RowsTail`` in params.cuh.

    Attributes
    ----------
    value : float
        A norm's eps, or the number that a variance subtracts from the count.
    k_strides : tuple[int, int]
        Elements of x per outer and middle digit of k; ``Geometry.a.column`` is the stride of the innermost digit.
    k_extents : tuple[int, int]
        Extents of the middle and the inner digit.
    """

    value: float = 0.0
    k_strides: tuple[int, int] = (0, 0)
    k_extents: tuple[int, int] = (1, 1)

    def pack(self) -> bytes:
        """Return the bytes of a ``RowsTail``."""
        return _pack(_ROWS, self.value, *self.k_strides, *self.k_extents)


@dataclass(frozen=True)
class Geometry:
    """Extents and strides of one call.

    Attributes
    ----------
    sizes : tuple[int, int, int]
        (m, n, k).
    batch : tuple[int, int, int]
        Extents of the batch axes.
    a, b, c, d : Strides
        First and second operand, output, third operand.
    tail : bytes
        At most TAIL_BYTES bytes that only this kind of operator reads.
    swapped : bool
        Whether a is the second input and b the first.
    k_digits : tuple[int, int]
        Extents of the two inner digits of k, for families that split k.
    ragged : int
        Number of groups whose rows, one after the other, are the rows of A and C; 0 for none.
    others : tuple[int, ...]
        Offsets in the tail of the addresses of the inputs after the third.
    """

    sizes: tuple[int, int, int]
    batch: tuple[int, int, int] = (1, 1, 1)
    a: Strides = field(default_factory=Strides)
    b: Strides = field(default_factory=Strides)
    c: Strides = field(default_factory=Strides)
    d: Strides = field(default_factory=Strides)
    tail: bytes = b""
    swapped: bool = False
    k_digits: tuple[int, int] = (1, 1)
    ragged: int = 0
    others: tuple[int, ...] = (0,)


def flat_stride(digits: Sequence[tuple[int, int]], what: str) -> int:
    """Return the stride of several axes, (extent, stride) the outermost first, as one axis; UnsupportedError if they
    are none."""
    if any(extent == 0 for extent, _ in digits):
        return 1
    step, reach = None, 1
    for extent, stride in reversed(digits):
        if extent > 1:
            step = stride if step is None else step
            if stride != step * reach:
                raise UnsupportedError(f"{what} do not follow each other evenly in memory")
        reach *= extent
    return 1 if step is None else step
