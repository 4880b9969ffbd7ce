"""`gensor-tune verify`: check every row's digest and references, and derive every kernel again.

A stored kernel is derived from its Program: constants and source, on request also the cubin and its execution.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from gensor_database import StoreWarning, canonical
from gensor_database.connection import translated
from gensor_database.errors import CorruptStoreError
from gensor_database.record import TABLES, Binary, Kernel, Portfolio, Record, Row, Source, Timing, Verification
from gensor_database.rows import named
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_cubin, toolchain
from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.errors import MALFORMED, ConfigError
from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.source import digest as text_digest
from gensor_kernels.families.registry import current_family, program_from_json
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.own import stored as own
from gensor_kernels.own.configuration import bind
from gensor_kernels.own.description import Description
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.output import note, say, write_json
from gensor_tuner.verify import verify as emulation

#: Statuses of rows that must not be trusted; other statuses are no fault of the file.
BAD = ("damaged", "differs", "wrong")


@dataclass(frozen=True)
class Finding:
    """The status of one row: "ok", one of BAD, "outdated" (ABI), "incomplete" (no binary), or "orphan"."""

    table: str
    digest: str
    status: str
    reason: str | None = None


def check(store: Store, kernel: Kernel, compiled: bool = False, executed: bool = False) -> Finding:
    """Derive a kernel's constants and source and compare; on request also compile and execute it again."""

    def found(status: str, reason: str | None = None) -> Finding:
        return Finding(kernel.TABLE, kernel.digest, status, reason)

    family, binary = current_family(kernel.family, kernel.abi), store.binary(kernel)
    of_user = (kernel.family, kernel.abi) == (own.FAMILY, own.ABI)
    if family is None and not of_user:
        return found("outdated", f"this version has no {kernel.family} with ABI {kernel.abi}")
    if binary is None:
        return found("incomplete", "its binary is damaged, or missing as after a merge without --binaries")
    if family is None:
        differs = _user_difference(store, kernel, binary, compiled)
        return found("ok") if differs is None else found("differs", differs)
    try:
        derived, workload = derive(family, kernel, binary)
        target = lookup(kernel.arch).target
    except MALFORMED as error:
        return found("differs", f"its Program does not exist in this version: {error}")
    if derived.constants != binary.constants:
        return found("differs", "its constants are not those of its Program")
    if text_digest(family.code) != binary.source_digest:
        return found("differs", "its source differs from this version's")
    if binary.target != target:
        return found("differs", f"it was compiled for {binary.target}, not for {target}")
    problem = _rebuilt(binary, derived.source()) if compiled else None
    if problem is not None:
        return found("differs", problem)
    if executed:
        verdict = emulation.verify(derived, workload, use_cache=False)
        if verdict.outcome != "ok":
            return found("wrong", f"{verdict.outcome}: {verdict.detail}")
    return found("ok")


def derive(family: Family, kernel: Kernel, binary: Binary) -> tuple[Candidate, Workload]:
    """Return the candidate of a kernel's Program, and a Workload of its class with the compiled-in epilogue."""
    epilogue = _fixed_epilogue(json.loads(binary.constants).get("EPILOGUE_CODES", 0))
    workload = class_workload(kernel.class_key).with_epilogue(epilogue)
    made = candidate(family, program_from_json(kernel.program), workload)
    return Candidate(made.program, canonical(json.loads(made.constants))), workload


def _rebuilt(binary: Binary, source: str) -> str | None:
    """Return the difference to the cubin compiled here, or None, also if another compiler version made it."""
    if binary.toolchain != toolchain():
        return None
    made = compile_cubin(source, binary.target)
    return None if made.cubin == binary.cubin else made.error or "its cubin differs from the one compiled here"


def _user_difference(store: Store, kernel: Kernel, binary: Binary, compiled: bool) -> str | None:
    """Return how a user's kernel differs from its description and source, or None; `compiled`: also its cubin."""
    try:
        description, knobs = Description.from_json(kernel.class_key), own.knobs_of(kernel.program)
    except ConfigError as error:
        return str(error)
    source = store.source(binary)
    if source is None or source.digest != description.source:
        return "its source is missing, or not the one that it was described with"
    if knobs != json.loads(binary.constants) or knobs.keys() != dict(description.knobs).keys():
        return "its knobs are not those of its binary"
    return _rebuilt(binary, bind(description, source.text.decode(), knobs)) if compiled else None


def _fixed_epilogue(codes: int) -> tuple[str, ...]:
    """Return the operation names of a compile-time epilogue: five bits per operation, lowest first; 31 is none."""
    names = {operation.code: name for name, operation in OPERATIONS.items()}
    found = []
    while codes > 0:  # shifting a negative number would never end
        if codes & 31 in names:
            found.append(names[codes & 31])
        codes >>= 5
    return tuple(found)


#: Each table's column that references a row, and the table of that row.
NAMES: dict[type[Row], tuple[str, type[Row]]] = {Binary: ("source_digest", Source), Kernel: ("binary_digest", Binary)}
NAMES |= dict.fromkeys((Verification, Record, Portfolio, Timing), ("kernel_digest", Kernel))
ORDER = ("ok", *BAD, "outdated", "incomplete", "orphan")


def verify(path: Path, arch: str | None, rebuild: bool, execute: bool, jobs: int, lines: TextIO | None) -> int:
    """Check the database at `path`; return 1 where a row is damaged, differs from its derivation, or is wrong."""
    if rebuild or execute:
        emulation.check_compilers("emulator" if execute else "none", jobs)
    counts: Counter[str] = Counter()
    read: Counter[str] = Counter()
    kernels = 0
    with Store.open(path, readonly=True) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # each damaged row is reported here
        for finding in findings(store, arch, rebuild, execute, jobs, read):
            counts[finding.status] += 1
            kernels += finding.table == Kernel.TABLE and finding.status not in ("damaged", "orphan")
            say(f"{finding.table:<12} {finding.digest[:12]} {finding.status:<10} {finding.reason or ''}".rstrip())
            write_json(lines, asdict(finding))
    bad = sum(counts[status] for status in BAD)
    summary = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status]) or "nothing to report"
    rows = read.total()
    note(f"{kernels} kernels of {path} checked, {rows} rows by their digests: {summary}")
    if counts["outdated"] or counts["incomplete"]:
        note(f"gensor-tune refresh --db {shlex.quote(str(path))} builds kernels again")
    return 1 if bad else 0


def findings(
    store: Store, arch: str | None, rebuild: bool, execute: bool, jobs: int, read: Counter[str]
) -> Iterator[Finding]:
    """Yield a Finding for every suspicious row and for every kernel (of `arch`); `read` counts rows by table."""
    known: dict[type[Row], set[str]] = {kind: set() for kind in TABLES}
    naming: list[tuple[type[Row], str, str]] = []  # (table, digest, referenced digest)
    kernels: list[Kernel] = []
    for kind in TABLES:
        try:
            for digest, row in _rows(store, kind):
                read[kind.TABLE] += 1
                if row is None:
                    yield Finding(kind.TABLE, digest, "damaged", "the row does not match its digest: it is never used")
                    continue
                known[kind].add(digest)
                name = getattr(row, NAMES[kind][0]) if kind in NAMES else None
                if name is not None:
                    naming.append((kind, digest, name))
                if isinstance(row, Kernel) and arch in (None, row.arch):
                    kernels.append(row)
        except CorruptStoreError as error:
            yield Finding(kind.TABLE, "", "damaged", f"not every row can be read: {error}")
    yield from _structure(store)
    yield from _orphans(known, naming)
    kernels.sort(key=lambda kernel: kernel.digest)
    with ThreadPoolExecutor(jobs) as threads:
        # Compilers release the interpreter lock.
        yield from threads.map(lambda kernel: check(store, kernel, rebuild, execute), kernels)


def _rows(store: Store, kind: type[Row]) -> Iterator[tuple[str, Row | None]]:
    """Yield (digest, row, or None for a mismatch) of a table; raise a StoreError where reading ends early."""
    with translated(store.path):
        for pairs in named(store.connection, kind, {}, indexed=False):
            yield from ((str(stored[0]), row) for stored, row in pairs)


def _structure(store: Store) -> Iterator[Finding]:
    """Yield SQLite's findings about pages and indexes: a damaged index hides intact rows."""
    try:
        with translated(store.path):
            texts = [str(text) for (text,) in store.connection.execute("PRAGMA integrity_check(20)")]
        lines = [line for text in texts for line in text.splitlines() if not line.startswith("***")]  # a heading
    except CorruptStoreError as error:
        lines = [str(error)]
    yield from (Finding("structure", "", "damaged", line) for line in lines if line != "ok")


def _orphans(known: dict[type[Row], set[str]], naming: list[tuple[type[Row], str, str]]) -> Iterator[Finding]:
    """Yield rows with missing references, and sources, binaries and kernels without a reference to them."""
    used: dict[type[Row], set[str]] = {kind: set() for kind in TABLES}
    for kind, digest, name in naming:
        target = NAMES[kind][1]
        if kind is not Verification:  # a verdict does not keep a kernel in use
            used[target].add(name)
        if name not in known[target] and kind is not Kernel:
            reason = f"its {target.TABLE} {name[:12]} is not in this file"
            yield Finding(kind.TABLE, digest, "orphan", reason)
    for target in (Source, Binary, Kernel):
        for digest in sorted(known[target] - used[target]):
            yield Finding(target.TABLE, digest, "orphan", "nothing names it: gensor-tune prune deletes it")
