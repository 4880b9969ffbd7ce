"""Tensor maps: descriptions of operands, next to Params, for kernels with tensor copies (TMA).

A family names in `Launch.maps` which operands it reads by copies, and in which boxes. Which addresses, extents and
strides that means follows from the packed Params of a call, so the device encodes the maps when it launches, and
appends them to Params: `MappedParams` in wgmma_ring.cuh.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul

from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.geometry import BATCH_AXES, Geometry, Strides, Window
from gensor_kernels.operators.windows.conv_packed import pack_window, thin_window

from .params import D_OFFSET, PARTS_OFFSET, SIZE, TAIL_END, TAIL_OFFSET, WORKSPACE_OFFSET

#: Bytes of a map; maps follow Params from a multiple of ALIGNMENT on.
MAP_BYTES = 128
ALIGNMENT = 64
MAPS_OFFSET = -(-SIZE // ALIGNMENT) * ALIGNMENT
#: Bytes of a row of a box, over which the hardware's widest swizzle permutes chunks.
ROW_BYTES = 128
#: Limits of the hardware: extents below 2**32 elements, strides in 16 bytes below 2**40.
STEP, MOST_EXTENT, MOST_STRIDE = 16, 2**32, 2**40
#: And rows of a box, and pixels of one.
MOST_ROWS, MOST_PIXELS = 256, 1024

_POINTER, _POINTERS = struct.Struct("<Q"), struct.Struct("<3Q")
_STRIDES, _OWN = struct.Struct("<15q"), struct.Struct("<5q")
_SIZES = struct.Struct("<4i2i")
_PARTS = struct.Struct("<i")
_OTHER = struct.Struct("<q")  # where a gated product's tail has the elements from the gate to the other matrix
_STRIDES_OFFSET = D_OFFSET + 8
_SIZES_OFFSET = _STRIDES_OFFSET + 20 * 8
#: Offset in Params of the first byte after sizes; pointers and strides come first, a window is in the tail.
SIZES_END = _SIZES_OFFSET + _SIZES.size


@dataclass(frozen=True)
class TensorMap:
    """Copies of ``operand`` ("a", "b", "d", or "c", which they store): ``rows`` rows of ROW_BYTES along the unit
    stride, swizzled.

    ``along_rows``: the operand's rows are adjacent (M-contiguous A, K-contiguous B), not its columns. ``element`` are
    the bytes of an element. ``rounded``: elements are float32, and copies round them to TF32 (CUTLASS, whose
    Hopper kernels for float32 request the same, says that they do).  ``window``: the role of this operand of a
    convolution, whose rows of k are one tap's channels: "image", the pixels, or "filters".  ``copied_at``: the byte
    of the workspace at which the first launch has put a copy of the operand, in lines of whole STEPs, or of ``parts``
    of whole ROW_BYTES each (a line per pixel, or per tap and filter of a convolution); the operands of a convolution
    with channels first are packed there (operators/windows/conv_packed.py).  ``other``: of a
    gated product, b is the matrix after the gate.  ``heads``: a, b, d and e are the queries, keys, values and
    mask of attention; a box of queries or of the mask has whole queries, each of them in all heads of a group:
    ``rows`` or a few more, but one only along an axis over which the mask is broadcast.
    ``together``: numbers of the operand that are one element, of less than a byte each.
    """

    operand: str
    along_rows: bool
    element: int
    rows: int
    rounded: bool = field(default=False, repr=False)
    window: str = field(default="", repr=False)
    copied_at: int | None = field(default=None, repr=False)
    other: bool = field(default=False, repr=False)
    parts: int = field(default=1, repr=False)
    heads: bool = field(default=False, repr=False)
    together: int = field(default=1, repr=False)


@dataclass(frozen=True)
class Described:
    """A map's numbers: the address of the first element, extents from the unit stride outwards, the strides of all
    but the first in bytes, the box (elements of a row, rows; and how many times these along the third axis, where more
    than once), bytes of an element, and whether it is rounded.  With ``pixels`` the axes are an image's (channel,
    column, row, image), else there are five."""

    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element: int
    rounded: bool
    pixels: Pixels | None = None


def description(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """Return the numbers of a map for a call's packed Params.

    An axis of one element, and a batch axis that is broadcast, count as one entry with any stride. Raises BuildError
    for strides that no map can have.
    """
    if wanted.heads:
        return _check(_of_heads(packed, wanted), wanted)
    if wanted.window and wanted.parts > 1:
        return _check(_map_of_parts(packed, wanted), wanted)
    if wanted.window == "image":
        return _check((_image if wanted.copied_at is None else _packed_image)(packed, wanted), wanted)
    if wanted.window and wanted.copied_at is not None:
        return _check(_packed_filters(packed, wanted), wanted)
    number = "abc".index(wanted.operand)
    own = _STRIDES.unpack_from(packed, _STRIDES_OFFSET)[5 * number :][:5]
    m, n, k, batch, *inner = _SIZES.unpack_from(packed, _SIZES_OFFSET)
    rows, columns = ((m, k), (k, n), (m, n))[number]
    entries = (batch // max(1, inner[0] * inner[1]), *inner)
    if wanted.window:  # filters: k is taps of channels, and the taps are the innermost axis of a batch
        rows = Window.unpack(packed, TAIL_OFFSET).ks[1]
        entries, own = (1, 1, k // rows), (0, 0, rows * own[3], *own[3:])
    unit, across = (rows, columns) if wanted.along_rows else (columns, rows)
    unit //= wanted.together
    apart = [entries[i] if own[i] else 1 for i in reversed(range(BATCH_AXES))]
    if wanted.copied_at is not None:
        return _check(_map_of_copy(packed, wanted, unit, [across, *apart]), wanted)
    address = _POINTERS.unpack_from(packed)[number]
    if wanted.other:
        address += _OTHER.unpack_from(packed, TAIL_OFFSET)[0] * wanted.element
    step = own[4] if wanted.along_rows else own[3]
    axes = [(across, step), *zip(apart, reversed(own[:BATCH_AXES]), strict=True)]
    return _check(_map(address, unit, axes, wanted), wanted)


def _map_of_copy(packed: bytes | bytearray, wanted: TensorMap, unit: int, extents: Sequence[int]) -> Described:
    """Return the map of a copy in the workspace, whose axes follow each other."""
    whole, extents = STEP // wanted.element, [max(1, extent) for extent in extents]
    if wanted.parts > 1:
        row = ROW_BYTES // wanted.element
        unit = wanted.parts * -(-unit // row) * row
    strides = list(accumulate(extents[:-1], mul, initial=-(-unit // whole) * whole))
    return _map(_copy_address(packed, wanted), unit, list(zip(extents, strides, strict=True)), wanted)


def _of_heads(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """Return the map of queries, keys or values: elements of a head; of queries, heads of a group; positions; heads of
    keys and values; batch entries; of a mask, keys, then the axes of queries."""
    (address,) = _POINTER.unpack_from(packed, _pointer_offset(wanted))
    entry, head, member, row, column = _OWN.unpack_from(packed, _own_offset(wanted))
    queries, elements, keys, batch, heads, group = _SIZES.unpack_from(packed, _SIZES_OFFSET)
    entries = batch // max(1, heads * group)
    if wanted.operand in "bd":  # parts of a group have the same keys and values
        heads //= max(1, _PARTS.unpack_from(packed, PARTS_OFFSET)[0])
    outer = [(heads if head else 1, head), (entries if entry else 1, entry)]
    if wanted.operand == "a":
        axes = [(group, member), (queries, row), *outer]
        return replace(_map(address, elements, axes, wanted), box=_box(wanted, group, -(-wanted.rows // max(1, group))))
    if wanted.operand == "e":
        members, lines = (group if member else 1), (queries if row else 1)
        box = _box(wanted, members, -(-wanted.rows // max(1, group)) if row else 1)
        return replace(_map(address, keys, [(members, member), (lines, row), *outer], wanted), box=box)
    axes = [(keys, column if wanted.operand == "b" else row), *outer, (1, 0)]
    return _map(address, elements, axes, wanted)


def _pointer_offset(wanted: TensorMap) -> int:
    """Return where Params have the address of a map's operand. A mask's address and strides begin the tail."""
    return {"d": D_OFFSET, "e": TAIL_OFFSET}.get(wanted.operand, _POINTER.size * "abcde".index(wanted.operand))


def _own_offset(wanted: TensorMap) -> int:
    """Return where Params have the strides of a map's operand."""
    if wanted.operand == "e":
        return TAIL_OFFSET + _POINTER.size
    return _STRIDES_OFFSET + _OWN.size * "abcd".index(wanted.operand)


def _map_of_parts(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """Return the map of an image, or of filters, in parts: a line of all parts to a pixel, to a tap and filter."""
    window, (m, n, k, batch, *_) = Window.unpack(packed, TAIL_OFFSET), _SIZES.unpack_from(packed, _SIZES_OFFSET)
    first = wanted.operand == ("b" if wanted.window == "image" else "a")  # channels are, and images batch entries
    outer, (middle, inner) = k // (window.ks[0] * window.ks[1]), window.ks
    rows, columns, channels = (middle, inner, outer) if first else (outer, middle, inner)
    window, row = thin_window(window, (rows, columns)), ROW_BYTES // wanted.element
    line = wanted.parts * -(-channels // row) * row if k else 0
    (height, width), filters = window.extent, m if first else n
    images = batch if first else m // (window.rows[0] * window.rows[1])
    if wanted.window == "image":
        axes, pixels = [(width, line), (height, width * line), (images, height * width * line)], Pixels.under(window)
    else:
        axes, pixels = [(filters, line), (rows * columns, filters * line), (1, 0), (1, 0)], None
    return _map(_copy_address(packed, wanted), line, axes, wanted, pixels)


def _image(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """Return the map of an image whose pixels are rows of a."""
    address, *_ = _POINTERS.unpack_from(packed)
    *_, row, column = _STRIDES.unpack_from(packed, _STRIDES_OFFSET)[:5]
    window, (m, _, k, *_) = Window.unpack(packed, TAIL_OFFSET), _SIZES.unpack_from(packed, _SIZES_OFFSET)
    (height, width), images = window.extent, m // (window.rows[0] * window.rows[1])
    axes = [(width, column), (height, row), (images, window.row_strides[0])]
    return _map(address, window.ks[1] if k else 0, axes, wanted, Pixels.under(window))


def _packed_image(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """Return the map of packed images whose pixels are columns of b, all images of a group in a batch entry."""
    window, _, channels = _packed_window(packed, wanted)
    _, n, k, groups, _, _ = _SIZES.unpack_from(packed, _SIZES_OFFSET)
    plane, row, column = window.row_strides
    images = groups * (n // (window.rows[0] * window.rows[1]))
    axes = [(window.extent[1], column), (window.extent[0], row), (images, plane)]
    return _map(_copy_address(packed, wanted), channels if k else 0, axes, wanted, Pixels.under(window))


def _packed_filters(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """Return the map of packed filters, the rows of a: channel, filter, tap, group."""
    _, taps, channels = _packed_window(packed, wanted)
    filters, _, k, _, _, groups = _SIZES.unpack_from(packed, _SIZES_OFFSET)
    of_filter = taps * channels
    axes = [(filters, of_filter), (taps, channels), (groups, filters * of_filter), (1, 0)]
    return _map(_copy_address(packed, wanted), channels if k else 0, axes, wanted)


def _packed_window(packed: bytes | bytearray, wanted: TensorMap) -> tuple[Window, int, int]:
    *_, k, _, _, _ = _SIZES.unpack_from(packed, _SIZES_OFFSET)
    return pack_window(Window.unpack(packed, TAIL_OFFSET), k, wanted.element)


def _copy_address(packed: bytes | bytearray, wanted: TensorMap) -> int:
    (workspace,) = _POINTER.unpack_from(packed, WORKSPACE_OFFSET)
    assert wanted.copied_at is not None
    return int(workspace) + wanted.copied_at


def _map(
    address: int, unit: int, axes: Sequence[tuple[int, int]], wanted: TensorMap, pixels: Pixels | None = None
) -> Described:
    """Return the numbers of a map of ``unit`` adjacent elements and further (extent, stride in elements); nobody reads
    one of nothing."""
    return Described(
        address,
        tuple(max(1, extent) for extent in (unit, *(extent for extent, _ in axes))),
        tuple(STEP if extent <= 1 or not unit else stride * wanted.element for extent, stride in axes),
        _box(wanted, wanted.rows),
        wanted.element,
        wanted.rounded,
        pixels,
    )


def _box(wanted: TensorMap, *rows: int) -> tuple[int, ...]:
    return (ROW_BYTES // wanted.element, *rows)


def _check(found: Described, wanted: TensorMap) -> Described:
    if not _possible(found):
        raise BuildError(f"no tensor copy reads {wanted.operand} with strides of {found.strides} bytes")
    return found


def _possible(found: Described) -> bool:
    steps = (found.address, *found.strides)
    return (
        all(each % STEP == 0 for each in steps)
        and all(0 < stride < MOST_STRIDE for stride in found.strides)
        and all(extent < MOST_EXTENT for extent in found.extents)
        and all(0 < each <= (MOST_PIXELS if found.pixels else MOST_ROWS) for each in found.box[1:])
        and (found.pixels is None or (found.pixels.possible and found.pixels.any_in(found.extents[1:3])))
    )


def readable(strides: Strides, extents: tuple[int, int], along_rows: bool, element: int) -> bool:
    """Whether copies can read an operand of these (rows, columns): its strides are positive, or 0 in the batch."""
    across, extent = (strides.column, extents[1]) if along_rows else (strides.row, extents[0])
    if any(stride < 0 for stride in strides.batch):
        return False
    return extent <= 1 or 0 < across * element < MOST_STRIDE


def operand_extents(geometry: Geometry) -> dict[str, tuple[int, int]]:
    """Return (rows, columns) of a, b and c."""
    m, n, k = geometry.sizes
    return {"a": (m, k), "b": (k, n), "c": (m, n)}


def key(packed: bytes | bytearray, wanted: TensorMap) -> bytes:
    """Return the bytes of Params that a map depends on: equal keys, equal maps."""
    pointer, strides = _pointer_offset(wanted), _own_offset(wanted)
    if wanted.copied_at is not None:
        pointer = WORKSPACE_OFFSET
    own = packed[pointer : pointer + _POINTER.size] + packed[strides : strides + 40] + packed[_SIZES_OFFSET:SIZES_END]
    own += packed[PARTS_OFFSET : PARTS_OFFSET + _PARTS.size]
    return bytes(own + packed[TAIL_OFFSET:TAIL_END] if wanted.window or wanted.other else own)


def call_key(packed: bytes | bytearray, copied: bool, stored: bool, third: bool = False) -> bytes:
    """Return the bytes of Params that all maps of a launch depend on; ``copied``: some map is that of a copy in the
    workspace; ``stored``: some map is that of c; ``third``: some map is that of d."""
    first = D_OFFSET if third else _STRIDES_OFFSET  # strides follow the address of d
    own = packed[: _POINTER.size * (2 + stored)] + packed[first:SIZES_END] + packed[TAIL_OFFSET:TAIL_END]
    own += packed[PARTS_OFFSET : PARTS_OFFSET + _PARTS.size]
    return bytes(own + packed[WORKSPACE_OFFSET : WORKSPACE_OFFSET + _POINTER.size] if copied else own)


#: Limits of an image (four axes): corners are signed and distances from a pixel to a tap unsigned numbers of 8 bits.
MOST_CORNER, MOST_PIXEL_STEP, MOST_MOVED = 128, 8, 255


@dataclass(frozen=True)
class Pixels:
    """The walk of copies along an image (im2col): along columns and rows, the corners of the pixel box, counted from
    the first and the last column and row, and the steps from pixel to pixel."""

    lower: tuple[int, int]
    upper: tuple[int, int]
    step: tuple[int, int]

    @staticmethod
    def under(window: Window) -> Pixels:
        """Return the pixels under a filter's first tap."""
        axes = list(zip(window.rows, window.step, window.pad, window.extent, strict=True))[::-1]
        lower = tuple(-pad for _, _, pad, _ in axes)
        upper = tuple((out - 1) * step - pad - (extent - 1) for out, step, pad, extent in axes)
        return Pixels(lower, upper, tuple(step for _, step, _, _ in axes))  # type: ignore[arg-type]

    @property
    def possible(self) -> bool:
        """Whether a map can say so (cuTensorMapEncodeIm2col, of four axes)."""
        near = all(-MOST_CORNER <= corner < MOST_CORNER for corner in (*self.lower, *self.upper))
        return near and all(0 < step <= MOST_PIXEL_STEP for step in self.step)

    def any_in(self, extents: Sequence[int]) -> bool:
        """Return whether the pixel box holds a pixel of an image of these (columns, rows), or of its padding."""
        return all(
            lower <= extent - 1 + upper for lower, upper, extent in zip(self.lower, self.upper, extents, strict=True)
        )
