"""Functions of a few coordinates, tabulated once per space: the vectorised code then only looks them up.

Most numbers that a family knows about a Program depend on two to five of its coordinates.  A ``Part`` names them and
computes its outputs over every combination of their values; ``Columns`` gathers the outputs for many points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .columns import Column
from .family import Coordinate, Part

Made = TypeVar("Made")


class Tables:
    """The parts of one lattice, tabulated."""

    def __init__(self, coordinates: Sequence[Coordinate], parts: Sequence[Part]):
        self.coordinates = tuple(coordinates)
        self.place: dict[str | Column, int] = {c.name: i for i, c in enumerate(self.coordinates)}
        self.values = [np.array(c.values, dtype=np.int32) for c in self.coordinates]
        self.part_of: dict[str | Column, int] = {}
        self.rows_of: dict[str | Column, int | slice] = {}
        self.blocks: list[np.ndarray] = []
        #: by part: (place of a coordinate, its stride in the table), slowest first
        self.strides: list[list[tuple[int, np.ndarray]]] = []
        for number, part in enumerate(parts):
            self._tabulate(number, part)

    def _tabulate(self, number: int, part: Part) -> None:
        axes = [self.values[self.place[name]].astype(np.int64) for name in part.names]
        grids = np.meshgrid(*axes, indexing="ij")
        step, strides = 1, []
        for name, axis in zip(reversed(part.names), reversed(axes), strict=True):
            # A 0-d array multiplies faster than a Python number.
            strides.append((self.place[name], np.array(step, dtype=np.intp)))
            step *= len(axis)
        self.strides.append(strides[::-1])
        outputs = part.function({name: grid.ravel() for name, grid in zip(part.names, grids, strict=True)})
        rows: list[np.ndarray] = []
        for column, output in outputs.items():
            first = len(rows)
            array = np.asarray(output)
            rows.extend(np.broadcast_to(row, (step,)) for row in (array if array.ndim == 2 else [array]))
            self.part_of[column] = number
            self.rows_of[column] = slice(first, len(rows)) if array.ndim == 2 else first
        self.blocks.append(np.array(rows, dtype=np.float32))


class Columns(Mapping[str | Column, np.ndarray]):
    """Many Programs at once: coordinate values (int32) and the outputs of parts (float32) by name.

    Each array has one element per point; an output of several rows has shape (rows, points).
    """

    def __init__(self, tables: Tables, points: np.ndarray):
        self._tables = tables
        self._points = np.ascontiguousarray(points.T, dtype=np.intp)
        self._gathered: dict[int, np.ndarray] = {}

    def __getitem__(self, name: str | Column) -> np.ndarray:
        tables = self._tables
        number = tables.part_of.get(name)
        if number is None:
            place = tables.place[name]
            return tables.values[place].take(self._points[place])
        block = self._gathered.get(number)
        if block is None:
            block = self._gathered[number] = self._gather(number)
        return block[tables.rows_of[name]]

    def _gather(self, number: int) -> np.ndarray:
        *others, (last, _) = self._tables.strides[number]
        code = self._points[last]
        for place, stride in others:
            code = code + self._points[place] * stride
        return self._tables.blocks[number].take(code, axis=1, mode="clip")

    def __iter__(self) -> Iterator[str | Column]:
        yield from self._tables.place

    def __len__(self) -> int:
        return len(self._tables.place)

    @property
    def count(self) -> int:
        """Points in every column."""
        return self._points.shape[1]


class Listed(Columns):
    """Columns of a few Programs given by their values (n, coordinates): nothing is tabulated for them."""

    def __init__(self, coordinates: Sequence[Coordinate], parts: Sequence[Part], values: np.ndarray):
        rows = np.ascontiguousarray(np.asarray(values).T, dtype=np.int32)
        self._coordinates = tuple(c.name for c in coordinates)
        self._columns: dict[str | Column, np.ndarray] = dict(zip(self._coordinates, rows, strict=True))
        self._wide = dict(zip(self._coordinates, rows.astype(np.int64), strict=True))
        self._count = rows.shape[1]
        #: results that `once` keeps
        self.kept: dict[str, Any] = {}
        self._add(parts)

    def _add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            for name, output in part.function({name: self._wide[name] for name in part.names}).items():
                self._columns[name] = self._column(output)

    def plus(self, parts: Sequence[Part]) -> Listed:
        """Return the Programs with the outputs of more parts."""
        more = object.__new__(Listed)
        more._coordinates, more._wide, more._count = self._coordinates, self._wide, self._count
        more._columns, more.kept = self._columns.copy(), self.kept
        more._add(parts)
        return more

    def _column(self, output: np.ndarray) -> np.ndarray:
        column = np.asarray(output, dtype=np.float32)
        if column.ndim and column.shape[-1] == self._count:
            return column
        return np.broadcast_to(column, (*column.shape[:-1], self._count))

    def __getitem__(self, name: str | Column) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str | Column]:
        yield from self._coordinates

    def __len__(self) -> int:
        return len(self._coordinates)

    @property
    def count(self) -> int:
        """Points in every column."""
        return self._count

    def where(self, chosen: np.ndarray) -> Listed:
        """The Programs a mask (n,) chooses."""
        some = object.__new__(Listed)
        some._coordinates, some._count, some.kept = self._coordinates, int(chosen.sum()), {}
        some._columns = {name: column[..., chosen] for name, column in self._columns.items()}
        some._wide = {name: column[chosen] for name, column in self._wide.items()}
        return some


def once(columns: Mapping[str | Column, np.ndarray], name: str, fixed: bool, compute: Callable[[], Made]) -> Made:
    """``compute()``.  Where it is ``fixed``, made of nothing but coordinates and outputs of fixed parts, Listed columns
    keep it for every size of the Workload, under ``name``."""
    if not fixed or not isinstance(columns, Listed):
        return compute()
    if name not in columns.kept:
        columns.kept[name] = compute()
    made: Made = columns.kept[name]
    return made
