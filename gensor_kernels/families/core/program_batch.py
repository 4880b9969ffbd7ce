"""A few Programs of one family, listed by their values: nothing is tabulated for them.

``Roster`` keeps Programs whose terms are needed again and again, for Workloads of many sizes; ``completed`` makes
starters, the default completions of a few chosen values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.workload import Workload

from .columns import Column
from .family import Columns, Coordinate, Family, Part
from .program import Program

Made = TypeVar("Made")

#: Classes of Workloads for which a Roster keeps facts: layouts, alignments and epilogues alternate within a model.
MOST_CLASSES = 16


class Listed(dict[str | Column, np.ndarray]):
    """Columns of a few Programs, given by their values (n, coordinates), and the outputs of parts."""

    def __init__(self, coordinates: Sequence[Coordinate], parts: Sequence[Part], values: np.ndarray):
        rows = np.ascontiguousarray(np.asarray(values).T, dtype=np.int32)
        names = [c.name for c in coordinates]
        super().__init__(zip(names, rows, strict=True))
        self._wide = dict(zip(names, rows.astype(np.int64), strict=True))
        self.count = rows.shape[1]
        #: results that `once` keeps
        self.kept: dict[str, Any] = {}
        self._add(parts)

    def _add(self, parts: Sequence[Part]) -> None:
        wide, count = self._wide, self.count
        for part in parts:
            for name, output in part.function({name: wide[name] for name in part.names}).items():
                column = np.asarray(output, dtype=np.float32)
                whole = column.ndim and column.shape[-1] == count
                self[name] = column if whole else np.broadcast_to(column, (*column.shape[:-1], count))

    def _like(self, columns: Mapping[str | Column, np.ndarray], wide: dict[str, np.ndarray], count: int) -> Listed:
        made = Listed.__new__(Listed)
        made.update(columns)
        made._wide, made.count, made.kept = wide, count, {}
        return made

    def plus(self, parts: Sequence[Part]) -> Listed:
        """Return the Programs with the outputs of more parts."""
        more = self._like(self, self._wide, self.count)
        more.kept = self.kept
        more._add(parts)
        return more

    def where(self, chosen: np.ndarray) -> Listed:
        """Return the Programs a mask (n,) chooses."""
        some = {name: column[..., chosen] for name, column in self.items()}
        return self._like(some, {name: column[chosen] for name, column in self._wide.items()}, int(chosen.sum()))


def once(columns: Mapping[str | Column, np.ndarray], name: str, fixed: bool, compute: Callable[[], Made]) -> Made:
    """``compute()``.  Where it is ``fixed``, made of nothing but coordinates and outputs of fixed parts, Listed columns
    keep it for every size of the Workload, under ``name``."""
    if not fixed or not isinstance(columns, Listed):
        return compute()
    if name not in columns.kept:
        columns.kept[name] = compute()
    made: Made = columns.kept[name]
    return made


@dataclass(frozen=True)
class _Known:
    """Programs on the lattice of a class with these coordinates, and their columns."""

    coordinates: tuple[Coordinate, ...]
    places: np.ndarray
    columns: Listed
    #: whether only sizes forbid any of them; see `Family.settled`
    settled: bool


class Roster:
    """Programs of a family, with facts kept for the classes of the last Workloads: sizes change from call to call.

    A Space tabulates its whole lattice, which pays from thousands of Programs on.
    """

    def __init__(self, family: Family, programs: Sequence[Program]):
        self.family = family
        self._programs = programs
        self._known: dict[tuple[object, ...], _Known] = {}

    def terms(self, workload: Workload, arch: Arch) -> tuple[np.ndarray, Terms | None]:
        """Return the places of the legal Programs of a Workload, and their terms, or None without legal Programs."""
        parts = self.family.parts(workload, arch)
        known = self._class(workload, arch, parts)
        if not len(known.places):
            return known.places, None
        columns = known.columns.plus([part for part in parts if not part.fixed])
        legal = self.family.legal(columns, workload, arch)
        if legal.all():
            return known.places, self.family.terms(columns, workload, arch)
        if not legal.any():
            return known.places[:0], None
        if known.settled:  # those that only sizes forbid have numbers, too
            return known.places[legal], self.family.terms(columns, workload, arch).where(legal)
        return known.places[legal], self.family.terms(columns.where(legal), workload, arch)

    def _class(self, workload: Workload, arch: Arch, parts: Sequence[Part]) -> _Known:
        """Return the facts for the Workload's class, kept from the last Workload of this class."""
        of = arch, _sizeless(workload)
        known = self._known.get(of)
        if known is not None and self.family.sizeless(workload):
            return known
        coordinates = self.family.coordinates(workload, arch)
        if known is None or known.coordinates != coordinates:
            names = [coordinate.name for coordinate in coordinates]
            rows = [program.along(names) for program in self._programs]
            values = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))  # of no Programs, too few axes
            places = on_lattice(values, coordinates)
            columns = Listed(coordinates, [part for part in parts if part.fixed], values[places])
            settled = self.family.settled(columns, workload, arch)
            if settled is not None and not settled.all():
                places, columns = places[settled], columns.where(settled)
            if len(self._known) >= MOST_CLASSES:
                self._known.clear()
            known = self._known[of] = _Known(coordinates, places, columns, settled is not None)
        return known


def _sizeless(workload: Workload) -> tuple[object, ...]:
    """Everything of a Workload but its sizes."""
    w = workload
    return w.operator, w.dtypes, w.accumulator, w.math, w.layout, w.alignment, w.epilogue, w.prologue, w.program


def on_lattice(values: np.ndarray, coordinates: Sequence[Coordinate]) -> np.ndarray:
    """Return the places of the rows (n, coordinates) whose values the coordinates have."""
    on = np.ones(len(values), dtype=bool)
    for column, coordinate in zip(values.T, coordinates, strict=True):
        for strange in set(column.tolist()).difference(coordinate.values):
            on &= column != strange
    return np.flatnonzero(on)


# ---- starters


def completions(
    family: Family, wanted: Sequence[Mapping[str, int]], workload: Workload, arch: Arch
) -> tuple[list[Program], Columns]:
    """Return the Programs of the ``wanted`` values with the family's defaults for the rest, and their columns, in
    order; Programs that are not on the lattice are left out."""
    coordinates = family.coordinates(workload, arch)
    values: dict[str | Column, np.ndarray] = {
        c.name: np.array([each.get(c.name, c.values[0]) for each in wanted], np.int32) for c in coordinates
    }
    values["level"][:] = 2
    for level in (1, 2):
        defaults = family.defaults(values, workload, arch)
        values.update({c.name: _complete_values(c, wanted, defaults) for c in coordinates if c.level == level})
    numbers = np.stack([values[c.name] for c in coordinates], axis=1).astype(np.int64)
    numbers = numbers[on_lattice(numbers, coordinates)]
    names = [c.name for c in coordinates]
    programs = [Program(family.name, tuple(zip(names, row, strict=True))) for row in numbers.tolist()]
    return programs, Listed(coordinates, family.parts(workload, arch), numbers)


def _complete_values(
    coordinate: Coordinate, wanted: Sequence[Mapping[str, int]], defaults: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the values of one coordinate: the largest of its lattice that are at most the wanted ones, or else the
    defaults."""
    name, values = coordinate.name, np.array(coordinate.values, np.int32)
    usual = np.broadcast_to(defaults.get(name, values[0]), len(wanted))
    best = [each.get(name, value) for each, value in zip(wanted, usual.tolist(), strict=True)]
    return values[np.maximum(np.searchsorted(values, best, side="right") - 1, 0)]


def complete(
    family: Family, wanted: Sequence[Mapping[str, int]], workload: Workload, arch: Arch, registers: float
) -> list[Program]:
    """Return the legal `completions` that are estimated to need at most ``registers`` per thread, in order."""
    programs, columns = completions(family, wanted, workload, arch)
    good = family.legal(columns, workload, arch) & (family.registers(columns, workload, arch) <= registers)
    return list(dict.fromkeys(program for program, fine in zip(programs, good, strict=True) if fine))
