"""`gensor-tune refresh`: rebuild and verify recorded kernels from their Programs.

Rows never change: a rebuilt kernel gets new rows, and newer records refer to it. The replaced kernel stays with all its
timings, and continues to serve if its ABI version is current. A Program that another version stored is adapted to this
version where its family allows it.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TextIO

import numpy as np

from gensor_database import Binary, Kernel, Portfolio, Record, Source, Store, canonical
from gensor_database.exchange import best_ranks
from gensor_database.record import now
from gensor_database.timings import newest_first
from gensor_kernels.build import nvrtc
from gensor_kernels.dispatch.selection.predict import few_seconds
from gensor_kernels.errors import MALFORMED, GensorError, UnknownArchError
from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.program import OPTIONAL, Program
from gensor_kernels.families.core.source import digest as text_digest
from gensor_kernels.families.registry import FAMILIES, current_family
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.families.validation import samples_of, workload_of
from gensor_kernels.machine.arch import Arch, lookup, stored
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.own import stored as own
from gensor_tuner.build.binaries import inspect_binaries
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.output import note, plural, say, write_json
from gensor_tuner.search.trace import start_of
from gensor_tuner.strategies.request import compiled_space
from gensor_tuner.verify.verify import check_compilers, verify

from .kernel_rows import kernel_rows, verification_row

BATCH = 32  # kernels compiled together: at most these are lost by a budget's end or Ctrl-C


@dataclass
class Winner:
    """A kernel that current records or portfolios refer to."""

    kernel: Kernel
    records: list[Record] = field(default_factory=list)
    portfolio: list[Portfolio] = field(default_factory=list)


@dataclass(frozen=True)
class Refreshed:
    """The outcome for one kernel: "current", "rebuilt" as the kernel `now`, "left" as it is, or "failed"."""

    kernel: str
    status: str
    now: str | None = None
    records: int = 0
    reason: str | None = None


def refresh(path: Path, arch: str | None, budget: float | None, jobs: int, lines: TextIO | None) -> int:
    """Refresh the database at `path`; return 1 where a rebuilt kernel failed or the budget ended early."""
    check_compilers("emulator", jobs)
    began, counts = time.monotonic(), Counter[str]()
    with Store.open(path) as store:
        for found in _refresh(store, arch, jobs, lambda: budget is not None and time.monotonic() - began > budget):
            counts[found.status] += 1
            served = f"{found.records:>4} {plural('record', found.records)}"
            text = f"{found.kernel[:12]} {found.status:<8} {(found.now or '')[:12]:<12} {served}"
            say(f"{text} {found.reason or ''}".rstrip(), flush=True)
            write_json(lines, asdict(found))
        kept = store.counts()["timing"]
    summary = ", ".join(f"{counts[each]} {each}" for each in ("current", "rebuilt", "left", "failed") if counts[each])
    note(f"{summary or 'no kernels'}; all {kept} timings are kept")
    return 1 if counts["failed"] else 0


def winners(store: Store, arch: str | None) -> list[Winner]:
    """Return the kernels of all newest records and portfolios, in the order of their digests."""
    where = {"arch": arch} if arch else {}
    kernels = {row.digest: row for row in store.rows(Kernel, **where)}
    found: dict[str, Winner] = {}
    taken: set[tuple[str, str, str]] = set()
    for record in newest_first(row for row in store.rows(Record, **where) if row.outcome == "ok"):
        place = (record.key, record.arch, record.part)
        if place not in taken and record.kernel_digest in kernels:
            taken.add(place)
            digest = record.kernel_digest
            found.setdefault(digest, Winner(kernels[digest])).records.append(record)
    for row in store.rows(Portfolio, **where):
        if row.kernel_digest in kernels:
            found.setdefault(row.kernel_digest, Winner(kernels[row.kernel_digest])).portfolio.append(row)
    return [found[digest] for digest in sorted(found)]


def _refresh(store: Store, arch: str | None, jobs: int, spent: Callable[[], bool]) -> Iterator[Refreshed]:
    todo: list[Work] = []
    for winner in winners(store, arch):
        stored = store.kernel(winner.kernel.digest)
        verified = stored.verified if stored is not None else "none"
        reason = _why_not_current(store, winner.kernel) or ("not verified" if verified == "none" else None)
        if winner.kernel.family == own.FAMILY:
            records, why = len(winner.records), "a user's kernel: tune it again (gensor-tune own)"
            yield Refreshed(
                winner.kernel.digest, "left" if reason else "current", records=records, reason=reason and why
            )
            continue
        if verified == "rejected":
            yield Refreshed(winner.kernel.digest, "left", reason="a wrong or failed execution rejects it")
        elif reason is None:
            yield Refreshed(winner.kernel.digest, "current", records=len(winner.records))
        else:
            yield from _plan(winner, reason, todo)
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        if spent():
            error = "the budget was spent before this kernel; run again to go on"
            yield from (Refreshed(work.winner.kernel.digest, "failed", reason=error) for work in batch)
        else:
            yield from _build(store, batch, jobs)


def _why_not_current(store: Store, kernel: Kernel) -> str | None:
    """Return the reason why this version would build the kernel differently, or None."""
    family, binary = current_family(kernel.family, kernel.abi), store.binary(kernel)
    if family is None and (kernel.family, kernel.abi) != (own.FAMILY, own.ABI):
        return f"it has ABI {kernel.abi} of {kernel.family}"
    if binary is None:
        return "it has no binary"
    if family is not None and binary.source_digest != text_digest(family.code):
        return "its source has changed"
    return None if binary.toolchain == nvrtc.toolchain() else f"it was compiled by {binary.toolchain}"


@dataclass(frozen=True)
class Work:
    """A kernel to rebuild, a Workload that it served, and the records whose Workloads it is still legal for."""

    winner: Winner
    workload: Workload
    adapted: Candidate
    records: tuple[tuple[Record, Workload, Candidate], ...]
    reason: str


def _plan(winner: Winner, reason: str, todo: list[Work]) -> Iterator[Refreshed]:
    """Add the kernel's work to `todo`; yield the kernel or records that are left as they are, with the reason."""
    kernel, arch = winner.kernel, lookup(winner.kernel.arch)
    legal: dict[Candidate, list[tuple[Record, Workload, Candidate]]] = {}
    for record in winner.records:
        try:
            workload = workload_of(record.key)
            adapted = adapt(kernel.program, workload, arch)
        except MALFORMED as error:
            yield Refreshed(kernel.digest, "left", records=1, reason=f"{error} ({record.key[:200]})")
        else:
            legal.setdefault(adapted, []).append((record, workload, adapted))
    # A compile-time epilogue makes another kernel.
    todo += [Work(winner, found[0][1], found[0][2], tuple(found), reason) for found in legal.values()]
    if not winner.records:
        try:
            todo.append(Work(winner, *_sample(kernel, arch), (), reason))
        except MALFORMED as error:
            yield Refreshed(kernel.digest, "left", reason=str(error))


def _sample(kernel: Kernel, arch: Arch) -> tuple[Workload, Candidate]:
    """Return a Workload of the kernel's class that its Program is legal for, and its candidate."""
    workloads = samples_of(kernel.class_key)
    for workload in workloads:
        with suppress(NotLegal):
            return workload, adapt(kernel.program, workload, arch)
    return workloads[0], adapt(kernel.program, workloads[0], arch)  # which says why it is not legal


def _build(store: Store, batch: Sequence[Work], jobs: int) -> Iterator[Refreshed]:
    requests = [(work.adapted.source(), lookup(work.winner.kernel.arch).target) for work in batch]
    # Rows hold what nvdisasm reads of a cubin; one process reads a whole batch in the time of a few cubins.
    compiled = [binary for binary, _ in inspect_binaries(nvrtc.compile_many(requests, jobs), jobs)]
    works = list(zip(batch, compiled, strict=True))
    with ThreadPoolExecutor(jobs) as threads:
        good = [work for work, binary in works if binary.error is None]
        verdicts = iter(list(threads.map(lambda work: verify(work.adapted, work.workload), good)))
    for work, binary in works:
        old = work.winner.kernel.digest
        if binary.error is not None:
            yield Refreshed(old, "failed", reason=f"not compiled: {binary.error.splitlines()[0]}")
            continue
        verdict = next(verdicts)
        rows = kernel_rows(work.adapted, binary, work.workload, lookup(work.winner.kernel.arch))
        fresh = [*rows, verification_row(rows[-1], verdict)]
        if verdict.outcome != "ok":
            store.add(*(fresh if verdict.outcome in ("wrong", "failed") else ()))
            yield Refreshed(old, "failed", rows[-1].digest, reason=f"{verdict.outcome}: {verdict.detail}")
            continue
        changed = rows[-1].digest != old
        records = [_record(work.winner.kernel, *each, rows) for each in work.records] if changed else []
        store.add(*fresh, *records)
        _replace(store, work.winner.portfolio, rows[-1].digest)
        yield Refreshed(old, "rebuilt", rows[-1].digest, len(work.records), work.reason)


def _record(
    old: Kernel, record: Record, workload: Workload, adapted: Candidate, rows: tuple[Source, Binary, Kernel]
) -> Record:
    """Return the record that refers to the rebuilt kernel, with a later time than its predecessor's."""
    _, binary, kernel = rows
    try:
        kept = json.loads(record.provenance)
    except (ValueError, RecursionError):  # malformed JSON in a foreign file
        kept = None
    versions = {"gensor_kernels": metadata.version("gensor-kernels"), "refreshed_from": old.digest}
    same, part = old.abi == kernel.abi and old.program == kernel.program, _part(record)
    return replace(
        record,
        abi=kernel.abi,
        kernel_digest=kernel.digest,
        predicted_us=predicted_us(adapted, binary, workload, part),
        bound_us=bound_us(workload, part),
        walk=record.walk if same else start_of(adapted.program, "full").to_json(workload),
        provenance=canonical({**(kept if isinstance(kept, dict) else {}), **versions}),
        created=max(now(), record.created + 1),
    )


def _part(record: Record) -> Arch:
    """Return the part of a record, or the default part of its capability where it is not listed."""
    with suppress(UnknownArchError):
        return stored(record.part)
    return lookup(record.arch)


def predicted_us(candidate: Candidate, binary: Binary, workload: Workload, arch: Arch) -> float:
    """Return the microseconds that the potential predicts with the compiler's report on a binary, as tuning does."""
    space = compiled_space(workload, arch, candidate.program, json.loads(binary.facts)[candidate.entry])
    return float(space.potential(space.point(candidate.program)[None])[0]) * 1e6


def _replace(store: Store, portfolio: Iterable[Portfolio], kernel: str) -> None:
    """Replace the kernel that these rows refer to by another, in each of their portfolios."""
    for row in portfolio:
        group = {"arch": row.arch, "part": row.part, "class_key": row.class_key}
        present = [each for each in store.rows(Portfolio, **group) if each.kernel_digest != row.kernel_digest]
        joined = best_ranks([*present, replace(row, kernel_digest=kernel)])
        store.replace_portfolio(row.arch, row.part, row.class_key, joined.values())


class NotLegal(GensorError):
    """A stored Program that is not legal in this version; the text is the reason."""


def adapt(text: str, workload: Workload, arch: Arch) -> Candidate:
    """Return the candidate of the Program `text`, coordinates that it lacks at their defaults; or raise NotLegal."""
    try:
        body = json.loads(text)
        family = FAMILIES.get(body.pop("family"))
        if family is None or not all(type(value) is int for value in body.values()):
            raise NotLegal("its family is not in this version")
        reason = family.serves(workload, arch)
        if reason is not None:
            raise NotLegal(f"{family.name} does not serve it: {reason}")
        program = _complete(family, body, workload, arch)
    except NotLegal:
        raise
    except MALFORMED as error:
        raise NotLegal(f"its Program cannot be read: {error}") from None
    (seconds,) = few_seconds(family, [program], workload, arch)
    if not math.isfinite(seconds):
        raise NotLegal("its Program is not legal in this version")
    return candidate(family, program, workload)


def _complete(family: Family, values: dict[str, int], workload: Workload, arch: Arch) -> Program:
    lost = sorted(set(values) - set(family.names))
    if lost:
        raise NotLegal(f"{family.name} has no {', '.join(lost)} any more")
    if set(values) == set(family.names):
        return Program(family.name, tuple((name, values[name]) for name in family.names))
    space = FamilySpace(family, workload, arch)
    tiles = [
        coordinate.values.index(values.get(coordinate.name, coordinate.values[0])) if coordinate.level == 0 else 0
        for coordinate in space.coordinates
    ]
    usual = space.program(np.array([0, *tiles[1:]]))  # "level" is first: only the block's tile is reached
    # A Program from before its class had an optional coordinate is one with 0 there.
    filled = {name: 0 if name in OPTIONAL else value for name, value in usual.values}
    return Program(family.name, tuple((name, values.get(name, value)) for name, value in filled.items()))
