"""Geometry: where the elements of one call lie, as numbers a kernel takes at run time.

Strides are in elements; a stride of 0 broadcasts.  The batch is up to three axes, the innermost last.  Operators
make a Geometry from a Workload and the strides of its arrays; programs/core/params.py packs it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from gensor_kernels.errors import UnsupportedError

BATCH_AXES = 3

#: Bytes of ``Params`` that belong to the operator: a Window, or what a family of another kind declares there.
TAIL_BYTES = 128
_WINDOW = struct.Struct("<7q 16i")


@dataclass(frozen=True)
class Strides:
    """Where the elements of one operand lie: strides in elements of the batch axes, the rows and the columns.

    Rows and columns are (m, k) for a, (k, n) for b, (m, n) for c, for d and for epilogue operands.
    """

    batch: tuple[int, int, int] = (0, 0, 0)
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Window:
    """How an operand is read through a sliding window (an implicit matrix): ``Window`` in params.cuh.

    The matrix's rows are the digits (image, output row, output column), its k the digits of the filter: (r, s,
    channel) or (channel, r, s).  ``row_strides`` and ``k_strides`` are elements per digit; ``rows`` and ``ks`` the
    extents of the two inner digits.  An element lies at ``step * output + dilation * filter - pad`` of the image,
    and is 0 outside ``extent``; each is (along h, along w).  With ``divisor``, that index is divided by it, and what
    does not divide is 0 too: a transposed convolution.  ``shift`` are the elements by which leading padding moves the
    first tap in front of the image.
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
        """The bytes of a ``Window``."""
        pairs = (self.rows, self.ks, self.extent, self.step, self.dilation, self.pad, self.divisor)
        return _WINDOW.pack(*self.row_strides, *self.k_strides, self.shift, *(x for pair in pairs for x in pair), 0, 0)

    @staticmethod
    def unpack(packed: bytes | bytearray, offset: int = 0) -> Window:
        """The Window whose bytes begin at ``offset``."""
        v = _WINDOW.unpack_from(packed, offset)
        rows, ks, extent, step, dilation, pad, divisor = (v[i : i + 2] for i in range(7, 21, 2))
        return Window(v[:3], v[3:6], rows, ks, extent, step, dilation, pad, divisor, v[6])


_ROWS = struct.Struct("<d 2q 2i")


@dataclass(frozen=True)
class RowsTail:
    """What the rows family is told beside strides and sizes: ``RowsTail`` in params.cuh.

    ``value`` is a norm's eps, or what a variance subtracts from the count.  ``k_strides`` are elements of x per outer
    and middle digit of k; the innermost digit's is ``Geometry.a.column``.  ``k_extents`` are those of the middle and
    the inner digit.
    """

    value: float = 0.0
    k_strides: tuple[int, int] = (0, 0)
    k_extents: tuple[int, int] = (1, 1)

    def pack(self) -> bytes:
        """The bytes of a ``RowsTail``."""
        return _ROWS.pack(self.value, *self.k_strides, *self.k_extents)


@dataclass(frozen=True)
class Geometry:
    """Extents and strides of one call.

    ``sizes`` is (m, n, k) and ``batch`` the extents of the three batch axes.  ``a`` to ``d`` are the first, second,
    output and third operand; ``tail`` are at most TAIL_BYTES bytes that only this kind of operator reads.  ``swapped``:
    a is the second input and b the first.  ``k_digits`` are the extents of the two inner digits of k, where a family
    takes it apart.  ``ragged``: the rows of A and C are those of all batch entries, one after the other.  ``fourth`` is
    where in the tail the address of a fourth input lies.
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
    ragged: bool = False
    fourth: int = 0


def flattened(digits: Sequence[tuple[int, int]], what: str) -> int:
    """The stride of several axes, (extent, stride) the outermost first, seen as one."""
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
