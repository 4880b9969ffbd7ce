"""Clusters of contraction_wgmma: pairs of blocks that fetch an operand's tiles for each other (wgmma_ring.cuh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.problem import Extents
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Coordinate, Part, Values
from gensor_kernels.families.core.tensor_maps import ROW_BYTES
from gensor_kernels.machine.roofline import Terms

from . import column as wgmma

#: Blocks by themselves; pairs side by side along m, which share tiles of B; and along n, of A. Multiprocessors come in
#: pairs themselves, so a pair of blocks finds room wherever two blocks do.
CLUSTERS = ALONE, ALONG_M, ALONG_N = (0, 1, 2)
#: Clocks of the two times that a pair of blocks meets.
MEETINGS = 500.0


def coordinate(e: Extents) -> Coordinate:
    """Return how blocks are paired: no pair shares tiles of two matrices, a gate's or different groups'."""
    values = (ALONE, ALONG_N) if e.gate or e.rows else CLUSTERS
    return Coordinate("cluster", values, 0, "raster", "1: pairs of blocks along m; 2: along n")


def pair(v: Mapping[str, Numbers], axis: str) -> Numbers:
    """Return the blocks of a cluster along m or n: 2 or 1."""
    return 1 + (v["cluster"] == {"m": ALONG_M, "n": ALONG_N}[axis])


#: Blocks of a cluster along an axis.
Along = Callable[[Mapping[str, Numbers], str], Numbers]


def blocks(v: Mapping[str, Numbers], along: Along = pair) -> Numbers:
    """Return the blocks of a cluster."""
    return along(v, "m") * along(v, "n")


def boxed_columns(block_n: Numbers, e: Extents) -> Numbers:
    """Return the columns of B that whole boxes of a tile have."""
    unit = ROW_BYTES // e.bytes_a
    return -(-block_n // unit) * unit if e.unit["b"] == "n" else block_n


def tile(found: dict[str, int], v: Mapping[str, int], along: Along = pair) -> dict[str, int]:
    """Return a block's tile as its cluster's, which is counted as one; rows that are walked together are blocks'."""
    rows, columns = int(along(v, "m")), int(along(v, "n"))
    return found | {"m": rows * found["m"], "n": columns * found["n"], "raster": max(1, found["raster"] // rows)}


def of_operands(v: Mapping[str, Numbers], e: Extents) -> tuple[Numbers, Numbers]:
    """Return the bytes of a block's tiles of A and B, per value of k."""
    of_a = v["block_m"] * (e.moved_a if e.is_formatted else e.bytes_a)
    return of_a, boxed_columns(v["block_n"], e) * e.moved_b * e.matrices


def cluster_parts(e: Extents, along: Along = pair) -> tuple[Part, ...]:
    """Tabulate tiles of whole clusters, and shared requests."""
    return (
        _tiles(e.m, "m", along),
        _tiles(e.n, "n", along),
        Part(("raster", "cluster"), lambda v: {column.RASTER_ROWS: np.maximum(v["raster"], along(v, "m"))}, fixed=True),
        _shares(e, along),
    )


def with_clusters(terms: Terms, c: Columns) -> Terms:
    """Return the terms of Programs, some of which are clusters: tiles that both blocks need still arrive at both."""
    of_a, of_b = c[column.HELD["m"]] * c[column.STEP["a"]], c[column.HELD["n"]] * c[column.STEP["b"]]
    terms.l2_bytes = terms.l2_bytes + of_b * (c[wgmma.BOXED] - 1)
    saved = (of_a + of_b * c[wgmma.BOXED]) * c[wgmma.SAVED]
    terms.arriving = terms.l2_bytes / (terms.l2_bytes - saved)
    terms.l2_bytes = terms.l2_bytes - saved
    terms.epilogue = terms.epilogue + c[wgmma.MEETINGS]
    return terms


def _tiles(extent: int, axis: str, along: Along) -> Part:
    """Tabulate tiles of the grid along an axis, in whole clusters, and the extent that a tile holds."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        blocks = along(v, axis)
        tiles = -(-extent // (v[f"block_{axis}"] * blocks)) * blocks
        return {column.TILES[axis]: tiles, column.HELD[axis]: extent / tiles}

    return Part((f"block_{axis}", "cluster"), function)


def _shares(e: Extents, along: Along) -> Part:
    """Return the share of requests that a block of a cluster leaves to the others: of an operand that they need."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        of_a, of_b = of_operands(v, e)
        return {
            wgmma.SAVED: 1 - (of_a / along(v, "n") + of_b / along(v, "m")) / (of_a + of_b),
            wgmma.MEETINGS: (v["cluster"] > 0) * MEETINGS,
        }

    return Part(("block_m", "block_n", "cluster"), function, fixed=e.is_plain)
