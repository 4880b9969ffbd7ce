"""Families on fewer coordinate values: the same rules and potential, few enough Programs to enumerate."""

from __future__ import annotations

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.space import FamilySpace

#: Most values of coordinates whose values but the smallest go with few of the others': of a stream that is the split,
#: and bounds that hold its blocks at once.
FEW = {"stream": 3}


def reduce_to(
    family: Family, workload: Workload, arch: Arch, lattice: int, rng: np.random.Generator
) -> dict[str, tuple[int, ...]]:
    """Values by coordinate for at most `lattice` complete lattice points, dropped at random.

    The smallest value of each coordinate stays, so that the minimal Program does.
    """
    kept = {c.name: list(c.values) for c in family.coordinates(workload, arch) if c.name != "level"}
    names = list(kept)
    for name, most in FEW.items():
        while len(kept.get(name, ())) > most:
            del kept[name][rng.integers(1, len(kept[name]))]
    while np.prod([len(values) for values in kept.values()], dtype=object) > lattice:
        room = np.array([len(kept[name]) - 1 for name in names], float)
        name = names[rng.choice(len(names), p=room / room.sum())]
        del kept[name][rng.integers(1, len(kept[name]))]
    return {name: tuple(values) for name, values in kept.items()}


class OneFamily:
    """A Space with a single family."""

    def __init__(self, family: FamilySpace):
        self.families = (family,)
