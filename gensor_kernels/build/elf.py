"""Sections of a cubin, which is an ELF file: its machine code."""

from __future__ import annotations

import struct

from .instruction import INSTRUCTION_BYTES

Code = tuple[tuple[str, bytes], ...]  # (function, machine code), by name

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # identification, class, data, type, machine ... section names
_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size ...
_CUDA, _PROGBITS = 190, 1
_PREFIX = b".text."


def code_sections(cubin: bytes) -> Code | None:
    """The code of every function of a cubin; None where anything about the file is odd."""
    try:
        return _code_sections(cubin)
    except (struct.error, ValueError):  # shorter than its header; a name without its end, or not text
        return None


def _code_sections(cubin: bytes) -> Code | None:
    magic, bits, order, _, machine, _, _, _, start, _, _, _, _, size, count, names = _HEADER.unpack_from(cubin)
    if (magic, bits, order, machine, size) != (b"\x7fELF", 2, 1, _CUDA, _SECTION.size):
        return None
    if names >= count or start + count * size > len(cubin):
        return None
    headers = [_SECTION.unpack_from(cubin, start + index * size) for index in range(count)]
    code: dict[str, bytes] = {}
    left = len(cubin)
    for name, kind, _, _, offset, length, *_ in headers:
        first = headers[names][4] + name
        function = cubin[first : cubin.index(b"\0", first)]
        if not function.startswith(_PREFIX):
            continue
        key = function[len(_PREFIX) :].decode("ascii")
        left -= length  # sections overlap in no sound file
        sound = kind == _PROGBITS and offset + length <= len(cubin) and left >= 0
        if not sound or not length or length % INSTRUCTION_BYTES or key in code:
            return None
        code[key] = cubin[offset : offset + length]
    return tuple(sorted(code.items()))
