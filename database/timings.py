"""Choice of the winner: all timings are kept, and the winner follows from them in a stable way. Times as text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from .record import Timing

#: Two medians this close are a tie: repeated measurements of one kernel differ by as much.
TIE_BAND = 0.02
DAY_US = 24 * 3600 * 1e6
#: Units of time in microseconds, and how many of each make the next one.
UNITS = (("µs", 1, 1000), ("ms", 1e3, 1000), ("s", 1e6, 60), ("min", 6e7, 60), ("h", 3.6e9, 24), ("days", DAY_US, 365))


def duration(us: float | None, digits: int = 3) -> str:
    """Return a time in microseconds as text with so many digits, in the unit that a person would choose.

    Examples
    --------
    >>> [duration(us) for us in (4.5, 1840.2, 2.5e6, 1.5e8, 9e9, None)]
    ['4.5 µs', '1.84 ms', '2.5 s', '2.5 min', '2.5 h', '']
    """
    if us is None:
        return ""
    if not math.isfinite(us):
        return "unknown"
    for name, size, most in UNITS:
        count = us / size if size == 1 else max(us / size, 1.0)  # 59.96 s were rounded up to a minute
        rounded = float(f"{count:.{digits}g}")
        if abs(rounded) < most:
            return f"{rounded:.{digits}g} {name}"
    return f"{us / (365 * DAY_US):.{digits}g} years"


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
    return [timing for timing in timings if not _in_background(timing.samples)]


def _in_background(samples: str) -> bool:
    if '"background"' not in samples:
        return False
    try:
        found = json.loads(samples)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool(found.get("background"))


def winner(timings: Iterable[Timing], band: float = TIE_BAND) -> Winner | None:
    """Return the fastest kernel or vendor call for one Workload on one part; None without `quiet` timings.

    Times within `band` of the fastest are a tie.  A tie goes to the vendor's call, which needs no kernel, then to the
    smaller digest, so that noise changes neither results nor files.
    """
    by_subject: dict[tuple[bool, str], list[float]] = {}
    for timing in quiet(timings):
        subject = (timing.vendor is None, timing.kernel_digest or "")
        by_subject.setdefault(subject, []).append(timing.median_us)
    if not by_subject:
        return None
    medians = {subject: _median(times) for subject, times in by_subject.items()}
    fastest = min(medians.values())
    ours, digest = min(subject for subject, time in medians.items() if time <= fastest * (1 + band))
    return Winner(digest if ours else None, medians[ours, digest], medians.get((False, "")))


def _median(times: list[float]) -> float:
    ordered, half = sorted(times), len(times) // 2  # importing statistics takes longer than opening a database
    return ordered[half] if len(times) % 2 else (ordered[half - 1] + ordered[half]) / 2
