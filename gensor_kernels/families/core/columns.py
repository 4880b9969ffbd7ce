"""Columns: named arrays of one number per Program, outputs of the parts of a family.

A family declares its columns as constants.  Its parts compute them and its cost model reads them, both under the
constant, so that a misspelt name does not pass the type checker, and every number leads to its description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: A number of one Program, or an array with one number per Program: formulas take both.
Numbers = Any


@dataclass(frozen=True, eq=False)
class Column:
    """An output of a part: its name and its meaning.  Every declaration is a separate column, whatever its name."""

    name: str
    doc: str

    def __repr__(self) -> str:
        return f"Column({self.name!r})"


def terms(names: str) -> list[Column]:
    """Return columns that are terms of the roofline, where they are described."""
    return [Column(name, "see roofline.Terms") for name in names.split()]


def each(name: str, of: str, doc: str) -> Mapping[str, Column]:
    """Return a column for each operand or axis ``of`` which the name has one letter."""
    return {letter: Column(f"{name}_{letter}", doc) for letter in of}
