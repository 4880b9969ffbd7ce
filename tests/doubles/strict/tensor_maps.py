"""The driver's encoders of tensor maps at their ABI: its documented rules, and 128 bytes in a layout of our own.

`cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` are functions of C with the argument types of cuda.h. Arguments
that break a rule of the CUDA driver API ("Tensor Map Object Management") are refused as by the driver, with
CUDA_ERROR_INVALID_VALUE; `refusals` has the reasons. gensor_kernels/devices/ptx/machine/tensor.h decodes the maps, and
so does library.py, by `fields`.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from gensor_kernels.devices import tensor_maps
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.core.tensor_maps import MAP_BYTES, MAPS_OFFSET, TensorMap

SUCCESS, INVALID_VALUE = 0, 1
MAGIC = 0x70616D54
#: CUtensorMapDataType from UINT8 to TFLOAT32_FTZ: bytes of an element; later types are packed, and not Hopper's
ELEMENTS = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
FLOATS = (6, 7, 8, 9, 10, 11, 12)
INTERLEAVED = {0: 0, 1: 16, 2: 32}
SWIZZLED = {0: 0, 1: 32, 2: 64, 3: 128}
#: range of a corner of the pixel box by rank
CORNERS = {3: (-(2**15), 2**15 - 1), 4: (-(2**7), 2**7 - 1), 5: (-(2**4), 2**4 - 1)}
LAYOUT = struct.Struct("<Q5Q4Q5H5BB3h3h6BHIQ")
assert LAYOUT.size == MAP_BYTES

#: why maps were refused, the latest last
refusals: list[str] = []

_U32, _U64, _INT = (ctypes.POINTER(each) for each in (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int))
_HEAD = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, _U64, _U64)
_TAIL = (ctypes.c_int,) * 4
TILED_TYPES = (*_HEAD, _U32, _U32, *_TAIL)
IM2COL_TYPES = (*_HEAD, _INT, _INT, ctypes.c_uint32, ctypes.c_uint32, _U32, *_TAIL)


class RefusedError(Exception):
    """A rule that the arguments break."""


def _need(holds: bool, rule: str) -> None:
    if not holds:
        raise RefusedError(rule)


def _tensor(
    target: int, kind: int, rank: int, address: int, extents: Any, strides: Any, tail: Sequence[int], least: int
) -> tuple[list[int], list[int]]:
    """Check what both encoders have in common, and return extents and strides."""
    interleave, swizzle, promotion, fill = tail
    _need(target % 64 == 0 and target != 0, "the map's address is a multiple of 64")
    _need(0 <= kind < len(ELEMENTS), "the type is one of Hopper's")
    _need(least <= rank <= 5, f"the rank is {least} to 5")
    _need(interleave in INTERLEAVED and swizzle in SWIZZLED, "interleave and swizzle are enumerated")
    _need(0 <= promotion <= 3 and fill in (0, 1), "L2 promotion and filling are enumerated")
    _need(not interleave or rank >= 3, "an interleaved tensor has 3 axes")
    step = 32 if INTERLEAVED[interleave] == 32 else 16
    _need(address % step == 0, f"the tensor's address is a multiple of {step}")
    _need(step == 16 or SWIZZLED[swizzle] == 32, "interleaved by 32 bytes, it is swizzled by 32 bytes")
    _need(not fill or kind in FLOATS, "only floats are filled with NaN")
    found = [extents[i] for i in range(rank)], [strides[i] for i in range(rank - 1)]
    _need(all(1 <= each <= 2**32 for each in found[0]), "extents are 1 to 2**32")
    _need(all(each % step == 0 for each in found[1]), f"strides are multiples of {step}")
    _need(all(0 < each < 2**40 for each in found[1]), "strides are positive and below 2**40")
    return found


def _row(kind: int, count: int, tail: Sequence[int], what: str) -> None:
    interleave, swizzle, *_ = tail
    size = count * ELEMENTS[kind]
    _need(bool(interleave) or size % 16 == 0, f"{what} are multiples of 16 bytes")
    _need(bool(interleave) or not swizzle or size <= SWIZZLED[swizzle], f"{what} are at most the swizzle's bytes")


def _steps(steps: Any, rank: int, interleave: int) -> list[int]:
    """Check steps between elements; the first counts only in interleaved tensors."""
    found = [steps[i] for i in range(rank)]
    _need(all(1 <= each <= 8 for each in (found if interleave else found[1:])), "element strides are 1 to 8")
    return [found[0] if interleave else 1, *found[1:]]


def tiled(
    target: int, kind: int, rank: int, address: int, extents: Any, strides: Any, box: Any, steps: Any, *tail: int
) -> bytes:
    found = _tensor(target, kind, rank, address, extents, strides, tail, 1)
    sizes = [box[i] for i in range(rank)]
    _need(all(1 <= each <= 256 for each in sizes), "box extents are 1 to 256")
    _row(kind, sizes[0], tail, "a box's rows")
    return _packed(address, kind, *found, sizes, _steps(steps, rank, tail[0]), tail)


def im2col(
    target: int,
    kind: int,
    rank: int,
    address: int,
    extents: Any,
    strides: Any,
    lower: Any,
    upper: Any,
    channels: int,
    pixels: int,
    steps: Any,
    *tail: int,
) -> bytes:
    found = _tensor(target, kind, rank, address, extents, strides, tail, 3)
    corners = [[each[i] for i in range(rank - 2)] for each in (lower, upper)]
    least, most = CORNERS[rank]
    _need(all(least <= each <= most for corner in corners for each in corner), f"corners are {least} to {most}")
    sizes = [extent + u - low for extent, low, u in zip(found[0][1:-1], *corners, strict=True)]
    _need(all(each > 0 for each in sizes), "the pixel box has an area")
    _need(1 <= channels <= 256, "a pixel has up to 256 channels")
    _need(1 <= pixels <= 1024, "a column has up to 1024 pixels")
    _row(kind, channels, tail, "a pixel's channels")
    return _packed(address, kind, *found, [channels, pixels], _steps(steps, rank, tail[0]), tail, corners)


def _packed(
    address: int,
    kind: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    steps: Sequence[int],
    tail: Sequence[int],
    corners: Sequence[Sequence[int]] = (),
) -> bytes:
    """Return the bytes that machine/tensor.h decodes."""

    def padded(values: Sequence[int], count: int) -> list[int]:
        return [*values, *[0] * (count - len(values))]

    interleave, swizzle, _, fill = tail
    lower, upper = corners or ((), ())
    numbers = [address, *padded(extents, 5), *padded(strides, 4), *padded(box, 5), *padded(steps, 5), len(extents)]
    numbers += [*padded(lower, 3), *padded(upper, 3), kind, ELEMENTS[kind], interleave, swizzle, fill, bool(corners)]
    return LAYOUT.pack(*numbers, 0, MAGIC, 0)


def fields(text: bytes) -> dict[str, Any]:
    address, *numbers, _, _, _ = LAYOUT.unpack(text)
    rank = numbers[19]
    return {
        "address": address,
        "extents": tuple(numbers[:rank]),
        "strides": tuple(numbers[5 : 4 + rank]),
        "box": tuple(numbers[9 : 9 + rank]),
        "steps": tuple(numbers[14 : 14 + rank]),
        "corners": (tuple(numbers[20 : 18 + rank]), tuple(numbers[23 : 21 + rank])) if numbers[31] else None,
        "kind": numbers[26],
        "element": numbers[27],
        "modes": tuple(numbers[28:31]),
    }


def _guarded(made: Callable[..., bytes]) -> Callable[..., int]:
    def encoder(target: int, *arguments: Any) -> int:
        try:
            text = made(target or 0, arguments[0], arguments[1], arguments[2] or 0, *arguments[3:])
        except RefusedError as refused:
            refusals.append(str(refused))
            return INVALID_VALUE
        ctypes.memmove(target, text, len(text))
        return SUCCESS

    return encoder


#: the driver's functions by name
FUNCTIONS = {
    "cuTensorMapEncodeTiled": ctypes.CFUNCTYPE(ctypes.c_int, *TILED_TYPES)(_guarded(tiled)),
    "cuTensorMapEncodeIm2col": ctypes.CFUNCTYPE(ctypes.c_int, *IM2COL_TYPES)(_guarded(im2col)),
}


@contextmanager
def encoders() -> Iterator[None]:
    with mock.patch.object(tensor_maps, "driver_function", FUNCTIONS.__getitem__):
        yield


def with_maps(params: bytes, maps: tuple[TensorMap, ...]) -> bytes:
    """Return the launch argument that the host path makes: Params, and then its maps."""
    size = MAPS_OFFSET + MAP_BYTES * len(maps)
    with encoders():
        mapped = tensor_maps.Mapped(maps, lambda address: address)
        return ctypes.string_at(mapped(bytearray(params[:SIZE])), size)
