"""Launch argument of the emulator: Params, followed by tensor maps in the format of host/tensor.h."""

from __future__ import annotations

import ctypes
import struct

from gensor_kernels.programs.core.tensor_maps import (
    ALIGNMENT,
    MAP_BYTES,
    STEP,
    Described,
    TensorMap,
    described,
    with_maps,
)

_MAP = struct.Struct("<Q 4Q 5I 5I 3I 6h")
_MAGIC, _MAGIC_OF_PIXELS = 0x70616D74, 0x6C657870


def encode(wanted: Described) -> bytes:
    """Return the 128 bytes of a map."""
    missing = 5 - len(wanted.extents)
    box, extents = (*wanted.box, 1, 1, 1), (*wanted.extents, *(1 for _ in range(missing)))
    strides = (*wanted.strides, *(STEP for _ in range(missing)))
    corners, magic = (0,) * 6, _MAGIC
    if wanted.pixels:
        corners, magic = (*wanted.pixels.lower, *wanted.pixels.upper, *wanted.pixels.step), _MAGIC_OF_PIXELS
    body = (wanted.address, *strides, *extents, *box, wanted.element, wanted.rounded, magic, *corners)
    return _MAP.pack(*body).ljust(MAP_BYTES, b"\0")


class Packed:
    """The argument of a launch, at an `address` that is a multiple of 64 for as long as this object lives."""

    def __init__(self, params: bytes | bytearray, maps: tuple[TensorMap, ...]):
        self.bytes = bytes(params)
        if maps:
            self.bytes = with_maps(params, tuple(encode(described(params, each)) for each in maps))
        self._buffer = ctypes.create_string_buffer(len(self.bytes) + ALIGNMENT)
        self.address = -(-ctypes.addressof(self._buffer) // ALIGNMENT) * ALIGNMENT
        ctypes.memmove(self.address, self.bytes, len(self.bytes))
