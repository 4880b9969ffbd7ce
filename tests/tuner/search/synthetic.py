"""A small construction space in the shape of the real ones, for the chain's own properties."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from gensor_kernels.families.core.family import Coordinate, Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.space import FamilySpace

COORDINATES = (
    Coordinate("level", (0, 1, 2), 0, "cache", "memory level reached"),
    Coordinate("block_m", (16, 32, 48, 64, 96, 128), 0, "tile", "rows of a block"),
    Coordinate("block_n", (16, 32, 48, 64, 96, 128), 0, "tile", "columns of a block"),
    Coordinate("thread_m", (1, 2, 4, 8), 1, "tile", "rows of a thread"),
    Coordinate("vthread_m", (1, 2, 4), 1, "vthread", "groups of a thread's rows"),
    Coordinate("stages", (2, 3, 4), 2, "stages", "buffers"),
    Coordinate("split", (1, 2, 3, 4, 8), 2, "split", "blocks that share a reduction"),
)


class Toy(Family):
    """A toy matmul: tiles are whole numbers of threads, and the buffers must fit."""

    names = tuple(c.name for c in COORDINATES)

    def __init__(self, name: str = "toy", shared: int = 24_000, starts: Sequence[Program] = ()):
        self.name, self.shared, self._starts = name, shared, list(starts)

    def coordinates(self, workload, arch):
        return COORDINATES

    def legal(self, c, workload, arch):
        whole = (c["block_m"] % (c["thread_m"] * c["vthread_m"]) == 0) & (c["vthread_m"] <= c["thread_m"] * 2)
        return whole & ((c["block_m"] + c["block_n"]) * 32 * c["stages"] <= self.shared)

    def defaults(self, c, workload, arch):
        one = np.ones_like(c["block_m"])
        return {
            "thread_m": np.where(c["block_m"] % 64 == 0, 4, 2),
            "vthread_m": one,
            "stages": one * 2,
            "split": np.where(c["thread_m"] > 2, 2, 1),
        }

    def starters(self, workload, arch):
        return self._starts


class ToySpace(FamilySpace):
    """Toy's lattice with a potential of several valleys; it records what it evaluated, as codes."""

    def __init__(self, m=500, n=700, k=900, scale=1.0, **family):
        super().__init__(Toy(**family), SimpleNamespace(m=m, n=n, k=k, key=lambda: "toy"), "toy")
        self.scale = scale
        self.evaluated: list[np.ndarray] = []

    def potential(self, points):
        points = self.complete(points)
        assert self.legal(points).all()
        self.evaluated.append(self.encode(points))
        size, c = self.workload, {name: column.astype(float) for name, column in self.columns(points).items()}
        blocks = np.ceil(size.m / c["block_m"]) * np.ceil(size.n / c["block_n"]) * c["split"]
        math = c["block_m"] * c["block_n"] / (1 - 0.5 / c["thread_m"])
        traffic = 96.0 * (c["block_m"] + c["block_n"]) * (1 + 0.3 / c["vthread_m"])
        step = np.maximum(np.maximum(math, traffic), 3000 / (c["stages"] - 1))
        reduce = np.where(c["split"] > 1, size.m * size.n * c["split"] * 0.02, 0)
        loop = np.ceil(blocks / 16) * (np.ceil(size.k / c["split"] / 32) * step + 4000)
        return self.scale * 1e-9 * (loop + reduce + 2000)

    def all_legal(self):
        """Every legal point, partial ones included (n, d)."""
        points = self.decode(np.arange(self.size))
        return points[self.legal(points)]

    def best(self):
        return min(float(self.potential(points).min()) for points in self.enumerate())


@dataclass(frozen=True)
class Spaces:
    """A Space: a disjoint union of families."""

    families: tuple[FamilySpace, ...]
