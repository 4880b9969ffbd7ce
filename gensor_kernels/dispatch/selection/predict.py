"""Predicted times of stored kernels: the potential of a few Programs, and what measurements say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
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

#: Lists of kernels whose ways a library keeps.
MOST_LISTS = 256


class Group(NamedTuple):
    """Kernels that one evaluation predicts: the places of their ways in a list, the class of all, their Programs."""

    places: list[int]
    serves: Workload
    roster: Roster


class Ways(NamedTuple):
    """The Programs that each kernel of a list may be launched as, and groups of all of these."""

    programs: list[list[Program]]
    groups: list[Group]


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library | None = None) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal.

    What does not depend on sizes is kept with ``library`` for the next Workload.
    """
    ways = _ways(kernels, library, "own", lambda kernel: [kernel.program])
    return _predict(ways, workload, arch)


def predict_divided(
    kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library
) -> list[tuple[Program, float]]:
    """Return the best of each kernel's ways to divide k among blocks, and its predicted seconds; see `predict`."""
    ways = _ways(kernels, library, "divided", library.divided)
    seconds = iter(_predict(ways, workload, arch))
    # `zip` ends with `own`, before it takes one of the following seconds.
    return [min(zip(own, seconds, strict=False), key=itemgetter(1)) for own in ways.programs]


def _ways(
    kernels: Sequence[Kernel], library: Library | None, kind: str, programs: Callable[[Kernel], list[Program]]
) -> Ways:
    """Return the ways to launch kernels, which follow from their digests and the ``kind`` of ways."""
    if library is None:
        return _group(kernels, programs)
    key = (kind, *[kernel.digest for kernel in kernels])
    kept = library.ways  # another takes its place when the library's contents change
    found: Ways | None = kept.get(key)
    if found is None:
        if len(kept) >= MOST_LISTS:
            kept.clear()
        found = kept[key] = _group(kernels, programs)
    return found


def _group(kernels: Sequence[Kernel], programs: Callable[[Kernel], list[Program]]) -> Ways:
    own = [programs(kernel) for kernel in kernels]
    forms: dict[Hashable, tuple[dict[str, int], Kernel, list[int], list[Program]]] = {}
    first = 0
    for kernel, ways in zip(kernels, own, strict=True):
        family, layout, alignment = kernel.form
        free = FAMILIES[family].alignment_bounds_widths
        form = family, layout, tuple(min(each, 4) for _, each in alignment) if free else alignment
        widest, _, places, joined = forms.setdefault(form, ({}, kernel, [], []))
        widest |= {name: max(each, widest.get(name, 0)) for name, each in alignment}
        places += range(first, first + len(ways))
        joined += ways
        first += len(ways)
    groups = [
        Group(
            places,
            replace(kernel.serves, alignment=tuple(widest.items())),
            Roster(FAMILIES[kernel.program.family], joined),
        )
        for widest, kernel, places, joined in forms.values()
    ]
    return Ways(own, groups)


def _predict(ways: Ways, workload: Workload, arch: Arch) -> list[float]:
    """Return the seconds of all ways."""
    seconds = np.full(sum(map(len, ways.programs)), math.inf)
    for group in ways.groups:
        wanted = workload.stored_as(group.serves)
        if group.roster.family.serves(wanted, arch) is None:
            legal, values = _seconds(group.roster, wanted, arch)
            seconds[np.take(group.places, legal)] = values
    return seconds.tolist()


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
    kept = library.residuals  # another takes its place when something was measured
    if kernel.digest not in kept:
        pairs = [
            (predicted_us(kernel, workload, arch, library), measured) for workload, measured in library.timed(kernel)
        ]
        ratios = [math.log(measured / predicted) for predicted, measured in pairs if predicted]
        kept[kernel.digest] = math.exp(sum(ratios) / len(ratios)) if ratios else None
    return kept[kernel.digest]
