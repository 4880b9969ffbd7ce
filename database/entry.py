"""Rules of an answer: which outcome of a kernel counts, and which record of a Workload comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .record import Kernel, Record, Verification

#: Outcomes after which a kernel is never used again, even with other right results.
REJECTING = ("wrong", "failed", "not_compiled")


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
