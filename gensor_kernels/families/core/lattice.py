"""Lattice: points, codes and Programs of one family, the levels of their construction, and tabulated outputs of parts.

Most numbers that a family knows about a Program depend on two to five of its coordinates.  A ``Part`` names them and
computes its outputs over every combination of their values, once per lattice; ``Columns`` gathers the outputs for many
points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from .columns import Column
from .family import Coordinate, Family, Part
from .program import Program

COMPLETE = 2


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

    def where(self, chosen: np.ndarray) -> Columns:
        """Return the Programs a mask (n,) chooses."""
        return Columns(self._tables, self._points.take(np.flatnonzero(chosen), axis=1).T)

    def __iter__(self) -> Iterator[str | Column]:
        yield from self._tables.place

    def __len__(self) -> int:
        return len(self._tables.place)

    @property
    def count(self) -> int:
        """Points in every column."""
        return self._points.shape[1]


def _restrict(coordinate: Coordinate, restrict: Mapping[str, Collection[int]]) -> Coordinate:
    if coordinate.name not in restrict:
        return coordinate
    kept = tuple(value for value in coordinate.values if value in restrict[coordinate.name])
    if not kept:
        raise ValueError(f"{coordinate.name} has the values {coordinate.values}: none is left")
    return coordinate._replace(values=kept)


class Lattice:
    """One family's coordinates for a Workload on an Arch; points are (n, d) arrays of value indices.

    Coordinates of a level that the construction has not reached hold index 0, and stand for their default
    completion.  ``restrict`` keeps only some values of some coordinates: lattices small enough to enumerate.
    """

    def __init__(
        self, family: Family, workload: Workload, arch: Arch, restrict: Mapping[str, Collection[int]] | None = None
    ):
        self.family, self.workload, self.arch = family, workload, arch
        self.coordinates = family.coordinates(workload, arch)
        if restrict:
            self.coordinates = tuple(_restrict(c, restrict) for c in self.coordinates)
        self.names = tuple([coordinate.name for coordinate in self.coordinates])
        self.extents = np.array([len(c.values) for c in self.coordinates], dtype=np.int64)
        #: place value of each coordinate in a code
        self.radix = np.append(np.cumprod(self.extents[:0:-1])[::-1], 1).astype(np.int64)
        self.levels = np.array([c.level for c in self.coordinates], dtype=np.int64)
        #: points of the lattice, legal or not
        self.size = int(np.prod(self.extents))

    @cached_property
    def _places(self) -> dict[str, dict[int, int]]:
        return {c.name: {value: i for i, value in enumerate(c.values)} for c in self.coordinates}

    @cached_property
    def _tables(self) -> Tables:
        of = self.workload, self.arch
        return Tables(self.coordinates, (*self.family.parts(*of), *self.family.rule_parts(*of)))

    # ---- points, codes, programs

    def encode(self, points: np.ndarray) -> np.ndarray:
        """int64 codes of points (n, d); equal codes mean equal points."""
        return points @ self.radix

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the points (n, d), int64, of codes (n,)."""
        return np.asarray(codes, dtype=np.int64)[:, None] // self.radix % self.extents

    def program(self, point: Sequence[int] | np.ndarray) -> Program:
        """Return the Program of one point; of its default completion when the point is partial."""
        whole = self.complete(np.asarray(point, dtype=np.int64)[None])[0]
        pairs = tuple((c.name, c.values[int(i)]) for c, i in zip(self.coordinates, whole, strict=True))
        return Program(self.family.name, pairs)

    def point(self, program: Program) -> np.ndarray:
        """Return the complete point (d,) of a Program; ValueError where it is not on this lattice."""
        if program.family != self.family.name:
            raise ValueError(f"not a {self.family.name} program: {program}")
        wanted = dict(zip(self.names, program.along(self.names), strict=True))
        try:
            return np.array([self._places[name][wanted[name]] for name in self.names], dtype=np.int64)
        except KeyError:
            strange = next(c for c in self.coordinates if wanted[c.name] not in c.values)
            raise ValueError(f"{strange.name}={wanted[strange.name]} is not in {strange.values}") from None

    def columns(self, points: np.ndarray) -> Columns:
        """Values by coordinate name, int32 (n,), and the family's tabulated outputs, of complete points (n, d)."""
        return Columns(self._tables, points)

    # ---- construction levels

    def complete(self, points: np.ndarray) -> np.ndarray:
        """Points with every unreached coordinate at its default, at the last level; complete ones unchanged."""
        points = np.asarray(points)
        partial = points[:, 0] < COMPLETE
        if not partial.any():
            return points
        whole = points.copy()
        rows = points[partial]
        filled = self._fill(rows, rows[:, 0])
        filled[:, 0] = COMPLETE
        whole[partial] = filled
        return whole

    def _fill(self, rows: np.ndarray, reached: np.ndarray) -> np.ndarray:
        """Return the rows with the defaults of every coordinate above ``reached`` (n,) written in."""
        filled = rows.copy()
        for level in (1, COMPLETE):
            columns = self.columns(filled)
            values = self.family.defaults(columns, self.workload, self.arch)
            for i in np.nonzero(self.levels == level)[0]:
                lattice = np.array(self.coordinates[i].values)
                wanted = values[self.names[i]]
                index = np.clip(np.searchsorted(lattice, wanted, side="right") - 1, 0, len(lattice) - 1)
                filled[:, i] = np.where(reached < level, index, filled[:, i])
        return filled

    def descend(self, points: np.ndarray) -> np.ndarray:
        """Cache: one level further, the coordinates it reaches at their defaults (complete points unchanged)."""
        points = np.asarray(points)
        level = np.minimum(points[:, 0] + 1, COMPLETE)
        filled = self._fill(points, points[:, 0])
        filled[:, 0] = level
        return np.where(self.levels[None] <= level[:, None], filled, 0)

    def ascend(self, points: np.ndarray) -> np.ndarray:
        """Return the inverse of Cache: one level back, coordinates that are no longer reached at index 0.

        It is the exact inverse only where ``descend(ascend(p)) == p``; elsewhere the action is absent.
        """
        points = np.asarray(points)
        level = np.maximum(points[:, 0] - 1, 0)
        back = np.where(self.levels[None] <= level[:, None], points, 0)
        back[:, 0] = level
        return back
