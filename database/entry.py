"""Answers of a look-up: a record, its kernel, the kernel's verification, and the stores of its binary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .record import Binary, Kernel, Record, Source, Verification

if TYPE_CHECKING:
    from .store import Store

#: Outcomes after which a kernel is never used again, even with other right results.
REJECTING = ("wrong", "failed", "not_compiled")


@dataclass(frozen=True)
class StoredKernel:
    """A kernel and its verdict: "device", "emulator", "none", or "rejected" after any wrong or failed execution."""

    kernel: Kernel
    verified: str
    stores: tuple[Store, ...] = field(repr=False, compare=False, default=())

    @property
    def usable(self) -> bool:
        """Whether executions gave right results, and never wrong ones."""
        return self.verified in ("device", "emulator")

    def binary(self, trusted: bool = True) -> Binary | None:
        """Return the binary, verified against the kernel, from the first store that has it.

        With `trusted` only from stores whose cubins may be loaded; without it the cubin is data and must not be loaded.
        """
        found = (store.get(Binary, self.kernel.binary_digest) for store in self.stores if store.trusted or not trusted)
        return next((binary for binary in found if binary is not None), None)

    def source(self) -> Source | None:
        """Return the flattened source text, from the first store that has it."""
        binary = self.binary(trusted=False)
        if binary is None:
            return None
        found = (store.get(Source, binary.source_digest) for store in self.stores)
        return next((source for source in found if source is not None), None)


@dataclass(frozen=True)
class Entry:
    """A record and the kernel it names."""

    record: Record
    stored: StoredKernel

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.stored.kernel

    @property
    def verified(self) -> str:
        """The kernel's verdict; see StoredKernel."""
        return self.stored.verified

    @property
    def usable(self) -> bool:
        """Whether the kernel's executions gave right results, and never wrong ones."""
        return self.stored.usable

    def binary(self, trusted: bool = True) -> Binary | None:
        """Return the kernel's binary; see StoredKernel."""
        return self.stored.binary(trusted)


def verdict(verifications: Iterable[Verification]) -> str:
    """Return one word for all verifications of a kernel. A timeout does not count: the machine may have been busy."""
    found = {(row.method, row.outcome) for row in verifications}
    if any(outcome in REJECTING for _, outcome in found):
        return "rejected"
    return next((method for method in ("device", "emulator") if (method, "ok") in found), "none")


def newest_first(records: Iterable[Record]) -> list[Record]:
    """Return records from the newest to the oldest; of one second, settled records first, then by digest."""
    return sorted(records, key=lambda record: (-record.created, not is_settled(record), record.digest))


def is_settled(record: Record) -> bool:
    """Return whether tuning came to its end: a budget, or a call that waited, may have stored an earlier kernel."""
    return '"settled":false' not in record.provenance


def serves(record: Record, kernel: Kernel, arch: str, abis: Mapping[str, int] | None) -> bool:
    """Return whether a record may be answered with this kernel: right arch, and the current ABI of its family.

    `abis` maps family names to ABI versions; with None, any version serves.
    """
    current = abis is None or abis.get(kernel.family) == kernel.abi
    return record.outcome == "ok" and kernel.arch == arch == record.arch and record.abi == kernel.abi and current
