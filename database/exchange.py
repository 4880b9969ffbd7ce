"""Copies of rows between databases: merge or unite all rows, or export the rows that serve one architecture.

Rows are named by their digests and never change, so that a union is commutative, associative and idempotent.  The rows
alone determine winners.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from .connection import Guarded, translated
from .errors import absolute
from .packs import pack
from .record import TABLES, Binary, Kernel, Portfolio, Record, Row, Source, Timing, Verification
from .rows import batches, select
from .text import duration
from .timings import launched, newest_first, verdict, winner
from .writing import folder_beside

if TYPE_CHECKING:
    from .store import Store


def merge(store: Store, other: Store, binaries: bool | None = None) -> Counter[str]:
    """Add every row of `other` that `store` lacks, and return the number of new rows by table.

    Binaries and verifications are taken with `binaries`, by default only if `other` is trusted. Without them, its
    kernels have to be compiled and verified again. A portfolio's kernel keeps the better of its two ranks, so that the
    order of merges does not matter. Raises StoreError if a database cannot be written.
    """
    added: Counter[str] = Counter()
    for kind in tables(other, binaries):
        added[kind.TABLE] += _add_all(store, other.rows(kind))
    added[Portfolio.TABLE] += _merge_portfolios(store, other)
    return added


def tables(store: Store, binaries: bool | None) -> list[type[Row]]:
    """Return the tables that are copied unchanged, in the order of their references; portfolios are joined instead."""
    whole = store.trusted if binaries is None else binaries
    return [kind for kind in TABLES if kind is not Portfolio and (whole or kind not in (Binary, Verification))]


def _add_all(store: Store, rows: Iterable[Row]) -> int:
    return sum(store.add(*batch) for batch in batches(rows))


def _merge_portfolios(store: Store, other: Store) -> int:
    ours, joined = best_ranks(store.rows(Portfolio)), best_ranks([*store.rows(Portfolio), *other.rows(Portfolio)])
    changed: dict[tuple[str, str, str], list[Portfolio]] = {}
    for (arch, part, class_key, _), row in joined.items():
        changed.setdefault((arch, part, class_key), []).append(row)
    for group, rows in changed.items():
        if any(ours.get((*group, row.kernel_digest)) != row for row in rows):
            store.replace_portfolio(*group, rows)
    return len(joined) - len(ours)


def best_ranks(rows: Iterable[Portfolio]) -> dict[tuple[str, str, str, str], Portfolio]:
    """Return, for each class and kernel, the row with the best rank, in a stable order; kernels may share a rank."""
    best: dict[tuple[str, str, str, str], Portfolio] = {}
    for row in rows:
        where = (row.arch, row.part, row.class_key, row.kernel_digest)
        if where not in best or row.rank < best[where].rank:
            best[where] = row
    return dict(sorted(best.items()))


def export(store: Store, path: str | os.PathLike[str], arch: str) -> Counter[str]:
    """Write the rows that serve `arch` to a new, compact file for shipping, replacing `path` in one step.

    These are the record that counts for each Workload and part, the portfolios, their kernels with binaries, sources
    and verifications, and the timings.  The file has a rollback journal and no free pages, and is readable from a
    read-only folder.
    """
    added: Counter[str] = Counter()
    with compact(path) as copy:
        for rows in _selection(store, arch):
            for batch in batches(rows):
                added[batch[0].TABLE] += len(batch)
                copy.add(*batch)
        copy._write(_pack)
    return added


def _pack(connection: Guarded) -> None:
    """Put sources, cubins and texts of a finished file into packs, with cubins of similar kernels together."""
    for kind, order in ((Binary, "source_digest, constants"), (Source, "digest"), (Verification, "kernel_digest")):
        digests = connection.execute(f'SELECT digest FROM "{kind.TABLE}" ORDER BY {order}').fetchall()
        lists = (list(select(connection, kind, {"digest": digest})) for (digest,) in digests)
        found = (row for each in lists for rows in each for row in rows)
        pack(connection, kind, filter(None, found))


@contextmanager
def compact(path: str | os.PathLike[str]) -> Iterator[Store]:
    """Fill a new database within a block; it then takes the place of `path` in one step.

    It has a rollback journal, no free pages, and is one file.  Raises a StoreError; then `path` is unchanged.
    """
    from .store import Store

    target = absolute(path)
    with translated(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with folder_beside(target) as partial, Store.open(partial) as copy:
            yield copy
            copy.connection.execute("PRAGMA journal_mode=DELETE")
            copy.connection.execute("VACUUM")


def capabilities(store: Store) -> list[str]:
    """Return the compute capabilities whose rows `export` would write."""
    ranked, timed = ({row.arch for row in store.rows(Portfolio)}, {row.arch for row in store.rows(Timing)})
    return sorted({row.arch for row in store.rows(Record)} | ranked | timed)


def _selection(store: Store, arch: str) -> Iterator[Iterable[Row]]:
    """Return rows to export, table by table, each in the order of digests; code is read on demand."""
    newest: dict[tuple[str, str], Record] = {}
    for record in store.rows(Record, arch=arch):
        if record.outcome != "ok" or not record.kernel_digest:
            continue
        present = newest.get((record.key, record.part))
        if present is None or (-record.created, record.digest) < (-present.created, present.digest):
            newest[record.key, record.part] = record
    portfolio = list(store.rows(Portfolio, arch=arch))
    timings = list(store.rows(Timing, arch=arch))
    named = {row.kernel_digest for row in newest.values()}
    named |= {row.kernel_digest for row in portfolio} | {launched(row)[0] for row in timings}
    kernels = [kernel for kernel in store.rows(Kernel, arch=arch) if kernel.digest in named]
    present_kernels = {kernel.digest for kernel in kernels}
    wanted = {kernel.binary_digest for kernel in kernels}
    texts = {binary.source_digest for binary in store.rows(Binary) if binary.digest in wanted}
    yield (source for source in store.rows(Source) if source.digest in texts)
    yield (binary for binary in store.rows(Binary) if binary.digest in wanted)
    yield kernels
    yield [row for row in store.rows(Verification) if row.kernel_digest in present_kernels]
    yield sorted(newest.values(), key=lambda record: record.digest)
    yield portfolio
    yield timings


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
