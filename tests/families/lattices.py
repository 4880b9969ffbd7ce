"""Lattices of the families that multiply by themselves, which several tests use, and random points of any lattice."""

from itertools import combinations

import numpy as np

from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from tests.campaign_size import FULL

from . import workloads

MMA, BLOCKS, SIMT, WGMMA, ALIGNED, TCGEN05 = (
    FAMILIES[f"contraction_{name}"] for name in ("mma", "blocks", "simt", "wgmma", "aligned", "tcgen05")
)
LATTICES = [
    (family.name, index)
    for family in (MMA, SIMT, WGMMA)
    for index in range(len(workloads.contract(family.name).served))
]


def space(index: int) -> FamilySpace:
    return workloads.space(*LATTICES[index])


def fastest(family: Family, workload: Workload, arch: Arch) -> float:
    lattice = FamilySpace(family, workload, arch)
    return float(lattice.potential(np.array([lattice.point(each) for each in family.starters(workload, arch)])).min())


def random_legal(lattice: FamilySpace, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < count:
        points = np.stack([rng.integers(0, extent, 20_000) for extent in lattice.extents], axis=1)
        points[:, 0] = 2
        found.append(points[lattice.legal(points)])
    return np.concatenate(found)[:count]


#: Operations that the emulator executes in seconds; nightly, wider tiles are drawn.
CHEAP = 6e8 if FULL else 1.5e8


def cheap_programs(lattice: FamilySpace, count: int, seed: int = 0) -> list[Program]:
    """Legal Programs that the emulator verifies in seconds, chosen for as many different pairs of values as possible.

    Where all are dear, return the cheapest of those drawn.
    """

    def cost(program: Program) -> int:
        return sum(case.workload.flops() for case in lattice.family.cases(program, lattice.workload, ()))

    drawn = sorted(map(lattice.program, random_legal(lattice, 200, seed)), key=cost)
    left = {program: {*combinations(program.values, 2)} for program in drawn if cost(program) <= CHEAP}
    chosen: list[Program] = []
    while left and len(chosen) < count:
        best = max(left, key=lambda program: len(left[program]))
        chosen.append(best)
        pairs = left.pop(best)
        left = {program: own - pairs for program, own in left.items()}
    return chosen or drawn[:1]
