"""Columns of contraction_strip in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column, each

WARPS = each("warps", "mn", "warps of a block along an axis")
STEP_CLOCKS = Column("step_clocks", "wavefronts of a warp's fragments of a step")
PIECES = Column("pieces", "copies of a tile's lines")
TILE_BYTES = Column("tile_bytes", "bytes of a tile's lines in the L2")
STAGE_BYTES = Column("stage_bytes", "shared bytes of a tile's lines")
FILTERS = Column("filters", "shared bytes of a block's filters")
ARRANGE = Column("arrange", "loads of filters that are arranged, of 32 places each")
CHUNKS = Column("chunks", "16-byte chunks of arranged filters")
VERIFIED = Column("verified", "shared bytes, at most, of the problems that a Program is verified on")
