"""A few Programs of one family whose terms are needed again and again, for Workloads of many sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms

from .family import Coordinate, Family, Part
from .program import Program
from .tables import Listed

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


@dataclass(frozen=True)
class _Known:
    """Programs on the lattice of a class (``of``) with these coordinates, and their columns."""

    of: tuple[object, ...]
    coordinates: tuple[Coordinate, ...]
    places: np.ndarray
    columns: Listed


class Roster:
    """Programs of a family, with facts kept for the class of the last Workload: sizes change from call to call.

    A Space tabulates its whole lattice, which pays from thousands of Programs on.
    """

    def __init__(self, family: Family, programs: Sequence[Program]):
        self.family = family
        self._programs = programs
        self._known: _Known | None = None

    def terms(self, workload: Workload, arch: Arch) -> tuple[np.ndarray, Terms | None]:
        """Return the places of the legal Programs of a Workload, and their terms; None where no Program is legal."""
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
        return known.places[legal], self.family.terms(columns.where(legal), workload, arch)

    def _class(self, workload: Workload, arch: Arch, parts: Sequence[Part]) -> _Known:
        """Return the facts for the Workload's class, kept from the last Workload where the class is the same."""
        of, known = (arch, _sizeless(workload)), self._known
        same = known is not None and known.of == of
        if known is not None and same and self.family.sizeless(workload):
            return known
        coordinates = self.family.coordinates(workload, arch)
        if known is None or not same or known.coordinates != coordinates:
            names = [coordinate.name for coordinate in coordinates]
            values = np.array([program.along(names) for program in self._programs], dtype=np.int64)
            places = on_lattice(values, coordinates)
            columns = Listed(coordinates, [part for part in parts if part.fixed], values[places])
            known = self._known = _Known(of, coordinates, places, columns)
        return known


def _sizeless(workload: Workload) -> tuple[object, ...]:
    """Everything of a Workload but its sizes."""
    w = workload
    return w.operator, w.dtypes, w.accumulator, w.math, w.layout, w.alignment, w.epilogue, w.prologue


def on_lattice(values: np.ndarray, coordinates: Sequence[Coordinate]) -> np.ndarray:
    """The places of the rows (n, coordinates) whose values the coordinates have."""
    on = np.ones(len(values), dtype=bool)
    for column, coordinate in zip(values.T, coordinates, strict=True):
        for strange in set(column.tolist()).difference(coordinate.values):
            on &= column != strange
    return np.flatnonzero(on)
