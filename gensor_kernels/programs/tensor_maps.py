"""Tensor maps: what a kernel with tensor copies (TMA) is told of its operands beside Params.

A family names in `Launch.maps` which operands it reads by copies, and in which boxes. Which addresses, extents and
strides that means follows from the packed Params of a call, so the device encodes the maps when it launches, and
appends them to Params: `MappedParams` in cuda/wgmma_ring.cuh.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ..errors import BuildError
from ..operators.geometry import BATCH_AXES, Geometry, Strides
from .params import D_OFFSET, SIZE

#: Bytes of a map; maps lie behind Params from a multiple of ALIGNMENT on.
MAP_BYTES = 128
ALIGNMENT = 64
MAPS_OFFSET = -(-SIZE // ALIGNMENT) * ALIGNMENT
#: Bytes of a row of a box: those over which the hardware's widest swizzle permutes chunks.
ROW_BYTES = 128
#: What the hardware can address: extents below 2**32 elements, strides in 16 bytes below 2**40.
STEP, MOST_EXTENT, MOST_STRIDE = 16, 2**32, 2**40

_POINTERS = struct.Struct("<2Q")
_STRIDES = struct.Struct("<10q")
_SIZES = struct.Struct("<4i2i")
_STRIDES_OFFSET = D_OFFSET + 8
_SIZES_OFFSET = _STRIDES_OFFSET + 20 * 8
#: Where in Params the first byte behind all that maps are made of lies; pointers come first, then those of other
#: operands, which no map depends on.
KEY_END = _SIZES_OFFSET + _SIZES.size


@dataclass(frozen=True)
class TensorMap:
    """Copies of ``operand`` ("a" or "b"): ``rows`` rows of ROW_BYTES along the unit stride, swizzled.

    ``along_rows``: the operand's rows are adjacent (M-contiguous A, K-contiguous B), not its columns. ``element`` are
    the bytes of an element. ``rounded``: elements are float32, and copies round them to TF32 (CUTLASS, whose
    Hopper kernels for float32 ask for the same, says that they do).
    """

    operand: str
    along_rows: bool
    element: int
    rows: int
    rounded: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class Described:
    """A map's numbers: the address of the first element, five extents from the unit stride outwards, the strides of
    the last four in bytes, the box (elements of a row, rows), bytes of an element, and whether it is rounded."""

    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, int]
    element: int
    rounded: bool


def described(packed: bytes | bytearray, wanted: TensorMap) -> Described:
    """The numbers of a map for a call's packed Params.

    An axis of one element, and a batch axis that is broadcast, count as one entry with any stride. Raises BuildError
    for strides that no map can have.
    """
    pointers = _POINTERS.unpack_from(packed)
    strides = _STRIDES.unpack_from(packed, _STRIDES_OFFSET)
    m, n, k, batch, *inner = _SIZES.unpack_from(packed, _SIZES_OFFSET)
    second = wanted.operand == "b"
    own = strides[5:] if second else strides[:5]
    rows, columns = (k, n) if second else (m, k)
    entries = (batch // max(1, inner[0] * inner[1]), *inner)
    unit, across = (rows, columns) if wanted.along_rows else (columns, rows)
    step = own[4] if wanted.along_rows else own[3]
    axes = [(across, step), *((entries[i] if own[i] else 1, own[i]) for i in reversed(range(BATCH_AXES)))]
    found = Described(
        pointers[second],
        tuple(max(1, extent) for extent in (unit, *(extent for extent, _ in axes))),
        tuple(STEP if extent <= 1 else stride * wanted.element for extent, stride in axes),
        (ROW_BYTES // wanted.element, wanted.rows),
        wanted.element,
        wanted.rounded,
    )
    if not _possible(found):
        raise BuildError(f"no tensor copy reads {wanted.operand} with strides of {found.strides} bytes")
    return found


def _possible(found: Described) -> bool:
    steps = (found.address, *found.strides)
    return (
        all(each % STEP == 0 for each in steps)
        and all(0 < stride < MOST_STRIDE for stride in found.strides)
        and all(extent < MOST_EXTENT for extent in found.extents)
    )


def readable(strides: Strides, extents: tuple[int, int], along_rows: bool, element: int) -> bool:
    """Whether copies can read an operand of these (rows, columns): its strides are positive, or 0 in the batch."""
    across, extent = (strides.column, extents[1]) if along_rows else (strides.row, extents[0])
    if any(stride < 0 for stride in strides.batch):
        return False
    return extent <= 1 or 0 < across * element < MOST_STRIDE


def operand_extents(geometry: Geometry) -> dict[str, tuple[int, int]]:
    """(rows, columns) of a and b."""
    m, n, k = geometry.sizes
    return {"a": (m, k), "b": (k, n)}


def key(packed: bytes | bytearray) -> bytes:
    """What maps depend on: equal keys, equal maps."""
    return bytes(packed[: _POINTERS.size]) + bytes(packed[_STRIDES_OFFSET:KEY_END])


def with_maps(packed: bytes | bytearray, maps: tuple[bytes, ...]) -> bytes:
    """Params with encoded maps behind them: the bytes of `MappedParams`."""
    return bytes(packed).ljust(MAPS_OFFSET, b"\0") + b"".join(maps)
