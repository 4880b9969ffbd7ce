"""Deletion of unused rows: never of timings, of timed kernels, or of verdicts that reject a kernel."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import connection as sql
from .connection import Guarded
from .errors import StoreError
from .packs import loose
from .record import TABLES, Binary, Kernel, Portfolio, Record, Row, RowType, Source, Timing, Verification
from .rows import select
from .timings import REJECTING, launched, newest_first, verdict

if TYPE_CHECKING:
    from .store import Store

_CHUNK = 500  # digests in one statement
Dropped = dict[type[Row], set[str]]


@dataclass
class Pruned:
    """Result of `prune`: deleted rows by table, and the reduction of the file in bytes (size of the values in a dry
    run).

    `kept_size` is the reason if the file could not be made smaller although the rows are deleted.
    """

    rows: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    kept_size: str | None = None


def prune(store: Store, abis: Mapping[str, int] | None = None, dry_run: bool = False) -> Pruned:
    """Delete unreferenced rows in one transaction, and make the file smaller; with `dry_run`, only count them.

    Superseded records are deleted: of each Workload and part, the newest record stays, and the newest with a usable
    kernel of each ABI version. Then kernels without record, portfolio and timing, their verifications except
    rejections, binaries without kernel and sources without binary. Rows that do not match
    their digests are neither used nor deleted, unless they are binaries and sources. With `abis`, the current ABI
    version by family, records and portfolios of other versions are also deleted. After a StoreError nothing was
    deleted.
    """
    before = _file_bytes(store)
    if dry_run:
        with sql.translated(store.path):
            return _count(store.connection, _unused_rows(store.connection, abis))

    def delete(connection: Guarded) -> Pruned:
        found = _unused_rows(connection, abis)
        pruned = _count(connection, found)
        for kind, digests in found.items():
            query = f'DELETE FROM "{kind.TABLE}" WHERE digest = ?'
            connection.executemany(query, ((digest,) for digest in sorted(digests)))
        packs = ((digest,) for digest in sorted(loose(connection)))
        connection.executemany("DELETE FROM pack WHERE digest = ?", packs)
        return pruned

    pruned = store._write(delete)
    try:
        with sql.translated(store.path):
            sql.retry(lambda: store.connection.execute("VACUUM"), store.timeout)
            if store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                pruned.kept_size = f"{store.path} is being read by another process"
    except StoreError as error:
        pruned.kept_size = str(error)
    pruned.bytes = 0 if pruned.kept_size else before - _file_bytes(store)
    return pruned


def _file_bytes(store: Store) -> int:
    found = (f"{store.path}{suffix}" for suffix in ("", "-wal"))
    return sum(os.path.getsize(path) for path in found if os.path.exists(path))


def _intact(connection: Guarded, kind: type[RowType]) -> Iterator[RowType]:
    """Return intact rows. Unlike Store.rows it raises if reading ends early: all rows must have been seen."""
    return (row for rows in select(connection, kind, {}) for row in rows if row is not None)


def _unused_rows(connection: Guarded, abis: Mapping[str, int] | None) -> Dropped:
    """Digests of the rows to drop, by table."""
    kernels = {row.digest: row for row in _intact(connection, Kernel)}
    verdicts: dict[str, list[Verification]] = {}
    for row in _intact(connection, Verification):
        verdicts.setdefault(row.kernel_digest, []).append(row)
    usable = {digest for digest in kernels if verdict(verdicts.get(digest, ())) in ("device", "emulator")}
    outdated = {k for k, row in kernels.items() if abis is not None and abis.get(row.family) != row.abi}
    records = list(_intact(connection, Record))
    portfolio = list(_intact(connection, Portfolio))
    drop_records = {row.digest for row in records if row.kernel_digest in outdated}
    kept = [row for row in records if row.digest not in drop_records]
    drop_records |= _superseded_records(kept, kernels, usable)
    drop_portfolio = {row.digest for row in portfolio if row.kernel_digest in outdated}
    named = {row.kernel_digest for row in records if row.digest not in drop_records}
    named |= {row.kernel_digest for row in portfolio if row.digest not in drop_portfolio}
    named |= {launched(row)[0] for row in _intact(connection, Timing)}
    drop_kernels = kernels.keys() - named
    dropped: Dropped = {
        Record: drop_records,
        Portfolio: drop_portfolio,
        Kernel: set(drop_kernels),
        Verification: {
            row.digest for kernel in drop_kernels for row in verdicts.get(kernel, ()) if row.outcome not in REJECTING
        },
    }
    return dropped | _code(connection, drop_kernels)


def _superseded_records(records: Iterable[Record], kernels: Mapping[str, Kernel], usable: set[str]) -> set[str]:
    """Return digests of records that are superseded by a newer record of the same Workload and part for every
    reader."""
    found: set[str] = set()
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.key, record.arch, record.part), []).append(record)
    for group in groups.values():
        ordered = newest_first(group)
        keep = {ordered[0].digest}
        for abi in {record.abi for record in ordered}:
            working = [r for r in ordered if r.abi == abi and r.outcome == "ok" and r.kernel_digest in kernels]
            best = [r for r in working if r.kernel_digest in usable] or working
            keep |= {r.digest for r in best[:1]}
        found |= {record.digest for record in ordered} - keep
    return found


def _code(connection: Guarded, drop_kernels: Iterable[str]) -> Dropped:
    """Return digests of binaries without kernels and sources without binaries after the deletion, without reading
    code."""
    gone = set(drop_kernels)
    kernels = connection.execute("SELECT digest, binary_digest FROM kernel")
    wanted = {binary for kernel, binary in kernels if kernel not in gone}
    sources = dict(connection.execute("SELECT digest, source_digest FROM binary"))
    texts = {source for binary, source in sources.items() if binary in wanted}
    every = {digest for (digest,) in connection.execute("SELECT digest FROM source")}
    return {Binary: sources.keys() - wanted, Source: every - texts}


def _count(connection: Guarded, found: Dropped) -> Pruned:
    """Return the number of rows, and the bytes of their values."""
    pruned = Pruned()
    for kind in TABLES:
        digests = sorted(found.get(kind, ()))
        pruned.rows[kind.TABLE] = len(digests)
        size = " + ".join(f'coalesce(length(CAST("{name}" AS BLOB)), 0)' for name in ("digest", *kind.columns()))
        for start in range(0, len(digests), _CHUNK):
            chunk = digests[start : start + _CHUNK]
            query = f'SELECT sum({size}) FROM "{kind.TABLE}" WHERE digest IN ({", ".join("?" * len(chunk))})'
            pruned.bytes += connection.execute(query, chunk).fetchone()[0] or 0
    pruned.rows = +pruned.rows  # without tables that lose nothing
    return pruned
