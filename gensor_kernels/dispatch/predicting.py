"""Predicted times of stored kernels: the potential of a few Programs, and what measurements say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..machine import roofline
from ..machine.arch import Arch
from ..operators.workload import Workload
from ..programs.families import FAMILIES
from ..programs.family import Coordinate, Family
from ..programs.program import Program
from ..programs.tables import Columns, Tables
from .library import Kernel, Library


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal."""
    seconds = [math.inf] * len(kernels)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, kernel in enumerate(kernels):
        key = (kernel.program.family, kernel.serves.layout, kernel.serves.alignment)
        groups.setdefault(key, []).append(index)
    for indices in groups.values():
        name = kernels[indices[0]].program.family
        wanted = kernels[indices[0]].workload(workload)
        if FAMILIES[name].serves(wanted, arch) is None:
            values = few_seconds(FAMILIES[name], [kernels[i].program for i in indices], wanted, arch)
            for index, value in zip(indices, values, strict=True):
                seconds[index] = value
    return seconds


def few_seconds(family: Family, programs: Sequence[Program], workload: Workload, arch: Arch) -> list[float]:
    """The potential of a few Programs; infinity off the Workload's lattice and where they are not legal.

    A Space tabulates its whole lattice, which pays from thousands of Programs on. Here the lattice is cut down to
    the values that occur.
    """
    coordinates = family.coordinates(workload, arch)
    seconds = [math.inf] * len(programs)
    on = [i for i, p in enumerate(programs) if all(value in c.values for c, (_, value) in _pairs(coordinates, p))]
    if not on:
        return seconds
    table = [[value for _, value in programs[i].values] for i in on]
    occurring = [tuple(sorted(set(column))) for column in zip(*table, strict=True)]
    cut = [replace(c, values=values) for c, values in zip(coordinates, occurring, strict=True)]
    points = np.array([[values.index(v) for values, v in zip(occurring, row, strict=True)] for row in table])
    tables = Tables(cut, family.parts(workload, arch))
    legal = family.legal(Columns(tables, points), workload, arch)
    if legal.any():
        terms = family.terms(Columns(tables, points[legal]), workload, arch)
        for index, value in zip(np.array(on)[legal], roofline.seconds(terms, arch).tolist(), strict=True):
            seconds[index] = value
    return seconds


def _pairs(coordinates: Sequence[Coordinate], program: Program) -> list[tuple[Coordinate, tuple[str, int]]]:
    """Coordinates beside a Program's values; both are in the family's order."""
    return list(zip(coordinates, program.values, strict=True))


def predicted_us(kernel: Kernel, workload: Workload, arch: Arch) -> float | None:
    """Predicted microseconds of a kernel for a Workload; None where its Program is not legal for it."""
    (seconds,) = predict([kernel], workload, arch)
    return seconds * 1e6 if math.isfinite(seconds) else None


def residual(kernel: Kernel, library: Library, arch: Arch) -> float:
    """Measured over predicted time of a kernel on this part, geometric mean; 1 where it was never measured."""
    if kernel.digest not in library.residuals:
        pairs = [(predicted_us(kernel, workload, arch), measured) for workload, measured in library.timed(kernel)]
        ratios = [math.log(measured / predicted) for predicted, measured in pairs if predicted]
        library.residuals[kernel.digest] = math.exp(sum(ratios) / len(ratios)) if ratios else 1.0
    return library.residuals[kernel.digest]
