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
        #: by part: each output and its rows of the block
        self.outputs: list[list[tuple[Column, int | slice]]] = []
        self.blocks: list[np.ndarray] = []
        #: by part: (place of a coordinate, its stride in the table), slowest first
        self.strides: list[list[tuple[int, np.ndarray]]] = []
        for number, part in enumerate(parts):
            self._tabulate(number, part)

    def _tabulate(self, number: int, part: Part) -> None:
        axes = [self.values[self.place[name]].astype(np.int64) for name in part.names]
        step, strides = 1, []
        for name, axis in zip(reversed(part.names), reversed(axes), strict=True):
            # A 0-d array multiplies faster than a Python number.
            strides.append((self.place[name], np.array(step, dtype=np.intp)))
            step *= len(axis)
        self.strides.append(strides[::-1])
        indices = np.indices([len(axis) for axis in axes]).reshape(len(axes), step)
        combined = {name: axis.take(index) for name, axis, index in zip(part.names, axes, indices, strict=True)}
        outputs = [(column, np.asarray(output)) for column, output in part.function(combined).items()]
        block = np.empty((sum([len(each) if each.ndim == 2 else 1 for _, each in outputs]), step), np.float32)
        first, places = 0, []
        for column, output in outputs:
            rows = slice(first, first + len(output)) if output.ndim == 2 else first
            block[rows] = output
            self.part_of[column] = number
            places.append((column, rows))
            first += len(output) if output.ndim == 2 else 1
        self.outputs.append(places)
        self.blocks.append(block)


class Columns(dict[str | Column, np.ndarray]):
    """Many Programs at once: coordinate values (int32) and the outputs of parts (float32) by name.

    Each array has one element per point; an output of several rows has shape (rows, points).  Arrays are gathered when
    they are first read, all outputs of a part together; iteration is over the coordinates.
    """

    def __init__(self, tables: Tables, points: np.ndarray):
        super().__init__()
        self._tables = tables
        self._points = np.ascontiguousarray(points.T, dtype=np.intp)

    def __missing__(self, name: str | Column) -> np.ndarray:
        tables, points = self._tables, self._points
        number = tables.part_of.get(name)
        if number is None:
            place = tables.place[name]
            self[name] = tables.values[place].take(points[place])
        else:
            *others, (last, _) = tables.strides[number]
            code = points[last]
            for place, stride in others:
                code = code + points[place] * stride
            block = tables.blocks[number].take(code, axis=1, mode="clip")
            for column, rows in tables.outputs[number]:
                self[column] = block[rows]
        return self[name]

    # These columns also know what is not read yet.
    get, __contains__, items = Mapping.get, Mapping.__contains__, Mapping.items  # type: ignore[assignment]

    def where(self, chosen: np.ndarray) -> Columns:
        """Return the Programs a mask (n,) chooses."""
        return Columns(self._tables, self._points.take(chosen.nonzero()[0], axis=1).T)

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
        pairs = tuple([(c.name, c.values[i]) for c, i in zip(self.coordinates, whole.tolist(), strict=True)])
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
