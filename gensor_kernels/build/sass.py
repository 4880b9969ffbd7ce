"""Machine code: instructions with their control bits, and counts of the instructions of an entry point.

A line of nvdisasm's listing is `/*0290*/ @!P0 BRA 0x140 ;`: address, predicate, opcode with modifiers, operands.
Addresses start at 0 and count through all code of the stream. The listing has no control bits. From sm_70 on, bits 105
to 108 of the 128-bit instruction are its stall count, the clocks until the warp may issue its next instruction; bits
110 to 112 are the scoreboard that it signals when its result is written (7: none), and bits 116 to 121 a mask of the
scoreboards that it waits for (Jia et al., arXiv 1804.06826, section 2.1).
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from .hazards import find_unguarded
from .instruction import INSTRUCTION_BYTES, Instruction, products
from .loops import hot_loop, steady_path

GLOBAL_ACCESSES = frozenset({"LDG", "STG", "LDGSTS"})
SHARED_ACCESSES = frozenset({"LDS", "STS"})

_LINE = re.compile(r"\*/ +(?:@(!?\w+) +)?([^\s;]+)([^;]*)")
_DIRECT = ("BRA", "CALL")  # name an address
_TARGET = re.compile(r"0x([0-9a-f]+) *$")
_STALL_SHIFT, _STALL_MASK = 105 - 64, 15  # in the upper half
_SCOREBOARD_SHIFT, _NO_SCOREBOARD = 110 - 64, 7
_WAITS_SHIFT, _WAITS_MASK = 116 - 64, 63


@dataclass(frozen=True)
class Steady:
    """An iteration of the hot loop, as often as the compiler unrolled it, on the path of whole steps.

    Examples
    --------
    >>> Steady(4, 12, {"HMMA.16816.F32": 1}).products
    {'HMMA.16816.F32': 1}
    """

    #: instructions that one warp issues
    instructions: int = 0
    #: clocks that one warp needs to issue them at the least: the sum of the encoded stall counts
    stalls: int = 0
    #: matrix instructions (without any: multiply-adds) by opcode with modifiers, such as "HMMA.16816.F32"
    products: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sass:
    """Machine code of one entry point."""

    #: instructions by base opcode
    opcodes: dict[str, int] = field(default_factory=dict)
    #: the same for the innermost loop with the most matrix instructions (without any: with the most multiply-adds),
    #: among the loops with a block barrier if there are such loops
    hot_loop: dict[str, int] = field(default_factory=dict)
    #: LDG, STG, LDGSTS, LDS and STS by bytes per thread
    accesses: dict[str, dict[int, int]] = field(default_factory=dict)
    #: the steady path of the hot loop; empty where there is no hot loop
    steady: Steady = field(default_factory=Steady)
    #: DMMAs that read sums which a DMMA before may still be writing (hazards.py): their results may be wrong
    unguarded: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sass:
        """Return what `dataclasses.asdict` made of a Sass, which may have been JSON meanwhile."""
        accesses = {kind: {int(width): count for width, count in by.items()} for kind, by in data["accesses"].items()}
        return cls(**{**data, "accesses": accesses, "steady": Steady(**data["steady"])})

    def widths(self, kinds: frozenset[str]) -> dict[int, int]:
        """Return the instructions by access width in bytes, summed over `kinds` such as GLOBAL_ACCESSES."""
        total: Counter[int] = Counter()
        for kind in sorted(kinds):
            total.update(self.accesses.get(kind, {}))
        return dict(sorted(total.items()))


def read_listing(listing: str, functions: Sequence[bytes]) -> list[tuple[Instruction, ...]] | None:
    """Return the instructions of each function of a stream; `functions` are their machine code, in stream order.

    None where the listing does not have one line for each instruction.
    """
    lines = [line for line in listing.splitlines() if "*/" in line]
    found = [match for match in map(_LINE.search, lines) if match]
    if not len(found) == len(lines) == sum(map(len, functions)) // INSTRUCTION_BYTES:
        return None
    read, begin = [], 0
    for code in functions:
        end = begin + len(code) // INSTRUCTION_BYTES
        read.append(tuple(_instructions(found[begin:end], code, begin)))
        begin = end
    return read


def _instructions(lines: Sequence[re.Match[str]], code: bytes, begin: int) -> list[Instruction]:
    made = []
    for line, (_, upper) in zip(lines, struct.iter_unpack("<QQ", code), strict=True):
        predicate, opcode, operands = line.groups()
        operands = operands.strip()
        address = _TARGET.search(operands) if opcode.partition(".")[0] in _DIRECT else None
        target = int(address[1], 16) // INSTRUCTION_BYTES - begin if address else -1
        inside = 0 <= target < len(lines)
        if address and inside:  # a stream's addresses count through all its functions
            operands = f"{operands[: address.start(1)]}{target * INSTRUCTION_BYTES:x}{operands[address.end(1) :]}"
        stall, waits = upper >> _STALL_SHIFT & _STALL_MASK, upper >> _WAITS_SHIFT & _WAITS_MASK
        signals = upper >> _SCOREBOARD_SHIFT & _NO_SCOREBOARD
        scoreboard = None if signals == _NO_SCOREBOARD else signals
        goal = target if inside else None
        made.append(Instruction(predicate or "", opcode, operands, stall, goal, scoreboard, waits))
    return made


def with_targets(code: Sequence[Instruction], tables: Mapping[int, Sequence[int]]) -> tuple[Instruction, ...]:
    """Return the instructions with the targets of their indirect branches; `tables` are in bytes, as in the cubin."""
    made = list(code)
    for place, targets in tables.items():
        at = place // INSTRUCTION_BYTES
        made[at] = made[at]._replace(targets=tuple(sorted({target // INSTRUCTION_BYTES for target in targets})))
    return tuple(made)


def summary(code: Sequence[Instruction]) -> Sass:
    """Return counts over the instructions of one entry point."""
    loop = hot_loop(code)
    hot = {} if loop is None else _by_name(code[slice(*loop)])
    regular = Steady() if loop is None else steady(steady_path(code, loop))
    return Sass(_by_name(code), hot, _accesses(code), regular, len(find_unguarded(code)))


def steady(path: Sequence[Instruction]) -> Steady:
    """Return the sums over the instructions of a path."""
    counts = Counter([each.opcode for each, computes in zip(path, products(path), strict=True) if computes])
    return Steady(len(path), sum(map(attrgetter("clocks"), path)), dict(sorted(counts.items())))


def _by_name(code: Sequence[Instruction]) -> dict[str, int]:
    return dict(sorted(Counter(map(attrgetter("name"), code)).items()))


def _accesses(code: Sequence[Instruction]) -> dict[str, dict[int, int]]:
    counts: dict[str, Counter[int]] = {}
    for each in code:
        if each.name in GLOBAL_ACCESSES or each.name in SHARED_ACCESSES:
            counts.setdefault(each.name, Counter())[each.width] += 1
    return {name: dict(sorted(counts[name].items())) for name in sorted(counts)}
