"""Predicted times of stored kernels: the potential of a few Programs, and what measurements say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import Roster
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from .library import Kernel, Library

#: Lists of kernels whose groups a library keeps.
MOST_LISTS = 256
#: A kernel and the Program that it is launched as.
Way = tuple[Kernel, Program]


class Group(NamedTuple):
    """Kernels with the same layouts and alignments: their places in a list, one of them, their Programs."""

    places: list[int]
    first: Kernel
    roster: Roster


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library | None = None) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal.

    What does not depend on sizes is kept with ``library`` for the next Workload.
    """
    ways = [(each, each.program) for each in kernels]
    return _predict(ways, (), workload, arch, library)


def predict_divided(
    kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library
) -> list[tuple[Program, float]]:
    """The best of each kernel's ways to divide k among blocks, and its predicted seconds; see `predict`."""
    programs = [library.divided(kernel) for kernel in kernels]
    ways = [(kernel, each) for kernel, own in zip(kernels, programs, strict=True) for each in own]
    seconds = iter(_predict(ways, ("divided",), workload, arch, library))
    # `zip` ends with `own`, before it takes one of the following seconds.
    return [min(zip(own, seconds, strict=False), key=itemgetter(1)) for own in programs]


def _predict(
    ways: Sequence[Way], kind: tuple[str, ...], workload: Workload, arch: Arch, library: Library | None
) -> list[float]:
    seconds = np.full(len(ways), math.inf)
    for group in _groups(ways, kind, library):
        wanted = group.first.workload(workload)
        if group.roster.family.serves(wanted, arch) is None:
            legal, values = _seconds(group.roster, wanted, arch)
            seconds[np.take(group.places, legal)] = values
    return seconds.tolist()


def _groups(ways: Sequence[Way], kind: tuple[str, ...], library: Library | None) -> list[Group]:
    """Return the groups of ways, which follow from the digests of their kernels and their ``kind``."""
    if library is None:
        return _group(ways)
    key = (*kind, *[kernel.digest for kernel, _ in ways])
    found: list[Group] | None = library.groups.get(key)
    if found is None:
        if len(library.groups) >= MOST_LISTS:
            library.groups.clear()
        found = library.groups[key] = _group(ways)
    return found


def _group(ways: Sequence[Way]) -> list[Group]:
    forms: dict[tuple[object, ...], list[int]] = {}
    for place, (kernel, _) in enumerate(ways):
        form = kernel.program.family, kernel.serves.layout, kernel.serves.alignment
        forms.setdefault(form, []).append(place)
    return [
        Group(places, first, Roster(FAMILIES[first.program.family], [ways[i][1] for i in places]))
        for places in forms.values()
        for first, _ in (ways[places[0]],)
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
