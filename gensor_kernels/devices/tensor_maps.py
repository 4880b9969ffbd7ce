"""Tensor maps of a GPU: encoded by the driver library, cached by their contents, and appended to Params."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from gensor_kernels.errors import BuildError
from gensor_kernels.families.core import tensor_maps
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.core.tensor_maps import ALIGNMENT, MAP_BYTES, MAPS_OFFSET, Described, TensorMap

from .device import Arguments, Handle, KernelArgument
from .driver import driver_function

#: Number of calls, and of maps, that are cached; a freed buffer costs only its entry until then.
KEPT = 1024
#: Values in the driver's enumerations (cuda.h): element types by bytes, the type that rounds floats to tf32, no
#: interleaving, a swizzle of 128 bytes, fetches of 256 bytes into the L2, zeros outside.
_TYPES, _TF32 = {1: 0, 2: 1, 4: 2}, 11
_NO_INTERLEAVE, _SWIZZLE_128, _L2_256, _ZEROS = 0, 3, 3, 0

Encode = Callable[[Described], bytes]


def _driver_function(name: str) -> Callable[..., int]:
    """Return a function of the driver library; BuildError if it is missing (older than CUDA 12)."""
    try:
        return driver_function(name)
    except (OSError, AttributeError) as error:
        raise BuildError(f"this driver encodes no tensor maps: {error}") from error


def encode(wanted: Described) -> bytes:
    """Return the 128 bytes that the driver makes of a map; BuildError if it refuses."""
    rank = len(wanted.extents)
    buffer = (ctypes.c_char * (MAP_BYTES + ALIGNMENT))()
    address = -(-ctypes.addressof(buffer) // ALIGNMENT) * ALIGNMENT
    status = _driver_function("cuTensorMapEncodeIm2col" if wanted.pixels else "cuTensorMapEncodeTiled")(
        ctypes.c_void_p(address),
        ctypes.c_int(_TF32 if wanted.rounded else _TYPES[wanted.element]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(wanted.address),
        (ctypes.c_uint64 * rank)(*wanted.extents),
        (ctypes.c_uint64 * (rank - 1))(*wanted.strides),
        *_box(wanted, rank),
        *(ctypes.c_int(each) for each in (_NO_INTERLEAVE, _SWIZZLE_128, _L2_256, _ZEROS)),
    )
    if status:
        raise BuildError(f"the driver refused a tensor map (CUresult {status}): {wanted}")
    return ctypes.string_at(address, MAP_BYTES)


def _box(wanted: Described, rank: int) -> tuple[Any, ...]:
    """Return the extent of one copy: a box and steps through it; for an image the corners, channels, pixels, and
    steps."""
    steps, pixels = ctypes.c_uint32 * rank, wanted.pixels
    if pixels is None:
        return steps(*wanted.box, *(1 for _ in range(rank - len(wanted.box)))), steps(*(1 for _ in range(rank)))
    corner = ctypes.c_int * (rank - 2)
    channels, count = (ctypes.c_uint32(each) for each in wanted.box)
    return corner(*pixels.lower), corner(*pixels.upper), channels, count, steps(1, *pixels.step, 1)


def _keep(cache: dict[Any, bytes], key: Any, value: bytes) -> None:
    if len(cache) >= KEPT:
        cache.clear()
    cache[key] = value


class Mapped:
    """Params followed by the maps of a launch, in a buffer of each thread.

    `handle` makes the launch argument from the buffer's address.
    """

    def __init__(self, maps: tuple[TensorMap, ...], handle: Handle, encode: Encode = encode):
        self._maps, self._encode = maps, encode
        self._copied = any(each.copied_at is not None for each in maps)
        self._stored, self._third = (any(each.operand == name for each in maps) for name in "cd")
        self._calls: dict[bytes, bytes] = {}
        self._kept: dict[tuple[TensorMap, bytes], bytes] = {}
        self._local = Arguments(handle, MAPS_OFFSET + MAP_BYTES * len(maps))

    def __call__(self, packed: bytearray) -> KernelArgument:
        """Return the launch argument for a call's Params, valid until this thread calls again."""
        key = tensor_maps.call_key(packed, self._copied, self._stored, self._third)
        found = self._calls.get(key)
        if found is None:
            found = b"".join(self._map(packed, each) for each in self._maps)
            _keep(self._calls, key, found)
        buffer, handle = self._local.arguments
        buffer[:SIZE] = packed
        buffer[MAPS_OFFSET:] = found
        return handle

    def _map(self, packed: bytearray, wanted: TensorMap) -> bytes:
        """Return an encoded map: calls that differ in another operand share it."""
        key = wanted, tensor_maps.key(packed, wanted)
        found = self._kept.get(key)
        if found is None:
            found = self._encode(tensor_maps.description(packed, wanted))
            _keep(self._kept, key, found)
        return found
