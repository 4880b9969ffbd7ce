"""Normalisation of a product's rows (norm.cuh): in the block that has whole rows, or in a second launch."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Part, Values
from gensor_kernels.machine.arch import Arch

from . import column
from .cost import WHOLE_ROWS, in_workspace, reduction
from .problem import Extents

#: NORM of the kernels, by the norm's name, and how often a second launch reads a row that is longer than CHUNK.
CODES, PASSES = {"layernorm": 1, "rmsnorm": 2}, {"layernorm": 3, "rmsnorm": 2}
#: Columns a warp holds in registers, where C is stored 16 bits wide: 8 values per lane.
CHUNK = 256
#: Clocks of a warp for one row of a tile: reading it, two sums over the lanes, storing it. An estimate.
ROW_CLOCKS = 500.0


def tile_bytes(v: Numbers, e: Extents) -> Numbers:
    """Shared bytes of a tile of sums: NORM_ROW words per row."""
    row = ((v["block_n"] * e.bytes_acc + 15) // 16 * 16) + 8 * e.bytes_acc
    return (v["epilogue_staged"] == WHOLE_ROWS) * v["block_m"] * row


def norm_parts(e: Extents, arch: Arch) -> tuple[Part, ...]:
    """Tabulate a norm: the tile, and the cost of the second launch."""

    def tile(v: Values) -> dict[Column, np.ndarray]:
        whole = v["epilogue_staged"] == WHOLE_ROWS
        return {column.TILE: tile_bytes(v, e), column.ROW_CLOCKS: whole * v["block_m"] * ROW_CLOCKS}

    def leave(v: Values) -> dict[Column, np.ndarray]:
        passes = 1 if e.n <= CHUNK else PASSES[e.norm]
        written, after = reduction(v["split_k"], e, arch, through=in_workspace(v, e), passes=passes)
        return {column.WRITTEN: written, column.AFTER: after}

    return (Part(("block_m", "block_n", "epilogue_staged"), tile), Part(("split_k", "epilogue_staged"), leave))
