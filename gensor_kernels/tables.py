"""Tables of text that fit a terminal, and the cells of times that every such table has.

Imports little.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gensor_database.text import duration, span

from .shown import printable

#: Before a predicted time.
MARK = "~"
#: The fewest characters of a column that shrinks.
NARROWEST = 8


@dataclass(frozen=True)
class Column:
    """A column of a table. `rank`: on a narrow terminal, columns of rank 1 are left out first, those of 0 never."""

    title: str
    width: int
    right: bool = False
    rank: int = 0
    shrinks: bool = False  # once no other column can be left out


#: The columns that `time_cells` fills.
TIMES = (
    Column("ours", 9, right=True),
    Column("expected", 17, right=True, rank=5),
    Column("bound", 9, right=True, rank=3),
    Column("CuPy", 9, right=True),
    Column("gain", 5, right=True),
)


def time_cells(
    ours_us: float | None,
    theirs_us: float | None,
    bound_us: float | None,
    expected_us: tuple[float, float] | None = None,
    marks: tuple[str, str] = (MARK, MARK),
) -> dict[str, str]:
    """Return the cells of our time, those between which it is expected, the bound, CuPy's time and its ratio to ours.

    `marks` stand before our time and before CuPy's: MARK where it is predicted.

    Examples
    --------
    >>> list(time_cells(43.0, 86.0, 40.0, (45.0, 80.0)).values())
    ['~43 µs', '45 to 80 µs', '40 µs', '~86 µs', '2']
    """
    ratio = theirs_us / ours_us if theirs_us and ours_us else None
    return {
        "ours": marks[0] * (ours_us is not None) + duration(ours_us),
        "expected": span(*expected_us) if expected_us else "",
        "bound": duration(bound_us),
        "CuPy": marks[1] * (theirs_us is not None) + duration(theirs_us),
        "gain": "" if ratio is None else f"{ratio:.3g}" if ratio < 999.5 else f"{ratio:.0f}",
    }


def shorten(text: str, width: int) -> str:
    """Return a text of at most this width: an ellipsis takes the middle of a longer one, whose ends differ most."""
    if len(text) <= width:
        return text
    kept = max(width - 1, 0)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


class Layout:
    """The columns of a table that fit a terminal; a table without a width has all of them, and no text is cut."""

    def __init__(self, columns: Sequence[Column], width: int | None):
        self.width = width
        self.columns = list(columns)
        for each in sorted((each for each in columns if each.rank), key=lambda each: each.rank):
            if self._over() > 0:
                self.columns.remove(each)
        while self._over() > 0:
            place = max(range(len(self.columns)), key=lambda place: (self._spare(place), -place))
            if self._spare(place) <= 0:
                break
            self.columns[place] = replace(self.columns[place], width=self.columns[place].width - 1)

    def _over(self) -> int:
        """Return how many characters are too many."""
        return 0 if self.width is None else sum(each.width + 1 for each in self.columns) - 1 - self.width

    def _spare(self, place: int) -> int:
        each = self.columns[place]
        return each.width - NARROWEST if each.shrinks else 0

    def line(self, cells: Mapping[str, str]) -> str:
        """Return a row of the table, from texts by title; a title without a text has an empty cell."""
        texts = []
        for each in self.columns:
            text = printable(cells.get(each.title, ""))
            text = text if self.width is None else shorten(text, each.width)
            texts.append(f"{text:>{each.width}}" if each.right else f"{text:<{each.width}}")
        return " ".join(texts).rstrip()

    def header(self) -> str:
        """Return the titles of the columns."""
        return self.line({each.title: each.title for each in self.columns})

    def reason(self, cells: Mapping[str, str], reason: str) -> str:
        """Return a row that ends with a sentence; on a terminal that stands on the lines after it."""
        text = printable(reason)
        if self.width is None:
            return f"{self.line(cells)} {text}".rstrip()
        return "\n".join([self.line(cells), *wrapped(text, self.width, "    ", "    ")])


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a head and rows of equal length as lines of columns, those of whole numbers to the right.

    Examples
    --------
    >>> aligned([("function", "calls"), ("matmul", 12)])
    ['function  calls', 'matmul       12']
    """
    widths = [max(len(str(each)) for each in column) for column in zip(*rows, strict=True)]
    signs = [">" if all(type(each) is int for each in column) else "<" for column in zip(*rows[1:], strict=True)]
    cells = ([f"{each!s:{sign}{width}}" for each, sign, width in zip(row, signs, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in cells]


def wrapped(text: str, width: int | None, first: str = "", rest: str = "") -> list[str]:
    """Return the lines of a text, none longer than a terminal's width; as they are without one.

    Each line of the text begins with `first`, and what continues it with `rest`.

    Examples
    --------
    >>> wrapped("as long as two lines of a terminal", 24)
    ['as long as two lines of', 'a terminal']
    """
    if width is None:
        return text.splitlines()
    wrapper = textwrap.TextWrapper(max(width, 20), initial_indent=first, subsequent_indent=rest)
    return [line for each in text.splitlines() for line in wrapper.wrap(each) or [""]]
