"""Numbers as a person reads them, and the logarithmic scales they are drawn on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

PREFIXES = {-2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """1.84e12, "FLOP/s" -> "1.84 TFLOP/s"."""
    if not math.isfinite(value) or value <= 0:
        return f"{value:g} {unit}".strip()
    group = max(min(math.floor(math.log10(value) / 3 + 1e-9), max(PREFIXES)), min(PREFIXES))
    number = f"{value / 1000.0**group:.{digits}g}"
    return f"{number if 'e' not in number else f'{float(number):.0f}'} {PREFIXES[group]}{unit}".strip()


def duration(us: float | None) -> str:
    """Microseconds in the unit that suits them: 1840.2 -> "1.84 ms"; nothing for None."""
    return "" if us is None else si(us * 1e-6, "s")


@dataclass(frozen=True)
class LogScale:
    """From positive numbers in [low, high] to pixels in [start, end]."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, room: float = 1.25) -> LogScale:
        """The scale that shows these values, with a factor of `room` beyond each end; at least a decade."""
        found = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
        low, high = min(found) / room, max(found) * room
        if high / low < 10:
            middle = math.sqrt(low * high)
            low, high = middle / math.sqrt(10), middle * math.sqrt(10)
        return cls(low, high, start, end)

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten within; of a narrow scale 2 and 5 times these, too."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        wide = math.log10(self.high / self.low) >= 2.5
        marks = [m * 10.0**d for d in decades for m in ((1,) if wide else (1, 2, 5))]
        return [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]
