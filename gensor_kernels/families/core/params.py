"""`Params`: the one struct every kernel takes by value. The C declaration is in `params.cuh`.

Extents and strides come from an operator's Geometry. The epilogue is a list of up to six steps, each with an
operation code, a scalar, and an operand's pointer and strides. Grid, tile counts and split come from (Program,
Geometry) in one place, a family's `tiling`, so that a launch equals the verified launch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gensor_kernels.operators.attention.attention import part_heads, part_strides
from gensor_kernels.operators.types.geometry import TAIL_BYTES, Geometry, Strides

from .divisors import DIVISOR_BYTES, packed_divisors

MAX_STEPS = 6

_HEAD = struct.Struct("<5Q 20q 4i 2i 6i i 3i")
_STEP = struct.Struct("<Q 5q d 2i")
_POINTER = struct.Struct("<Q")
_SCALAR = struct.Struct("<d")

HEAD_BYTES = _HEAD.size
STEP_BYTES = _STEP.size
TAIL_OFFSET = HEAD_BYTES + MAX_STEPS * STEP_BYTES
TAIL_END = TAIL_OFFSET + TAIL_BYTES
#: five divisors, up to a multiple of the largest field
SIZE = TAIL_END + -(-5 * DIVISOR_BYTES // 8) * 8
OPERAND_BYTES = 24
WORKSPACE_OFFSET = 24
D_OFFSET = 32
SCALAR_OFFSET = 48
#: Offset of the first number of `advance`, the last field of the head.
PARTS_OFFSET = HEAD_BYTES - 12
_CALL = struct.Struct(f"<3Q {SIZE - OPERAND_BYTES}s")

#: dtype of an epilogue operand -> its number in `EpilogueStep.dtype`
STEP_DTYPES = {
    "float64": 0,
    "float32": 1,
    "float16": 2,
    "bfloat16": 3,
    "int8": 4,
    "int32": 5,
    "bool": 6,
    "uint8": 6,
    "complex64": 7,
    "complex128": 8,
}


@dataclass(frozen=True)
class Step:
    """One epilogue operation: its code, its operand (0 when it takes none) and its scalar.

    The imaginary part of a complex scalar takes the pointer's place: only steps without an operand have one.
    """

    code: int
    scalar: complex = 0.0
    dtype: str = "float32"
    strides: Strides = field(default_factory=Strides)
    pointer: int = 0


@dataclass(frozen=True)
class Tiling:
    """The numbers of (Program, Geometry) that are arguments, so that binaries are shared across them.

    `advance` is a step of k in the digits of a Geometry's `k_digits`, the outermost first, where a family needs it.
    `merged` is how many entries of the innermost batch axis a tile takes as one (`merge_groups`); 0: none.
    `pixels` are the pixels of an image where columns of C are those of all images (`join_images`); 0: they are not.
    `together` are the values of k that the kernel counts as one.
    `parted` are the parts into which attention divides the heads of a group (`part_heads`); kernels that divide them
    read this number in the first place of `advance`.
    """

    tiles_m: int
    tiles_n: int
    split: int
    k_per_split: int
    raster: int
    advance: tuple[int, int, int] = (0, 0, 0)
    merged: int = 0
    pixels: int = 0
    together: int = 1
    parted: int = 1


def ragged_tiles(rows: int, groups: int, tile: int) -> int:
    """Return the most tiles of ``tile`` rows that ``rows`` in ``groups`` need: full ones, and one per group."""
    parts = min(groups + 1, rows)
    return (rows - parts) // tile + parts


def merge_groups(geometry: Geometry, count: int) -> Geometry:
    """Return the product of ``count`` neighbouring groups of a convolution as one group, whose filters are a
    block-diagonal matrix: rows and k of all of them. A group's filters and channels follow those of the group before,
    because both are digits of one axis, so that only the strides from group to group change."""
    if count <= 1:
        return geometry
    (m, n, k), (outer, middle, groups) = geometry.sizes, geometry.batch
    a, b, c = (replace(each, batch=_apart(each, count)) for each in (geometry.a, geometry.b, geometry.c))
    batch = (outer, middle, groups // count)
    return replace(geometry, sizes=(m * count, n, k * count), batch=batch, a=a, b=b, c=c)


def join_images(geometry: Geometry) -> Geometry:
    """Return the product of a convolution whose columns are the pixels of all images, one image after the other.

    The strides of the middle batch axis remain: kernels find an image by them (ALL_IMAGES).
    """
    (m, n, k), (outer, images, groups) = geometry.sizes, geometry.batch
    return replace(geometry, sizes=(m, n * images, k), batch=(outer, 1, groups))


def _apart(strides: Strides, count: int) -> tuple[int, int, int]:
    outer, middle, inner = strides.batch
    return outer, middle, inner * count


def tiling(tile: Mapping[str, int], geometry: Geometry) -> Tiling:
    """Tile counts and split extents; `tile` is a family's `tile(program)`: m, n, k, split, raster.

    Each split gets a multiple of the k tile; the last one gets the rest, possibly nothing.
    """
    m, n, k = geometry.sizes
    split = tile["split"]
    down = ragged_tiles(m, geometry.ragged, tile["m"]) if geometry.ragged else -(-m // tile["m"])
    steps = -(-k // tile["k"])
    return Tiling(
        tiles_m=down,
        tiles_n=-(-n // tile["n"]),
        split=split,
        k_per_split=max(1, -(-steps // split)) * tile["k"],
        raster=tile["raster"],
    )


def pack(
    geometry: Geometry,
    tiles: Tiling,
    *,
    steps: Sequence[Step] = (),
    integer_steps: int = 0,
    pointers: tuple[int, ...] = (0, 0, 0, 0, 0),
) -> bytes:
    """Return the bytes of a `Params`.

    `pointers` are the addresses of a, b, c, the workspace, d (0 where absent at the end) and of further inputs, which
    are in the tail.
    `integer_steps` are how many leading steps int32 accumulators apply before becoming float. Raises ValueError for
    more than six steps and `struct.error` where a number does not fit its field.
    """
    if len(steps) > MAX_STEPS:
        raise ValueError(f"an epilogue has at most {MAX_STEPS} steps, not {len(steps)}")
    g = merge_groups(join_images(geometry) if tiles.pixels else geometry, tiles.merged)
    if tiles.parted > 1:
        each = g.batch[2] // tiles.parted
        g = part_heads(g, tiles.parted)
        steps = [replace(step, strides=part_strides(step.strides, each)) for step in steps]
    if tiles.merged > 1:
        steps = [
            replace(step, strides=replace(step.strides, batch=_apart(step.strides, tiles.merged))) for step in steps
        ]
    m, n, k = g.sizes
    head = _HEAD.pack(
        *pointers[:5],
        *(0 for _ in range(5 - len(pointers))),
        *(number for each in (g.a, g.b, g.c, g.d) for number in (*each.batch, each.row, each.column)),
        *(m, n, k // tiles.together, g.batch[0] * g.batch[1] * g.batch[2]),
        *(g.batch[1], g.batch[2]),
        *(tiles.tiles_m, tiles.tiles_n, tiles.split, tiles.k_per_split // tiles.together, tiles.raster, len(steps)),
        *(integer_steps, *tiles.advance),
    )
    body = b"".join(pack_step(step) for step in steps)
    packed = bytearray(((head + body).ljust(TAIL_OFFSET, b"\0") + g.tail).ljust(TAIL_END, b"\0"))
    packed += packed_divisors(_divisors(g, tiles)).ljust(SIZE - TAIL_END, b"\0")
    for offset, address in zip(other_offsets(g), pointers[5:], strict=False):
        _POINTER.pack_into(packed, offset, address)
    return bytes(packed)


def _divisors(geometry: Geometry, tiles: Tiling) -> tuple[int, ...]:
    """Return the divisors of `TileDivisors`. A stream keeps other numbers in the place of its parts, and divides by
    none; joined images leave a batch of one entry, and their pixels are the divisor in its place."""
    _, middle, inner = geometry.batch
    return tiles.tiles_m * tiles.tiles_n, tiles.split, inner, tiles.pixels or middle, tiles.raster * tiles.tiles_n


def other_offsets(geometry: Geometry) -> tuple[int, ...]:
    """Offsets in bytes of the addresses of inputs after the third."""
    return tuple(TAIL_OFFSET + offset for offset in geometry.others)


def pointers(geometry: Geometry, inputs: Sequence[int], output: int, workspace: int) -> tuple[int, ...]:
    """Return the pointers of `pack` from the addresses of the inputs, one or more."""
    a, b, d, *others = (*inputs, 0, 0)[: max(len(inputs), 3)]
    if geometry.swapped:
        a, b = b, a
    return a, b, output, workspace, d, *others


def pack_step(step: Step) -> bytes:
    """Return the 64 bytes of one `EpilogueStep`."""
    where, scalar = step.strides, step.scalar
    pointer = step.pointer or _POINTER.unpack(_SCALAR.pack(scalar.imag))[0]
    return _STEP.pack(pointer, *where.batch, where.row, where.column, scalar.real, step.code, STEP_DTYPES[step.dtype])


def step_offset(index: int) -> int:
    """Offset in bytes of the pointer of epilogue step `index`."""
    return HEAD_BYTES + index * STEP_BYTES


#: write_call(buffer, 0, a, b, c, rest): the addresses of the three operands, and all bytes after them
write_call = _CALL.pack_into
#: write_pointer(buffer, offset, address): the workspace at WORKSPACE_OFFSET or a step's operand at step_offset(i)
write_pointer = _POINTER.pack_into
#: write_scalar(buffer, offset, value): a step's scalar at step_offset(i) + SCALAR_OFFSET, the imaginary part of one
#: that reads no operand at step_offset(i)
write_scalar = _SCALAR.pack_into
