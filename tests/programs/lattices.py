"""Lattices of the families that multiply by themselves, which several tests use, and random points of any lattice."""

import numpy as np
import pytest

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace

from . import workloads

MMA, SIMT, WGMMA, ALIGNED = (FAMILIES[f"contraction_{name}"] for name in ("mma", "simt", "wgmma", "aligned"))
LATTICES = [
    (family.name, index)
    for family in (MMA, SIMT, WGMMA)
    for index in range(len(workloads.contract(family.name).served))
]


def space(index: int) -> FamilySpace:
    """One of the lattices."""
    return workloads.space(*LATTICES[index])


def fastest(family: Family, workload: Workload, arch: Arch) -> float:
    """Predicted seconds of the best starter."""
    lattice = FamilySpace(family, workload, arch)
    return float(lattice.potential(np.array([lattice.point(each) for each in family.starters(workload, arch)])).min())


def random_legal(lattice: FamilySpace, count: int, seed: int = 0) -> np.ndarray:
    """Random legal complete points (count, d)."""
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < count:
        points = np.stack([rng.integers(0, extent, 20_000) for extent in lattice.extents], axis=1)
        points[:, 0] = 2
        found.append(points[lattice.legal(points)])
    return np.concatenate(found)[:count]


every_space = pytest.mark.parametrize(
    "index", range(len(LATTICES)), ids=[f"{name.removeprefix('contraction_')}-{index}" for name, index in LATTICES]
)
