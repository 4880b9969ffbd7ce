"""Predicted times of stored kernels: the potential of a few Programs, and what measurements say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..machine import roofline
from ..machine.arch import Arch
from ..operators.workload import Workload
from ..programs.families import FAMILIES
from ..programs.family import Coordinate, Family
from ..programs.program import Program
from ..programs.tables import Listed
from .library import Kernel, Library


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library | None = None) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal.

    That is the potential, corrected by the residual that ``library`` holds, if any.
    """
    seconds = [math.inf] * len(kernels)
    groups: dict[str, list[int]] = {}
    for index, kernel in enumerate(kernels):
        groups.setdefault(kernel.form, []).append(index)
    for indices in groups.values():
        name = kernels[indices[0]].program.family
        wanted = kernels[indices[0]].workload(workload)
        if FAMILIES[name].serves(wanted, arch) is None:
            values = few_seconds(FAMILIES[name], [kernels[i].program for i in indices], wanted, arch, library)
            for index, value in zip(indices, values, strict=True):
                seconds[index] = value
    return seconds


def few_seconds(
    family: Family, programs: Sequence[Program], workload: Workload, arch: Arch, library: Library | None = None
) -> list[float]:
    """See `predict`, of a few Programs; infinity off the Workload's lattice and where they are not legal."""
    seconds = np.full(len(programs), math.inf)
    places, terms = few_terms(family, programs, workload, arch)
    if terms is not None:
        learnt = library.learnt if library is not None else None
        if learnt is None:
            seconds[places] = roofline.seconds(terms, arch)
        else:
            seconds[places] = learnt.seconds(terms, arch, workload.kind, workload.operator)
    return seconds.tolist()


def few_terms(
    family: Family, programs: Sequence[Program], workload: Workload, arch: Arch
) -> tuple[np.ndarray, roofline.Terms | None]:
    """The places of those that are legal for a Workload, and their terms; None where none is.

    A Space tabulates its whole lattice, which pays from thousands of Programs on.
    """
    coordinates = family.coordinates(workload, arch)
    values = np.array([program.numbers for program in programs], dtype=np.int64)
    places = _on_lattice(values, coordinates)
    if not len(places):
        return places, None
    columns = Listed(coordinates, family.parts(workload, arch), values[places])
    legal = family.legal(columns, workload, arch)
    if not legal.any():
        return places[:0], None
    if not legal.all():
        places, columns = places[legal], columns.where(legal)
    return places, family.terms(columns, workload, arch)


def _on_lattice(values: np.ndarray, coordinates: Sequence[Coordinate]) -> np.ndarray:
    """The places of the rows (n, coordinates) whose values the coordinates have."""
    on = np.ones(len(values), dtype=bool)
    for column, coordinate in zip(values.T, coordinates, strict=True):
        for strange in set(column.tolist()).difference(coordinate.values):
            on &= column != strange
    return np.flatnonzero(on)


def predicted_us(kernel: Kernel, workload: Workload, arch: Arch, library: Library | None = None) -> float | None:
    """Predicted microseconds of a kernel for a Workload; None where its Program is not legal for it."""
    (seconds,) = predict([kernel], workload, arch, library)
    return seconds * 1e6 if math.isfinite(seconds) else None


def residual(kernel: Kernel, library: Library, arch: Arch) -> float:
    """Measured over predicted time of a kernel on this part, geometric mean; 1 where it was never measured.

    Where there is a learnt residual this is what it leaves of this kernel.
    """
    if kernel.digest not in library.residuals:
        pairs = [
            (predicted_us(kernel, workload, arch, library), measured) for workload, measured in library.timed(kernel)
        ]
        ratios = [math.log(measured / predicted) for predicted, measured in pairs if predicted]
        library.residuals[kernel.digest] = math.exp(sum(ratios) / len(ratios)) if ratios else 1.0
    return library.residuals[kernel.digest]
