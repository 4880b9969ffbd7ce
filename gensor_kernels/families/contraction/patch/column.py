"""Columns of contraction_patch in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column

BLOCK_STEPS = Column("block_steps", "steps of channels of a block")
TAP_ISSUE = Column("tap_issue", "instructions of a warp under one tap")
TAP_CLOCKS = Column("tap_clocks", "wavefronts of a warp's fragments under one tap")
PATCH_PIECES = Column("patch_pieces", "pieces of the patch of a step")
FILTER_PIECES = Column("filter_pieces", "copies of a step's filters")
FOURS = Column("fours", "words of filters that are arranged in a step")
COPY_CLOCKS = Column("copy_clocks", "wavefronts of a step's copies")
COPY_BYTES = Column("copy_bytes", "bytes of a step's copies")
ARRANGE_ISSUE = Column("arrange_issue", "instructions of a warp to arrange 32 words for each tap")
ARRANGE_CLOCKS = Column("arrange_clocks", "wavefronts of arranging 32 words")
FILTERS = Column("filters", "shared bytes of a step's filters")
STAGE = Column("stage", "shared bytes of a step's patch")
VERIFIED = Column("verified", "shared bytes, at most, of the problems that a Program is verified on")
STRIDED = Column("strided", "the same of the case whose outputs lie far apart, without pieces on their way")
