"""Clusters of contraction_tcgen05: one block, a pair of blocks, or two pairs (tcgen05_pairs.cuh)."""

from __future__ import annotations

from collections.abc import Mapping

from gensor_kernels.families.contraction.problem import Extents
from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Coordinate

#: A block by itself; a pair; two pairs side by side along m, which share tiles of B, and along n, of A.
CLUSTERS = ALONE, PAIR, ALONG_M, ALONG_N = (0, 1, 2, 3)


def coordinate(e: Extents) -> Coordinate:
    """Return the clusters: no pair multiplies tiles of different groups, and two pairs fetch matrices alone."""
    values = (ALONE,) if e.rows else (ALONE, PAIR) if e.window else CLUSTERS
    doc = "1: two blocks along m multiply as one; 2: two such pairs along m; 3: along n"
    return Coordinate("cluster", values, 0, "raster", doc)


def along(v: Mapping[str, Numbers], axis: str) -> Numbers:
    """Return the blocks of a cluster along m or n, those of a pair along m."""
    paired, two = v["cluster"] > ALONE, v["cluster"] == {"m": ALONG_M, "n": ALONG_N}[axis]
    return (1 + paired) * (1 + two) if axis == "m" else 1 + two


def together(v: Mapping[str, Numbers]) -> Numbers:
    """Return the blocks that multiply as one: 2 or 1."""
    return 1 + (v["cluster"] > ALONE)
