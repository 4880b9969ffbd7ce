"""One line of a shapes file, cell by cell: strict accessors that know file, line and column.

Values are ASCII digits only, no underscores, no signs, because int() would take full-width digits and "1_000".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from gensor_kernels.errors import GensorError
from gensor_tuner.output import printable

LARGEST = 2**31 - 1  # extents are 32-bit in the kernels' Params


class RowError(GensorError):
    """A row of a shapes file that cannot be read; the message names file, line, column and reason."""


class Line:
    """One CSV line with strict accessors that know where they are."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]):
        self.path, self.line, self.cells = path, line, cells

    def fail(self, column: str, reason: str) -> RowError:
        """The error that says where."""
        return RowError(f"{self.path}:{self.line}: column '{printable(column)}': {printable(reason)}")

    def text(self, column: str, default: str | None = None) -> str:
        """A cell; without a default it must not be empty."""
        value = self.cells.get(column, "").strip()
        if value:
            return value
        if default is None:
            raise self.fail(column, "is required here and is missing or empty")
        return default

    def integer(self, column: str, default: int | None = None, largest: int = LARGEST) -> int:
        """A whole number of 0 to `largest`."""
        value = self.text(column, None if default is None else str(default))
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise self.fail(column, f"'{value[:40]}' is not a whole number written in digits")
        number = int(value)
        if number > largest:
            raise self.fail(column, f"{number} is larger than {largest}, the largest extent a kernel takes")
        return number

    def choice(
        self, column: str, choices: Iterable[str], default: str | None, known: Collection[str] = frozenset()
    ) -> str:
        """One of `choices`, or of those that are `known` beside them, which an error need not list."""
        value, wanted = self.text(column, default).lower(), list(choices)
        if value not in wanted and value not in known:
            raise self.fail(column, f"'{value[:40]}' is not one of {', '.join(wanted)}")
        return value
