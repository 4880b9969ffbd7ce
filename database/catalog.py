"""Catalog: rows of one architecture in memory, since a warm call must never wait for SQLite.

Binaries stay in their files until a kernel is loaded for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter

from .record import Kernel, Portfolio, Record, Row, RowType, Timing, Verification
from .rows import BATCH, Among, Containing
from .store import Entry, Store, StoredKernel
from .timings import newest_first, serves, verdict


class Catalog:
    """Records, kernels, portfolios and timings of one architecture from several stores.

    `stores` are in the order of precedence, the user's first; verifications count from every store, because the user's
    device may have verified, or refuted, a shipped kernel. Kernels whose ABI version differs from `abis`, by family,
    are left out, and so are rows that `well_formed` refuses, in stores that other users can write to. Only classes and
    Workloads whose JSON contains all of `texts` are read.
    """

    def __init__(
        self,
        stores: Iterable[Store],
        arch: str,
        abis: Mapping[str, int] | None = None,
        well_formed: Callable[[Row], bool] = lambda row: True,
        texts: Sequence[str] = (),
    ):
        self.arch = arch
        self._texts = Containing(texts)
        self.stores = tuple(stores)
        self.abis = abis
        self._well_formed = well_formed
        self._kernels = self._load_kernels()
        self._by_class: dict[str, list[StoredKernel]] = {}
        for stored in self._kernels.values():
            self._by_class.setdefault(stored.kernel.class_key, []).append(stored)
        # Records, portfolios and times of Workloads without a kernel decide nothing: of some types they are not read.
        is_empty = bool(self._texts) and not self._kernels
        self._entries = {} if is_empty else self._load_entries()
        self._portfolios = {} if is_empty else self._load_portfolios()
        self._timings = {} if is_empty else self._load_timings()

    def find(self, key: str, part: str | None = None) -> Entry | None:
        """Return the record that counts for a Workload on `part`, or on any part of the arch if that is None.

        That is the first store's newest record with a usable kernel; without usable kernels, with any kernel.
        """
        entries = self._entries.get(key, ())
        return next((entry for entry in entries if part is None or entry.record.part == part), None)

    def kernel(self, digest: str) -> StoredKernel | None:
        """Return the kernel with this digest."""
        return self._kernels.get(digest)

    def kernels_for_class(self, class_key: str) -> Sequence[StoredKernel]:
        """Return every kernel of a class, in the order of digests."""
        return tuple(self._by_class.get(class_key, ()))

    def portfolio(self, class_key: str, part: str | None = None) -> Sequence[StoredKernel]:
        """Return the usable kernels of a class's portfolios for `part`, all stores joined, the first store's first.

        A store with few sizes must not hide another store's larger choice.  With None as part, portfolios of all parts
        are joined.
        """
        covers = self._portfolios.get(class_key, {})
        chosen = covers.values() if part is None else [covers.get(part, ())]
        return tuple({kernel.kernel.digest: kernel for cover in chosen for kernel in cover}.values())

    def timings(self, key: str, part: str) -> Sequence[Timing]:
        """Return every timing of a Workload on a part, oldest first."""
        return self._timings.get((key, part), ())

    def timed_keys(self, part: str) -> list[str]:
        """Return every Workload with a timing on a part."""
        return sorted(key for key, place in self._timings if place == part)

    def kernels(self) -> list[StoredKernel]:
        """Return every kernel of the arch, in the order of digests."""
        return list(self._kernels.values())

    def entries(self) -> list[Entry]:
        """Return every record that counts: one per Workload and part."""
        return [entry for key in sorted(self._entries) for entry in self._entries[key]]

    def _rows(self, store: Store, kind: type[RowType], **where: object) -> Iterator[RowType]:
        rows = store.rows(kind, **where)
        return rows if store.trusted else filter(self._well_formed, rows)

    def _load_kernels(self) -> dict[str, StoredKernel]:
        kernels: dict[str, Kernel] = {}
        holders: dict[str, list[Store]] = {}
        evidence: dict[str, list[Verification]] = {}
        for store in self.stores:
            for kernel in self._rows(store, Kernel, arch=self.arch, class_key=self._texts):
                if self.abis is None or self.abis.get(kernel.family) == kernel.abi:
                    kernels[kernel.digest] = kernel
                    holders.setdefault(kernel.digest, []).append(store)
        for where in self._batches(kernels):
            for store in self.stores:
                for row in self._rows(store, Verification, **where):
                    evidence.setdefault(row.kernel_digest, []).append(row)
        return {
            digest: StoredKernel(kernels[digest], verdict(evidence.get(digest, ())), tuple(holders[digest]))
            for digest in sorted(kernels)
        }

    def _batches(self, kernels: Iterable[str]) -> Iterator[dict[str, Among]]:
        """Yield conditions of verifications: none for those of all kernels, or these kernels, some at a time."""
        names = iter(kernels)
        while self._texts and (some := Among(islice(names, BATCH))):
            yield {"kernel_digest": some}
        if not self._texts:
            yield {}

    def _load_entries(self) -> dict[str, tuple[Entry, ...]]:
        counting: dict[str, dict[str, Entry]] = {}  # key -> part -> entry
        for store in self.stores:
            for record in newest_first(self._rows(store, Record, arch=self.arch, key=self._texts)):
                stored = self._kernels.get(record.kernel_digest or "")
                if stored is not None and serves(record, stored.kernel, self.arch, self.abis):
                    parts = counting.setdefault(record.key, {})
                    present = parts.get(record.part)
                    # An unverified or refuted kernel must not hide an older record that works.
                    if present is None or (stored.usable and not present.stored.usable):
                        parts[record.part] = Entry(record, stored)
        return {
            key: tuple(parts.values()) if len(parts) == 1 else tuple(parts[part] for part in sorted(parts))
            for key, parts in counting.items()
        }

    def _load_portfolios(self) -> dict[str, dict[str, tuple[StoredKernel, ...]]]:
        joined: dict[str, dict[str, dict[str, StoredKernel]]] = {}  # class -> part -> digest -> kernel
        for store in self.stores:
            rows = self._rows(store, Portfolio, arch=self.arch, class_key=self._texts)
            for row in sorted(rows, key=attrgetter("rank")):
                kernel = self._kernels.get(row.kernel_digest)
                if kernel is not None and kernel.usable:
                    cover = joined.setdefault(row.class_key, {}).setdefault(row.part, {})
                    cover.setdefault(row.kernel_digest, kernel)
        return {
            class_key: {part: tuple(cover.values()) for part, cover in parts.items()}
            for class_key, parts in joined.items()
        }

    def _load_timings(self) -> dict[tuple[str, str], tuple[Timing, ...]]:
        found: dict[tuple[str, str], dict[str, Timing]] = {}
        for store in self.stores:
            for row in self._rows(store, Timing, arch=self.arch, key=self._texts):
                found.setdefault((row.key, row.part), {})[row.digest] = row
        return {
            where: tuple(sorted(rows.values(), key=lambda row: (row.created, row.digest)))
            for where, rows in found.items()
        }
