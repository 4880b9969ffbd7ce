"""Union of databases in one file: every row of each, in an order independent of theirs; and their conflicts.

Rows are named by their digests and never change, so that the union is commutative, associative and idempotent.  The
rows alone determine winners.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from .exchange import best_ranks, compact, tables
from .record import TABLES, Kernel, Portfolio, Record, Row, Timing, Verification
from .rows import batches
from .text import duration
from .timings import newest_first, verdict, winner

if TYPE_CHECKING:
    from .store import Store


@dataclass(frozen=True)
class Conflict:
    """A Workload for which databases chose different kernels, or a kernel with different verdicts.

    `subject` is the key of the Workload or the digest of the kernel, `choices` are (file, digest of the kernel or
    verdict) of each database with a choice, `winner` is the digest that counts in the union, or "rejected".
    """

    subject: str
    arch: str
    part: str | None
    choices: tuple[tuple[str, str], ...]
    winner: str
    reason: str


def union(stores: Sequence[Store], path: str | os.PathLike[str], binaries: bool | None = None) -> Counter[str]:
    """Write the rows of all `stores` to a new compact file at `path`, and return the number of rows by table.

    The same rows give the same file, byte by byte, for any order of the stores.  Tables are those of `merge`.  Raises a
    StoreError; then there is no file.
    """
    counts: Counter[str] = Counter()
    with compact(path) as copy:
        for kind in TABLES:
            rows: Iterable[Row]
            if kind is Portfolio:
                rows = best_ranks(row for store in stores for row in store.rows(Portfolio)).values()
            else:
                rows = _distinct([store for store in stores if kind in tables(store, binaries)], kind)
            for batch in batches(rows):
                counts[kind.TABLE] += copy.add(*batch)
    return counts


def _distinct(stores: Sequence[Store], kind: type[Row]) -> Iterator[Row]:
    """Return the rows of one table, in the order of their digests, each once."""
    merged = heapq.merge(*(store.rows(kind) for store in stores), key=lambda row: row.digest)
    return (next(same) for _, same in groupby(merged, key=lambda row: row.digest))


def conflicts(stores: Sequence[Store], binaries: bool | None = None) -> list[Conflict]:
    """Return the contradictions between databases, and the winners in their union; in a stable order."""
    found = [*_of_records(stores), *_of_verdicts([s for s in stores if Verification in tables(s, binaries)])]
    return sorted(found, key=lambda each: (each.subject, each.arch, each.part or ""))


def _of_records(stores: Sequence[Store]) -> Iterator[Conflict]:
    newest: dict[tuple[str, str, str], dict[str, Record]] = {}
    for store in stores:
        for record in reversed(newest_first(row for row in store.rows(Record) if row.kernel_digest)):
            newest.setdefault((record.key, record.arch, record.part), {})[str(store.path)] = record
    for (key, arch, part), chosen in newest.items():
        if len({record.kernel_digest for record in chosen.values()}) > 1:
            best, reason = _winner(stores, list(chosen.values()))
            named = tuple(sorted((path, record.kernel_digest or "") for path, record in chosen.items()))
            yield Conflict(key, arch, part, named, best, reason)


def _winner(stores: Sequence[Store], records: Sequence[Record]) -> tuple[str, str]:
    """Return the kernel that counts, as in dispatch: by the timings on this part, else by age, else by digest."""
    first = newest_first({record.digest: record for record in records}.values())
    key, part = first[0].key, first[0].part
    rows = {row.digest: row for store in stores for row in store.rows(Timing, key=key, part=part) if row.kernel_digest}
    digests = {record.kernel_digest for record in records}
    timed = {row.kernel_digest for row in rows.values()} & digests
    fastest = winner(row for row in rows.values() if row.kernel_digest in timed)
    if len(timed) > 1 and fastest is not None:
        return fastest.kernel_digest or "", f"the fastest, or tied with it: {duration(fastest.median_us)} on this part"
    newest = first[0]
    rival = next(record for record in first if record.kernel_digest != newest.kernel_digest)
    reason = "its record is the newest" if newest.created > rival.created else "of one second, the smaller digest"
    return newest.kernel_digest or "", reason


def _of_verdicts(stores: Sequence[Store]) -> Iterator[Conflict]:
    verdicts: dict[str, dict[str, list[Verification]]] = {}
    for store in stores:
        for row in store.rows(Verification):
            verdicts.setdefault(row.kernel_digest, {}).setdefault(str(store.path), []).append(row)
    for digest, by_store in verdicts.items():
        said = {path: verdict(rows) for path, rows in by_store.items()}
        if "rejected" in said.values() and len(set(said.values())) > 1:
            kernel = next((k for store in stores if (k := store.get(Kernel, digest)) is not None), None)
            arch = kernel.arch if kernel is not None else ""
            reason = "a wrong or failed execution rejects a kernel for good"
            yield Conflict(digest, arch, None, tuple(sorted(said.items())), "rejected", reason)
