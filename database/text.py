"""Values as people read them: times in the unit that fits, and tables of HTML for notebooks.

HTML is escaped, self-contained, and in the colours of the page around it, light or dark.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from io import TextIOWrapper

DAY_US = 24 * 3600 * 1e6
#: Units of time in microseconds, and how many of each make the next one.
UNITS = (("µs", 1, 1000), ("ms", 1e3, 1000), ("s", 1e6, 60), ("min", 6e7, 60), ("h", 3.6e9, 24), ("days", DAY_US, 365))

#: Text and background inherit their colours: notebooks are light or dark.
CELL = "text-align:left;vertical-align:top;padding:0.1em 0.8em 0.1em 0;color:inherit;background:transparent;border:0"
WORDS = "white-space:normal;overflow-wrap:anywhere;max-width:60em"


def duration(us: float | None, digits: int = 3) -> str:
    """Return a time in microseconds as text with this number of digits, in the unit that a person would choose.

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


def span(low_us: float, high_us: float) -> str:
    """Return two times between which others are, as text: their unit once where it is the same.

    Examples
    --------
    >>> span(45, 80), span(640, 1280)
    ('45 to 80 µs', '640 µs to 1.28 ms')
    """
    low, high = duration(low_us), duration(high_us)
    number, _, unit = low.rpartition(" ")
    return f"{number if number and high.endswith(f' {unit}') else low} to {high}"


def escape_streams() -> None:
    """Let stdout and stderr escape the characters that their encoding lacks, such as µ under gbk, as Python does."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def escaped(text: object) -> str:
    """Return text as HTML shows it.

    Examples
    --------
    >>> escaped("<b>")
    '&lt;b&gt;'
    """
    import html  # a millisecond that only notebooks and reports need

    return html.escape(str(text))


def table(rows: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values.

    Examples
    --------
    >>> "<script>" in table([("error", "<script>")])
    False
    """
    lines = (
        f'<tr style="background:transparent"><th style="{CELL};font-weight:600">{escaped(name)}</th>'
        f'<td style="{CELL};{WORDS}">{escaped(value)}</td></tr>'
        for name, value in rows
    )
    return f'<table style="border-collapse:collapse;color:inherit;font-size:90%">{"".join(lines)}</table>'
