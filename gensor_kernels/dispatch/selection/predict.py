"""Predicted times of stored kernels: the potential of a few Programs, and what measurements say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import Roster
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from .library import Form, Kernel, Library


class Group:
    """Kernels of one form, with the Programs that each may be launched as: one evaluation predicts all of them."""

    def __init__(self, kernels: Sequence[Kernel], programs: Callable[[Kernel], list[Program]]):
        widest: dict[str, int] = {}
        joined: list[Program] = []
        #: the place of a kernel's first Program, and its Programs, by its digest
        self.ways: dict[str, tuple[int, list[Program]]] = {}
        for kernel in kernels:
            widest |= {name: max(each, widest.get(name, 0)) for name, each in kernel.serves.alignment}
            self.ways[kernel.digest] = len(joined), programs(kernel)
            joined += self.ways[kernel.digest][1]
        self._serves = replace(kernels[0].serves, alignment=tuple(widest.items()))
        self._roster, self._count = Roster(FAMILIES[kernels[0].program.family], joined), len(joined)
        self._last: tuple[Workload, Arch, list[float]] | None = None

    def seconds(self, kernel: Kernel, workload: Workload, arch: Arch) -> list[float]:
        """Return the seconds of a kernel's Programs for a Workload; infinite where they are not legal.

        Those of the last Workload are kept: kernels of a group are predicted one after another.
        """
        last = self._last
        if last is None or last[:2] != (workload, arch):
            seconds, wanted = np.full(self._count, math.inf), workload.stored_as(self._serves)
            if self._roster.family.serves(wanted, arch) is None:
                places, values = _seconds(self._roster, wanted, arch)
                seconds[places] = values
            self._last = last = workload, arch, seconds.tolist()
        first, programs = self.ways[kernel.digest]
        return last[2][first : first + len(programs)]


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library | None = None) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal.

    What does not depend on sizes is kept with ``library`` for the next Workload.
    """
    groups = _groups(kernels, library, lambda kernel: [kernel.program])
    return [group.seconds(kernel, workload, arch)[0] for kernel, group in zip(kernels, groups, strict=True)]


def predict_divided(
    kernels: Sequence[Kernel], workload: Workload, arch: Arch, library: Library
) -> list[tuple[Program, float]]:
    """Return the best of each kernel's ways to divide k among blocks, and its predicted seconds; see `predict`."""
    found = []
    for kernel, group in zip(kernels, _groups(kernels, library, library.divided), strict=True):
        seconds = group.seconds(kernel, workload, arch)
        least = min(seconds)
        found.append((group.ways[kernel.digest][1][seconds.index(least)], least))
    return found


def _groups(
    kernels: Sequence[Kernel], library: Library | None, programs: Callable[[Kernel], list[Program]]
) -> list[Group]:
    """Return the group of each kernel: all of its form that the library stores, and of others those that are here."""
    known: dict[str, Group] = {} if library is None else library.groups
    strange: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.digest in known:
            continue
        if library is not None and kernel.digest in library.contents.kernels:
            form = _form(kernel)
            group = Group([each for each in library.alike(kernel) if _form(each) == form], library.divided)
            known.update(dict.fromkeys(group.ways, group))
        else:
            strange.setdefault(_form(kernel), []).append(kernel)
    made = {each.digest: group for some in strange.values() for group in [Group(some, programs)] for each in some}
    return [made.get(kernel.digest) or known[kernel.digest] for kernel in kernels]


def _form(kernel: Kernel) -> Form:
    """Return what kernels that are predicted together have in common."""
    family, layout, alignment = kernel.form
    if FAMILIES[family].alignment_bounds_widths:
        alignment = tuple((name, min(each, 4)) for name, each in alignment)
    return family, layout, alignment


def _seconds(roster: Roster, workload: Workload, arch: Arch) -> tuple[np.ndarray, np.ndarray | list[float]]:
    """Return the places of the legal Programs, and their predicted seconds."""
    places, terms = roster.terms(workload, arch)
    return places, [] if terms is None else roofline.seconds(terms, arch)


def few_seconds(family: Family, programs: Sequence[Program], workload: Workload, arch: Arch) -> list[float]:
    """See `predict`, of a few Programs; infinity off the Workload's lattice and where they are not legal."""
    seconds = np.full(len(programs), math.inf)
    places, values = _seconds(_roster(family, tuple(programs)), workload, arch)
    seconds[places] = values
    return seconds.tolist()


@lru_cache(maxsize=64)
def _roster(family: Family, programs: tuple[Program, ...]) -> Roster:
    """Return a Roster of a few Programs; starters are the same for many Workloads."""
    return Roster(family, programs)


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
