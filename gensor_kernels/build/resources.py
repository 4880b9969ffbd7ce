"""What a binary costs, read without a device: the ptxas report, and the instructions nvdisasm prints.

`parse_ptxas` needs nothing. `disassemble` needs nvdisasm (the `nvidia-cuda-nvdisasm` wheel or a CUDA toolkit) and
gives None without it: instruction counts refine the potential and prove access widths, nothing depends on them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

from .parallel import ordered_map

NVDISASM_WHEEL = "nvidia-cuda-nvdisasm"

_ENTRY = re.compile(r"Function properties for (\S+)")
_FIELDS = {
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "registers": re.compile(r"Used (\d+) registers"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*)")
_TARGET = re.compile(r"\.L_\w+")
_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}
_MATRIX = frozenset({"HMMA", "IMMA", "DMMA", "HGMMA", "IGMMA"})
_BARRIER = "BAR"
_SCALAR = frozenset({"FFMA", "DFMA", "HFMA2", "IMAD", "IDP"})
GLOBAL_ACCESSES = frozenset({"LDG", "STG", "LDGSTS"})
SHARED_ACCESSES = frozenset({"LDS", "STS"})


@dataclass(frozen=True)
class EntryResources:
    """What ptxas said about one entry point: registers per thread, the rest in bytes."""

    registers: int = 0
    stack_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores plus spill loads."""
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class Sass:
    """The machine code of one entry point.

    `opcodes` and `hot_loop` count instructions by base opcode, over the whole entry and over the innermost loop
    with the most matrix instructions (without any: with the most multiply-adds), among those with a block barrier
    where one has it; `accesses` counts LDG, STG, LDGSTS, LDS and STS by bytes per thread.
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


def parse_ptxas(log: str) -> dict[str, EntryResources]:
    """Resources of each entry point, from the log of `--ptxas-options=-v`."""
    entries: dict[str, EntryResources] = {}
    sections = _ENTRY.split(log)[1:]  # name, text, name, text ...
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        found = {key: pattern.search(text) for key, pattern in _FIELDS.items()}
        entries[name] = EntryResources(**{key: int(match[1]) for key, match in found.items() if match})
    return dict(sorted(entries.items()))


@cache
def find_nvdisasm() -> str | None:
    """Path of nvdisasm: from its wheel, else from PATH, else None."""
    try:
        files = metadata.files(NVDISASM_WHEEL) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.stem == "nvdisasm" and path.is_file():
            return str(path)
    return shutil.which("nvdisasm")


def disassemble(cubin: bytes, timeout: float = 60.0) -> dict[str, Sass] | None:
    """Machine code of each entry point of a cubin; None without nvdisasm, or where it refuses the cubin.

    `timeout` is in seconds: a damaged cubin can send the disassembler into an endless loop.
    """
    tool = find_nvdisasm()
    if tool is None:
        return None
    with tempfile.TemporaryDirectory(prefix="gensor-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        try:
            # Without its data flow analysis (-ndf) nvdisasm is a third faster and prints the same code.
            command = [tool, "-c", "-ndf", str(path)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except (OSError, subprocess.TimeoutExpired):
            return None
    return parse_sass(result.stdout) if result.returncode == 0 else None


def disassemble_many(cubins: Sequence[bytes], jobs: int | None = None) -> list[dict[str, Sass] | None]:
    """`disassemble` of each cubin, on `jobs` processes at a time; most of its 0.4 s is nvdisasm starting up."""
    return ordered_map(disassemble, cubins, jobs)


def parse_sass(text: str) -> dict[str, Sass]:
    """`Sass` of each `.text` section in the output of `nvdisasm -c`, by entry point."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            lines = sections.setdefault(section[1], [])
        else:
            lines.append(line)
    return {name: _parse_entry(sections[name]) for name in sorted(sections)}


def _parse_entry(lines: list[str]) -> Sass:
    labels: dict[str, int] = {}
    code: list[str] = []  # opcodes with their modifiers, in order
    jumps: list[tuple[int, str]] = []
    for line in lines:
        label, instruction = _LABEL.match(line), _INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(code)
        elif instruction:
            target = _TARGET.search(instruction[2])
            if instruction[1].startswith("BRA") and target:
                jumps.append((len(code), target[0]))
            code.append(instruction[1])
    loops = [(labels[name], end + 1) for end, name in jumps if labels.get(name, end + 1) <= end]
    opcodes = [name.split(".", 1)[0] for name in code]
    return Sass(_counts(opcodes), _hot_loop(opcodes, loops), _accesses(code))


def _hot_loop(opcodes: list[str], loops: list[tuple[int, int]]) -> dict[str, int]:
    for kinds in (_MATRIX, _SCALAR):
        holding = [span for span in loops if any(name in kinds for name in opcodes[slice(*span)])]
        innermost = [_counts(opcodes[slice(*span)]) for span in sorted(holding) if not _holds_another(span, holding)]
        # The main loop passes a barrier on every step; an epilogue's loop may have more multiply-adds, but has none.
        candidates = [counts for counts in innermost if _BARRIER in counts] or innermost
        if candidates:
            return max(candidates, key=lambda counts: sum(counts.get(name, 0) for name in kinds))
    return {}


def _holds_another(span: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    return any(span[0] <= begin and end <= span[1] and (begin, end) != span for begin, end in others)


def _accesses(code: list[str]) -> dict[str, dict[int, int]]:
    """Bytes per thread come from the modifiers, 4 where there is none: LDG.E.128 is 16, STS.U16 is 2."""
    counts: dict[str, Counter[int]] = {}
    for name in code:
        opcode, *modifiers = name.split(".")
        if opcode in GLOBAL_ACCESSES or opcode in SHARED_ACCESSES:
            width = next((_WIDTHS[modifier] for modifier in modifiers if modifier in _WIDTHS), 4)
            counts.setdefault(opcode, Counter())[width] += 1
    return {opcode: dict(sorted(counts[opcode].items())) for opcode in sorted(counts)}


def _counts(names: list[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
