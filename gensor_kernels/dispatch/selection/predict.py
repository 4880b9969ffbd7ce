"""Predicted times of stored kernels: the potential of a few Programs, and what measurements say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.core.program_batch import Roster
from gensor_kernels.programs.registry import FAMILIES

from .library import Kernel, Library

#: Lists of kernels whose groups a library keeps.
MOST_LISTS = 256
_DIGEST = attrgetter("digest")


class Group(NamedTuple):
    """Kernels with the same layouts and alignments: their places in a list, one of them, their Programs."""

    places: list[int]
    first: Kernel
    roster: Roster


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library | None = None) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal.

    What does not depend on sizes is kept with ``library`` for the next Workload.
    """
    seconds = np.full(len(kernels), math.inf)
    for group in _groups(kernels, library):
        wanted = group.first.workload(workload)
        if group.roster.family.serves(wanted, arch) is None:
            legal, values = _seconds(group.roster, wanted, arch)
            seconds[np.take(group.places, legal)] = values
    return seconds.tolist()


def _groups(kernels: Sequence[Kernel], library: Library | None) -> list[Group]:
    if library is None:
        return _group(kernels)
    key = tuple(map(_DIGEST, kernels))
    found: list[Group] | None = library.groups.get(key)
    if found is None:
        if len(library.groups) >= MOST_LISTS:
            library.groups.clear()
        found = library.groups[key] = _group(kernels)
    return found


def _group(kernels: Sequence[Kernel]) -> list[Group]:
    forms: dict[str, list[int]] = {}
    for place, kernel in enumerate(kernels):
        forms.setdefault(kernel.form, []).append(place)
    return [
        Group(places, first, Roster(FAMILIES[first.program.family], [kernels[i].program for i in places]))
        for places in forms.values()
        for first in (kernels[places[0]],)
    ]


def _seconds(roster: Roster, workload: Workload, arch: Arch) -> tuple[np.ndarray, np.ndarray | list[float]]:
    """Return the places of the legal Programs, and their predicted seconds."""
    places, terms = roster.terms(workload, arch)
    return places, [] if terms is None else roofline.seconds(terms, arch)


def few_seconds(family: Family, programs: Sequence[Program], workload: Workload, arch: Arch) -> list[float]:
    """See `predict`, of a few Programs; infinity off the Workload's lattice and where they are not legal."""
    seconds = np.full(len(programs), math.inf)
    places, values = _seconds(Roster(family, programs), workload, arch)
    seconds[places] = values
    return seconds.tolist()


def predicted_us(kernel: Kernel, workload: Workload, arch: Arch, library: Library | None = None) -> float | None:
    """Predicted microseconds of a kernel for a Workload, or None if its Program is not legal for it."""
    (seconds,) = predict([kernel], workload, arch, library)
    return seconds * 1e6 if math.isfinite(seconds) else None


def residual(kernel: Kernel, library: Library, arch: Arch) -> float | None:
    """Measured over predicted time of a kernel on this part, geometric mean, or None if it was never measured."""
    if kernel.digest not in library.residuals:
        pairs = [
            (predicted_us(kernel, workload, arch, library), measured) for workload, measured in library.timed(kernel)
        ]
        ratios = [math.log(measured / predicted) for predicted, measured in pairs if predicted]
        library.residuals[kernel.digest] = math.exp(sum(ratios) / len(ratios)) if ratios else None
    return library.residuals[kernel.digest]
