"""A family on fewer coordinate values: the same rules and potential, few enough Programs to enumerate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs.family import Coordinate, Family
from gensor_kernels.programs.space import FamilySpace


class Sublattice:
    """`family` with only the values in `kept` (by coordinate name; coordinates not named keep all of theirs)."""

    def __init__(self, family: Family, kept: Mapping[str, tuple[int, ...]]):
        self._family = family
        self._kept = dict(kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """The family's coordinates, their values reduced."""
        return tuple(
            replace(c, values=tuple(v for v in c.values if v in self._kept[c.name])) if c.name in self._kept else c
            for c in self._family.coordinates(workload, arch)
        )

    def starters(self, workload: Workload, arch: Arch) -> list[Any]:
        """None: the family's own may not be on the reduced lattice."""
        return []


def reduce_to(
    family: Family, workload: Workload, arch: Arch, lattice: int, rng: np.random.Generator
) -> dict[str, tuple[int, ...]]:
    """Values by coordinate for at most `lattice` complete lattice points, dropped at random.

    The smallest value of each coordinate stays, so that the minimal Program does.
    """
    kept = {c.name: list(c.values) for c in family.coordinates(workload, arch) if c.name != "level"}
    names = list(kept)
    while np.prod([len(values) for values in kept.values()], dtype=object) > lattice:
        room = np.array([len(kept[name]) - 1 for name in names], float)
        name = names[rng.choice(len(names), p=room / room.sum())]
        del kept[name][rng.integers(1, len(kept[name]))]
    return {name: tuple(values) for name, values in kept.items()}


def reduced_space(family: Family, workload: Workload, arch: Arch, kept: Mapping[str, tuple[int, ...]]) -> FamilySpace:
    """The FamilySpace of a family on fewer values."""
    reduced: Any = Sublattice(family, kept)
    return FamilySpace(reduced, workload, arch)


class OneFamily:
    """A Space with a single family."""

    def __init__(self, family: FamilySpace):
        self.families = (family,)
