"""Machine code inside a cubin (an ELF file): its sections, and counts of instructions from nvdisasm's listing.

A line is `/*0290*/ @!P0 BRA 0x140 ;`: address, predicate, opcode with modifiers, operands. Addresses start at 0
and count through all code of the stream.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

GLOBAL_ACCESSES = frozenset({"LDG", "STG", "LDGSTS"})
SHARED_ACCESSES = frozenset({"LDS", "STS"})

_OPCODE = re.compile(r"\*/ +(?:@!?\w+ +)?([^\s;]+)")
_TARGET = re.compile(r"0x([0-9a-f]+) *;")
_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}
_MATRIX = frozenset({"HMMA", "IMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA"})
_SCALAR = frozenset({"FFMA", "DFMA", "HFMA2", "IMAD", "IDP"})
_BARRIER = "BAR"


@dataclass(frozen=True)
class Sass:
    """Machine code of one entry point.

    Attributes
    ----------
    opcodes : Mapping[str, int]
        Instructions by base opcode.
    hot_loop : Mapping[str, int]
        The same for the innermost loop with the most matrix instructions (without any: with the most multiply-adds),
        among the loops with a block barrier if there are such loops.
    accesses : Mapping
        LDG, STG, LDGSTS, LDS and STS by bytes per thread.
    """

    opcodes: dict[str, int] = field(default_factory=dict)
    hot_loop: dict[str, int] = field(default_factory=dict)
    accesses: dict[str, dict[int, int]] = field(default_factory=dict)

    def widths(self, kinds: frozenset[str]) -> dict[int, int]:
        """Instructions by access width in bytes, summed over `kinds` such as GLOBAL_ACCESSES."""
        total: Counter[int] = Counter()
        for kind in sorted(kinds):
            total.update(self.accesses.get(kind, {}))
        return dict(sorted(total.items()))


def read_listing(listing: str, sizes: Sequence[int]) -> list[Sass] | None:
    """`Sass` of each function of a stream; `sizes` are bytes of code, in the order of the stream.

    None where the listing does not have one line for each instruction.
    """
    names = _OPCODE.findall(listing)  # LDG.E.128
    lines = [line for line in listing.splitlines() if "*/" in line]
    if not len(names) == len(lines) == sum(sizes) // INSTRUCTION_BYTES:
        return None
    functions, begin = [], 0
    for size in sizes:
        end = begin + size // INSTRUCTION_BYTES
        loops = list(_loops(names, lines, begin, end))
        functions.append(Sass(_by_opcode(names[begin:end]), _hot_loop(names, loops), _accesses(names[begin:end])))
        begin = end
    return functions


def _loops(names: list[str], lines: list[str], begin: int, end: int) -> Iterable[tuple[int, int]]:
    """(first, last + 1) of the instructions between each backward branch and its target."""
    for index in range(begin, end):
        target = _TARGET.search(lines[index]) if names[index].startswith("BRA") else None
        if target and begin <= int(target[1], 16) // INSTRUCTION_BYTES <= index:
            yield int(target[1], 16) // INSTRUCTION_BYTES, index + 1


def _hot_loop(names: list[str], loops: list[tuple[int, int]]) -> dict[str, int]:
    # Loops nest.  A range that begins in a loop and ends behind it is a jump back from a rare case of that loop, which
    # the compiler moved away.
    nested = [span for span in loops if not any(first < span[0] < end < span[1] for first, end in loops)]
    counts = {span: _by_opcode(names[slice(*span)]) for span in sorted(nested)}
    for kinds in (_MATRIX, _SCALAR):
        holding = [span for span, count in counts.items() if not kinds.isdisjoint(count)]
        innermost = [counts[span] for span in holding if not _holds_another(span, holding)]
        # The main loop passes a barrier on every step; an epilogue's loop may have more multiply-adds, but has none.
        candidates = [count for count in innermost if _BARRIER in count] or innermost
        if candidates:
            return max(candidates, key=lambda count: sum(count.get(name, 0) for name in kinds))
    return {}


def _holds_another(span: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    return any(span[0] <= begin and end <= span[1] and (begin, end) != span for begin, end in others)


def _by_opcode(names: list[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name, count in Counter(names).items():
        counts[name.partition(".")[0]] += count
    return dict(sorted(counts.items()))


def _accesses(names: list[str]) -> dict[str, dict[int, int]]:
    """Bytes per thread come from the modifiers, 4 where there is none: LDG.E.128 is 16, STS.U16 is 2."""
    counts: dict[str, Counter[int]] = {}
    for name, count in Counter(names).items():
        opcode, *modifiers = name.split(".")
        if opcode in GLOBAL_ACCESSES or opcode in SHARED_ACCESSES:
            width = next((_WIDTHS[modifier] for modifier in modifiers if modifier in _WIDTHS), 4)
            counts.setdefault(opcode, Counter())[width] += count
    return {opcode: dict(sorted(counts[opcode].items())) for opcode in sorted(counts)}


Code = tuple[tuple[str, bytes], ...]  # (function, machine code), by name

INSTRUCTION_BYTES = 16  # on every architecture from sm_70 on

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
