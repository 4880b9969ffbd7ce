"""Cubins: what the driver reads in one, and small ones that a test writes.

NVIDIA documents the sections in cuobjdump's and nvdisasm's manual ("CUDA Binary Utilities") by name only; numbers of
attributes are the names that `cuobjdump -elf` prints. `tests/devices/test_cubins.py` compares them with the compiler's
own report, for every generation of GPUs.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from gensor_kernels.build import elf

MAGIC, MACHINE = b"\x7fELF", 190  # EM_CUDA
#: OS/ABI of the two layouts of e_flags: up to sm_90, and from sm_100 on.
ABI_OLD, ABI_NEW = 0x33, 0x41
NOBITS, GLOBAL_FUNCTION = 8, 1 << 4 | 2
SECTION = struct.Struct("<IIQQQQIIQQ")

# Attributes (EIATTR_*) of .nv.info and .nv.info.ENTRY, and the format of a value with a length.
REGCOUNT, FRAME_SIZE = 0x2F, 0x11
MAX_THREADS, REQNTID, PARAM_CBANK, KPARAM_INFO, CTA_PER_CLUSTER = 0x05, 0x10, 0x0A, 0x17, 0x3D
SIZED = 4
#: Bytes that .nv.shared.ENTRY has for the system, from sm_90 on.
RESERVED_SHARED = 1024


class DamagedImageError(ValueError):
    """No whole cubin."""


@dataclass(frozen=True)
class Entry:
    """A kernel in a cubin; `most_threads` of a block, or the only number of `threads` (0: any)."""

    registers: int = 32
    parameters: tuple[int, ...] = ()
    shared_bytes: int = 0
    local_bytes: int = 0
    most_threads: int = 1024
    threads: int = 0
    cluster: int = 1


@dataclass(frozen=True)
class Image:
    """A cubin: the capability it is for, whether only for that one ("sm_90a"), and its kernels by name."""

    capability: tuple[int, int]
    specific: bool
    entries: dict[str, Entry]


def image_at(place: int) -> bytes:
    """Return the cubin at an address, whose length its headers give; nothing where there is none."""
    if ctypes.string_at(place, len(MAGIC)) != MAGIC:
        return b""
    head = ctypes.string_at(place, 64)
    (programs, table), (width, count, size, number, _) = (
        struct.unpack_from("<2Q", head, 32),
        struct.unpack_from("<5H", head, 54),
    )
    rows = (SECTION.unpack(ctypes.string_at(place + table + size * index, size)) for index in range(number))
    ends = [start + length for _, kind, _, _, start, length, *_ in rows if kind != NOBITS]
    return ctypes.string_at(place, max(*ends, programs + width * count, table + size * number))


def parse(image: bytes) -> Image:
    try:
        return _parse(image)
    except (struct.error, IndexError, KeyError, ValueError, OverflowError) as error:
        raise DamagedImageError(f"a damaged cubin: {error!r}") from error


def _parse(image: bytes) -> Image:
    sections = {}
    for name, kind, start, length in elf.headers(image):
        if kind != NOBITS and start + length > len(image):
            raise DamagedImageError(f"{name} ends after the file")
        sections[name] = b"" if kind == NOBITS else image[start : start + length], length
    flags, abi = struct.unpack_from("<I", image, 48)[0], image[7]
    layouts = {ABI_OLD: (flags >> 16 & 0xFF, flags & 0x800), ABI_NEW: (flags >> 8 & 0xFFFF, flags & 0x8)}
    number, specific = layouts[abi]
    texts, common = sections[".strtab"][0], list(elf.attributes(sections[".nv.info"][0]))
    entries = {}
    for index, (at, information, *_) in enumerate(struct.iter_unpack("<IBBHQQ", sections[".symtab"][0])):
        if information == GLOBAL_FUNCTION:
            name = elf._text(texts, at)
            entries[name] = _entry(name, index, sections, common, RESERVED_SHARED if number >= 90 else 0)
    return Image(divmod(number, 10), bool(specific), entries)


def _entry(name: str, symbol: int, sections: dict[str, tuple[bytes, int]], common: list, reserved: int) -> Entry:
    if not sections[f".text.{name}"][0]:
        raise DamagedImageError(f"{name} has no code")
    own = list(elf.attributes(sections[f".nv.info.{name}"][0]))
    values = dict(own)

    def counted(number: int) -> int:
        rows = (struct.unpack("<II", value) for kind, value in common if kind == number)
        return dict(rows)[symbol]

    def product(number: int, otherwise: int) -> int:
        x, y, z = struct.unpack("<3I", values[number]) if number in values else (otherwise, 1, 1)
        return x * y * z

    parameters = {}
    for kind, value in own:
        if kind == KPARAM_INFO:
            _, ordinal, _, flags = struct.unpack("<IHHI", value)
            parameters[ordinal] = flags >> 18
    if parameters and sum(parameters.values()) > struct.unpack("<IHH", values[PARAM_CBANK])[2]:
        raise DamagedImageError(f"{name} contradicts itself about its parameters")
    shared = sections[f".nv.shared.{name}"][1] - reserved if f".nv.shared.{name}" in sections else 0
    return Entry(
        registers=counted(REGCOUNT),
        parameters=tuple(parameters[ordinal] for ordinal in range(len(parameters))),
        shared_bytes=shared,
        local_bytes=counted(FRAME_SIZE),
        most_threads=product(MAX_THREADS, 1024),
        threads=product(REQNTID, 0),
        cluster=product(CTA_PER_CLUSTER, 1),
    )


def written(capability: tuple[int, int], entries: dict[str, Entry], specific: bool = False) -> bytes:
    """Return a cubin with these kernels, without code that means anything."""
    names = list(entries)
    sections: list[tuple[str, int, bytes, int]] = [("", 0, b"", 0)]

    def add(name: str, body: bytes, kind: int = 1, size: int | None = None) -> None:
        sections.append((name, kind, body, len(body) if size is None else size))

    def sized(number: int, body: bytes) -> bytes:
        return struct.pack("<BBH", SIZED, number, len(body)) + body

    texts = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols, common, place = bytes(24), b"", 1
    for index, (name, entry) in enumerate(entries.items(), 1):
        symbols += struct.pack("<IBBHQQ", place, GLOBAL_FUNCTION, 0x10, 0, 0, 128)
        place += len(name.encode()) + 1
        for number, value in ((REGCOUNT, entry.registers), (FRAME_SIZE, entry.local_bytes)):
            common += sized(number, struct.pack("<II", index, value))
        own, offset = b"", 0
        for ordinal, size in enumerate(entry.parameters):
            own += sized(KPARAM_INFO, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1F000))
            offset += size
        own += sized(PARAM_CBANK, struct.pack("<IHH", 0, 0x210, offset))
        own += sized(MAX_THREADS, struct.pack("<3I", entry.most_threads, 1, 1))
        if entry.threads:
            own += sized(REQNTID, struct.pack("<3I", entry.threads, 1, 1))
        if entry.cluster > 1:
            own += sized(CTA_PER_CLUSTER, struct.pack("<3I", entry.cluster, 1, 1))
        add(f".nv.info.{name}", own)
        add(f".text.{name}", bytes(128))
        reserved = RESERVED_SHARED if capability >= (9, 0) else 0
        add(f".nv.shared.{name}", b"", NOBITS, entry.shared_bytes + reserved)
    add(".nv.info", common)
    add(".strtab", texts)
    add(".symtab", symbols)
    return _file(sections, capability, specific)


def _file(sections: list[tuple[str, int, bytes, int]], capability: tuple[int, int], specific: bool) -> bytes:
    names = b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections = [*sections, (".shstrtab", 3, names, len(names))]
    number = capability[0] * 10 + capability[1]
    abi, flags = (ABI_OLD, number << 16 | number | specific * 0x800)
    if capability >= (10, 0):
        abi, flags = (ABI_NEW, number << 8 | 2 | specific * 0x8)
    body, headers, at, name_at = b"", b"", 64, 0
    for name, kind, contents, size in sections:
        headers += SECTION.pack(name_at, kind, 0, 0, at, size, 0, 0, 1, 0)
        name_at += len(name) + 1
        body, at = body + contents, at + len(contents)
    count = len(sections)
    head = MAGIC + bytes([2, 1, 1, abi, 7]) + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", 2, MACHINE, 1, 0, 0, at, flags, 64, 0, 0, 64, count, count - 1)
    return head + body + headers
