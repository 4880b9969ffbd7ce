"""Costs of a binary, read without a device: the ptxas report, and the instructions printed by nvdisasm.

`parse_ptxas` needs no tool.  `disassemble` needs nvdisasm (the `nvidia-cuda-nvdisasm` wheel or a CUDA toolkit) and
returns None without it: instruction counts refine the potential and prove access widths, but no result depends on them.

nvdisasm takes 0.25 to 0.4 s for the tables of its target before the first instruction, and then 15 us per instruction.
The code of many cubins therefore goes through it as one stream.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import chain
from pathlib import Path

from gensor_kernels import forking
from gensor_kernels.errors import MachineError

from . import tools
from .elf import Code, branch_tables, code_sections
from .instruction import Instruction
from .parallel import ordered_map, usable_cores
from .sass import Sass, read_listing, summary, with_targets

NVDISASM_WHEEL = "nvidia-cuda-nvdisasm"
TIMEOUT = 60.0  # seconds for one process
SHARE_BYTES = 1 << 18  # of code: takes nvdisasm about as long as its start, so less is not worth another process
REMEMBERED = 1024  # cubins

_ENTRY = re.compile(r"Function properties for (\S+)")
_FIELDS = {
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "registers": re.compile(r"Used (\d+) registers"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}
_remembered: dict[tuple[bytes, str], dict[str, Sass] | None] = {}  # by SHA-256 of the cubin, and target
_lock = forking.lock(sys.modules[__name__], "_lock", threading.Lock)


@dataclass(frozen=True)
class EntryResources:
    """The ptxas report of one entry point: registers per thread, and bytes."""

    registers: int = 0
    stack_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores plus spill loads."""
        return self.spill_stores + self.spill_loads


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


def disassemble(cubin: bytes, target: str) -> dict[str, Sass] | None:
    """Return the machine code of each function of a cubin for a target such as "sm_87", as `disassemble_many`."""
    return disassemble_many([(cubin, target)])[0]


def instructions(cubins: Sequence[bytes], target: str) -> list[dict[str, tuple[Instruction, ...]] | None]:
    """Return the instructions of each function of cubins of one target, with the targets of their indirect branches.

    One process reads them all. Returns None for a cubin as `disassemble_many` does.
    """
    codes = [code_sections(cubin) or () if find_nvdisasm() else () for cubin in cubins]
    sections = [section for code in codes for _, section in code]
    listing = _listing(b"".join(sections), target) if sections else None
    read = None if listing is None else read_listing(listing, sections)
    if read is None:
        return [None] if len(cubins) == 1 else [each for cubin in cubins for each in instructions([cubin], target)]
    rest = iter(read)
    return [
        {name: with_targets(next(rest), branch_tables(cubin, name)) for name, _ in code} if code else None
        for cubin, code in zip(cubins, codes, strict=True)
    ]


def disassemble_many(cubins: Sequence[tuple[bytes, str]], jobs: int | None = None) -> list[dict[str, Sass] | None]:
    """Machine code of each function of (cubin, target) pairs, on `jobs` processes at a time (default: every core).

    None for all without nvdisasm, and for a cubin that it or the reader of its sections refuses. Both are remembered
    by the cubin's bytes: the next call for them costs nothing and gives the same objects.
    """
    if find_nvdisasm() is None:
        return [None] * len(cubins)
    keys = [(hashlib.sha256(cubin).digest(), target) for cubin, target in cubins]
    with _lock:
        found = {key: _remembered[key] for key in keys if key in _remembered}
    new = {key: cubin for key, (cubin, _) in zip(keys, cubins, strict=True) if key not in found}
    if new:
        read = _read_all(new, jobs or usable_cores())
        found |= read
        _keep(read)
    return [found[key] for key in keys]


def remember(cubin: bytes, target: str, code: dict[str, Sass]) -> None:
    """Take what another machine has read of a cubin: `disassemble` returns it from now on."""
    _keep({(hashlib.sha256(cubin).digest(), target): code})


def forget(cubin: bytes, target: str) -> None:
    """Read a cubin again at its next request."""
    with _lock:
        _remembered.pop((hashlib.sha256(cubin).digest(), target), None)


def _keep(read: Mapping[tuple[bytes, str], dict[str, Sass] | None]) -> None:
    with _lock:
        _remembered.update(read)
        for key in list(_remembered)[:-REMEMBERED]:
            del _remembered[key]


def _read_all(cubins: dict[tuple[bytes, str], bytes], jobs: int) -> dict[tuple[bytes, str], dict[str, Sass] | None]:
    """Return the functions of each cubin, by (anything, target); one stream or more per target."""
    found: dict[tuple[bytes, str], dict[str, Sass] | None] = {}
    streams: dict[str, dict[tuple[bytes, str], Code]] = {}
    for key, cubin in cubins.items():
        code = code_sections(cubin)
        found[key] = None if code is None else {}
        if code:
            streams.setdefault(key[1], {})[key] = code
    shares = [(target, share) for target, codes in streams.items() for share in _shares([*codes.values()], jobs)]
    read = chain.from_iterable(ordered_map(_read, shares, jobs))
    found.update(zip(chain.from_iterable(streams.values()), read, strict=True))
    return found


def _shares(codes: Sequence[Code], jobs: int) -> list[tuple[Code, ...]]:
    """Neighbours for as many processes as are worth their start, with about the same bytes for each."""
    sizes = [sum(len(section) for _, section in code) for code in codes]
    count = max(1, min(jobs, sum(sizes) // SHARE_BYTES))
    shares: list[list[Code]] = [[] for _ in range(count)]
    before = 0
    for code, size in zip(codes, sizes, strict=True):
        shares[before * count // sum(sizes)].append(code)
        before += size
    return [tuple(share) for share in shares if share]


def _read(stream: tuple[str, tuple[Code, ...]]) -> list[dict[str, Sass] | None]:
    """Return the functions of each code of a stream; if nvdisasm refuses it, or hangs, read its halves one by one."""
    target, codes = stream
    sections = [section for code in codes for _, section in code]
    listing = _listing(b"".join(sections), target)
    functions = None if listing is None else read_listing(listing, sections)
    if functions is not None:
        rest = map(summary, functions)
        return [{name: next(rest) for name, _ in code} for code in codes]
    if len(codes) == 1:
        return [None]
    middle = len(codes) // 2
    return [*_read((target, codes[:middle])), *_read((target, codes[middle:]))]


def _listing(code: bytes, target: str) -> str | None:
    # -ndf leaves out a data flow analysis that changes nothing in the listing.
    command = [str(find_nvdisasm()), "-b", target.replace("sm_", "SM"), "-ndf", "/dev/stdin"]
    try:
        result = tools.run(command, code, timeout=TIMEOUT)
    except (MachineError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None
