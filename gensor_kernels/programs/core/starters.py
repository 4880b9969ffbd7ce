"""Starters: default completions of a few chosen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import Arch

from .columns import Column
from .family import Columns, Coordinate, Family
from .program import Program
from .program_batch import on_lattice
from .tables import Listed

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


def completions(
    family: Family, wanted: Sequence[Mapping[str, int]], workload: Workload, arch: Arch
) -> tuple[list[Program], Columns]:
    """The Programs of the ``wanted`` values with the family's defaults for the rest, and their columns, in order;
    Programs that are not on the lattice are left out."""
    coordinates = family.coordinates(workload, arch)
    values: dict[str | Column, np.ndarray] = {
        c.name: np.array([each.get(c.name, c.values[0]) for each in wanted], np.int32) for c in coordinates
    }
    values["level"][:] = 2
    for level in (1, 2):
        defaults = family.defaults(values, workload, arch)
        values.update({c.name: _completed(c, wanted, defaults) for c in coordinates if c.level == level})
    numbers = np.stack([values[c.name] for c in coordinates], axis=1).astype(np.int64)
    numbers = numbers[on_lattice(numbers, coordinates)]
    names = [c.name for c in coordinates]
    programs = [Program(family.name, tuple(zip(names, row, strict=True))) for row in numbers.tolist()]
    return programs, Listed(coordinates, family.parts(workload, arch), numbers)


def _completed(
    coordinate: Coordinate, wanted: Sequence[Mapping[str, int]], defaults: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The values of one coordinate: the largest of its lattice that are at most the wanted ones, or else the
    defaults."""
    name, lattice = coordinate.name, np.array(coordinate.values, np.int32)
    usual = np.broadcast_to(defaults.get(name, lattice[0]), len(wanted))
    best = [each.get(name, value) for each, value in zip(wanted, usual.tolist(), strict=True)]
    return lattice[np.maximum(np.searchsorted(lattice, best, side="right") - 1, 0)]


def completed(
    family: Family, wanted: Sequence[Mapping[str, int]], workload: Workload, arch: Arch, registers: float
) -> list[Program]:
    """Return the legal `completions` that are estimated to need at most ``registers`` per thread, in order."""
    programs, columns = completions(family, wanted, workload, arch)
    good = family.legal(columns, workload, arch) & (family.registers(columns, workload, arch) <= registers)
    return list(dict.fromkeys(program for program, fine in zip(programs, good, strict=True) if fine))
