"""Sections of a cubin, which is an ELF file: the machine code of its functions, their registers and their stack."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .instruction import INSTRUCTION_BYTES

Code = tuple[tuple[str, bytes], ...]  # (function, machine code), by name

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # identification, class, data, type, machine ... section names
_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size ...
_CUDA, _PROGBITS = 190, 1
_PREFIX = ".text."
_ATTRIBUTE = struct.Struct("<BBH")  # form, kind, bytes of the value if it is a block
_SYMBOL_VALUE = struct.Struct("<II")  # symbol, number
_SYMBOL_BYTES = 24
_BLOCK, _REGISTERS, _FRAME, _BRANCHES = 4, 0x2F, 0x11, 0x34  # form and kinds of attributes in .nv.info
_BRANCH = struct.Struct("<III")  # address, 0, number of targets


def code_sections(cubin: bytes) -> Code | None:
    """Return the code of every function of a cubin, or None where anything about the file is odd."""
    try:
        return _code_sections(cubin)
    except (struct.error, LookupError, ValueError):  # shorter than its header; a name without its end, or not text
        return None


def _code_sections(cubin: bytes) -> Code | None:
    header = _HEADER.unpack_from(cubin)
    (_, bits, order), start, size, count, names = header[:3], header[8], *header[-3:]
    if (bits, order, size) != (2, 1, _SECTION.size) or names >= count or start + count * size > len(cubin):
        return None
    code: dict[str, bytes] = {}
    left = len(cubin)
    for name, kind, offset, length in headers(cubin):
        if not name.startswith(_PREFIX):
            continue
        key = name.removeprefix(_PREFIX)
        left -= length  # sections overlap in no sound file
        sound = kind == _PROGBITS and offset + length <= len(cubin) and left >= 0
        if not sound or not length or length % INSTRUCTION_BYTES or key in code:
            return None
        code[key] = cubin[offset : offset + length]
    return tuple(sorted(code.items()))


def entry_usage(cubin: bytes) -> dict[str, tuple[int, int]]:
    """Return registers per thread and bytes of stack of each function, for cubins of any compiler.

    Raises
    ------
    ValueError
        If this is no cubin with symbols and attributes.

    Examples
    --------
    >>> entry_usage(b"text")
    Traceback (most recent call last):
        ...
    ValueError: no cubin with symbols and attributes
    """
    try:
        return _entry_usage(cubin)
    except (struct.error, LookupError, ValueError) as error:
        raise ValueError("no cubin with symbols and attributes") from error


def _entry_usage(cubin: bytes) -> dict[str, tuple[int, int]]:
    found = sections(cubin)
    symbols, strings = found[".symtab"], found[".strtab"]
    usage: dict[str, list[int]] = {}
    for kind, value in attributes(found[".nv.info"]):
        if kind in (_REGISTERS, _FRAME):
            symbol, number = _SYMBOL_VALUE.unpack(value)
            (name,) = struct.unpack_from("<I", symbols, _SYMBOL_BYTES * symbol)
            usage.setdefault(_text(strings, name), [0, 0])[kind == _FRAME] = number
    return {name: (registers, stack) for name, (registers, stack) in sorted(usage.items())}


def branch_tables(cubin: bytes, function: str) -> dict[int, tuple[int, ...]]:
    """Return the targets of each indirect branch of a function by its place, in bytes from the function's start.

    ValueError if this is no cubin.
    """
    try:
        found = sections(cubin).get(f".nv.info.{function}", b"")
        blocks = [value for kind, value in attributes(found) if kind == _BRANCHES]
        tables: dict[int, tuple[int, ...]] = {}
        for block in blocks:
            at = 0
            while at < len(block):
                place, _, count = _BRANCH.unpack_from(block, at)
                at += _BRANCH.size
                tables[place] = struct.unpack_from(f"<{count}I", block, at)
                at += 4 * count
        return tables
    except (struct.error, LookupError, ValueError) as error:
        raise ValueError("no cubin with attributes") from error


def attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (kind, value) of the attributes of a section .nv.info that have a block of bytes."""
    at = 0
    while at + _ATTRIBUTE.size <= len(info):
        form, kind, length = _ATTRIBUTE.unpack_from(info, at)
        at += _ATTRIBUTE.size
        if form == _BLOCK:
            yield kind, info[at : at + length]
            at += length


def sections(cubin: bytes) -> dict[str, bytes]:
    """Return every section of a sound file by name; struct.error, IndexError or ValueError for another."""
    return {name: cubin[at : at + size] for name, _, at, size in headers(cubin)}


def headers(cubin: bytes) -> list[tuple[str, int, int, int]]:
    """Return (name, kind, offset, bytes) of every section; struct.error, IndexError or ValueError for other files."""
    magic, _, _, _, machine, _, _, _, start, _, _, _, _, size, count, names = _HEADER.unpack_from(cubin)
    if (magic, machine) != (b"\x7fELF", _CUDA):
        raise ValueError("another kind of file")
    found = [_SECTION.unpack_from(cubin, start + index * size) for index in range(count)]
    first = found[names][4]
    return [(_text(cubin, first + name), kind, at, length) for name, kind, _, _, at, length, *_ in found]


def _text(strings: bytes, first: int) -> str:
    return strings[first : strings.index(b"\0", first)].decode("ascii")
