"""Rules of an answer: which outcome of a kernel counts, which record of a Workload comes first, and which call won."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from .record import METHODS, Kernel, Record, Timing, Verification

#: Outcomes after which a kernel is never used again, even with other right results.
REJECTING = ("wrong", "failed", "not_compiled")


def verdict(verifications: Iterable[Verification]) -> str:
    """Return one word for all verifications of a kernel. A timeout does not count: the machine may have been busy."""
    best = "none"
    for row in verifications:
        if row.outcome in REJECTING:
            return "rejected"
        if row.outcome == "ok" and row.method in METHODS and best != "device":
            best = row.method
    return best


def newest_first(records: Iterable[Record]) -> list[Record]:
    """Return records from the newest to the oldest; of one second, settled records first, then by digest."""
    settled_first = sorted(sorted(records, key=attrgetter("digest")), key=is_settled, reverse=True)
    return sorted(settled_first, key=attrgetter("created"), reverse=True)


def is_settled(record: Record) -> bool:
    """Return whether tuning came to its end: a budget, or a call that waited, may have stored an earlier kernel."""
    return '"settled":false' not in record.provenance


def serves(record: Record, kernel: Kernel, arch: str, abis: Mapping[str, int] | None) -> bool:
    """Return whether a record may be answered with this kernel: right arch, and the current ABI of its family.

    `abis` maps family names to ABI versions; with None, any version serves.
    """
    current = abis is None or abis.get(kernel.family) == kernel.abi
    return record.outcome == "ok" and kernel.arch == arch == record.arch and record.abi == kernel.abi and current


#: Two medians this close are a tie: repeated measurements of one kernel differ by as much.
TIE_BAND = 0.02


@dataclass(frozen=True)
class Winner:
    """`kernel_digest` is None where the vendor's call won; times are medians over all timings, in microseconds."""

    kernel_digest: str | None
    median_us: float
    vendor_us: float | None

    @property
    def speedup(self) -> float | None:
        """Vendor time over winner time, None where the vendor's call was never timed."""
        return self.vendor_us / self.median_us if self.vendor_us else None


def quiet(timings: Iterable[Timing]) -> list[Timing]:
    """Return the timings without those taken while a program used the same GPU.

    Background tuning marks its rows (`samples`).  They are kept, but no kernel is chosen by them.
    """
    return [timing for timing in timings if not _note(timing, "background")]


#: Conditions that times of the array library's call depend on, and times of kernels do not.
OF_LIBRARY = frozenset({"accelerators", "cublas", "cupy", "cutensor"})


def is_under(timing: Timing, conditions: str) -> bool:
    """Return whether a timing was taken under these conditions; of a kernel's, those of the array library may
    differ."""
    return timing.device == conditions or (timing.kernel_digest is not None and _is_near(timing, conditions))


def counting(timings: Iterable[Timing], conditions: str) -> list[Timing]:
    """Return the timings that count under these conditions.

    Timings taken under them count (`is_under`); where the array library's call has none, those of its other versions
    count, but with other accelerators it is another call. Where nothing is left, all other timings count.
    """
    wanted = _conditions(conditions).get("accelerators")
    comparable = [
        each for each in timings if each.kernel_digest or _conditions(each.device).get("accelerators") == wanted
    ]
    near = [each for each in comparable if _is_near(each, conditions)]
    strict = any(each.kernel_digest is None and each.device == conditions for each in near)
    return [each for each in near if is_under(each, conditions) or not strict] or comparable


def _is_near(timing: Timing, conditions: str) -> bool:
    """Return whether these are the conditions of a timing but for those of the array library."""
    found, wanted = _conditions(timing.device), _conditions(conditions)
    return all(found.get(name) == wanted.get(name) for name in (found.keys() | wanted.keys()) - OF_LIBRARY)


@lru_cache(64)
def _conditions(text: str) -> dict[str, object]:
    """Return conditions as a dictionary; an empty one where they are not ours."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def launched(timing: Timing) -> tuple[str | None, str | None]:
    """Return the digest of the stored kernel that was timed; and its Program, where its launch had other arguments than
    it is stored with, else None."""
    found = _note(timing, "launched")
    if isinstance(found, dict) and isinstance(found.get("kernel"), str) and isinstance(found.get("program"), str):
        return found["kernel"], found["program"]
    return timing.kernel_digest, None


def _note(timing: Timing, name: str) -> object:
    """Return what the samples of a timing hold under a name, or None where they hold nothing, or are not ours."""
    if f'"{name}"' not in timing.samples:
        return None
    try:
        found = json.loads(timing.samples)
    except (ValueError, RecursionError):
        return None
    return found.get(name) if isinstance(found, dict) else None


def winner(timings: Iterable[Timing], band: float = TIE_BAND) -> Winner | None:
    """Return the fastest kernel or vendor call for one Workload on one part, or None without `quiet` timings.

    Times are the device's, or the host's where enqueueing the call takes longer: a caller of many calls waits for the
    slower of the two. Races note the host's among the samples (`host_us`); it counts where it is known of both sides,
    and a kernel without one has that of the others.

    Times within `band` of the fastest are a tie.  A tie goes to the vendor's call, which needs no kernel, then to the
    smaller digest, so that noise changes neither results nor files.
    """
    by_subject: dict[tuple[bool, str], list[float]] = {}
    hosts: dict[tuple[bool, str], list[float]] = {}
    for timing in quiet(timings):
        subject = (timing.vendor is None, timing.kernel_digest or "")
        by_subject.setdefault(subject, []).append(timing.median_us)
        host = _note(timing, "host_us")
        if isinstance(host, (int, float)) and 0 < host < math.inf:
            hosts.setdefault(subject, []).append(host)
    if not by_subject:
        return None
    medians = {subject: _median(times) for subject, times in by_subject.items()}
    ours, digest = fastest(_felt(medians, hosts), band)
    return Winner(digest if ours else None, medians[ours, digest], medians.get((False, "")))


def _felt(
    medians: Mapping[tuple[bool, str], float], hosts: Mapping[tuple[bool, str], list[float]]
) -> Mapping[tuple[bool, str], float]:
    """Return the times that callers feel; those of the device where the host's are not known of both sides."""
    sides = {
        side: [us for subject, times in hosts.items() if subject[0] == side for us in times] for side in (False, True)
    }
    if not all(sides.values()):
        return medians
    return {subject: max(us, _median(hosts.get(subject) or sides[subject[0]])) for subject, us in medians.items()}


def fastest(medians: Mapping[tuple[bool, str], float], band: float = TIE_BAND) -> tuple[bool, str]:
    """Return the subject with the least median, of a tie the first: the vendor's call (False, ""), or (True, a kernel's
    digest)."""
    least = min(medians.values())
    return min(subject for subject, time in medians.items() if time <= least * (1 + band))


def _median(times: list[float]) -> float:
    ordered, half = sorted(times), len(times) // 2  # importing statistics takes longer than opening a database
    return ordered[half] if len(times) % 2 else (ordered[half - 1] + ordered[half]) / 2
