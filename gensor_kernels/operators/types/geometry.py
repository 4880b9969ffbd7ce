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
    """

    #: elements per digit
    row_strides: tuple[int, int, int]
    k_strides: tuple[int, int, int]
    #: extents of the two inner digits
    rows: tuple[int, int]
    ks: tuple[int, int]
    #: of the formula above
    extent: tuple[int, int]
    step: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    #: divisor of the index, for transposed convolutions; elements at other than whole quotients are 0 too
    divisor: tuple[int, int] = (1, 1)
    #: elements by which leading padding moves the first tap before the image
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
    """Arguments of the rows family other than strides and sizes: ``RowsTail`` in params.cuh."""

    #: a norm's eps, or the number that a variance subtracts from the count
    value: float = 0.0
    #: elements of x per outer and middle digit of k; ``Geometry.a.column`` is the stride of the innermost digit
    k_strides: tuple[int, int] = (0, 0)
    #: extents of the middle and the inner digit
    k_extents: tuple[int, int] = (1, 1)

    def pack(self) -> bytes:
        """Return the bytes of a ``RowsTail``."""
        return _pack(_ROWS, self.value, *self.k_strides, *self.k_extents)


@dataclass(frozen=True)
class Geometry:
    """Extents and strides of one call."""

    #: (m, n, k)
    sizes: tuple[int, int, int]
    #: extents of the batch axes
    batch: tuple[int, int, int] = (1, 1, 1)
    #: first and second operand, output, third operand
    a: Strides = field(default_factory=Strides)
    b: Strides = field(default_factory=Strides)
    c: Strides = field(default_factory=Strides)
    d: Strides = field(default_factory=Strides)
    #: at most TAIL_BYTES bytes that only this kind of operator reads
    tail: bytes = b""
    #: whether a is the second input and b the first
    swapped: bool = False
    #: extents of the two inner digits of k, for families that split k
    k_digits: tuple[int, int] = (1, 1)
    #: number of groups whose rows, one after the other, are the rows of A and C; 0 for none
    ragged: int = 0
    #: offsets in the tail of the addresses of the inputs after the third
    others: tuple[int, ...] = (0,)
    #: values of k that are an element of a, and one of b
    together: int = 1


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
