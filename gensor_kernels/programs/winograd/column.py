"""Columns of winograd, beside the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.programs.core.columns import Column

FITS = Column("fits", "whether thread tile and components fill the block tile")
FITS_STAGES = Column("fits_stages", "whether prepared filters have a second buffer")
CLOCKS = Column("clocks", "wavefronts of a block's step")
STAGING = Column("staging", "clocks in which outputs pass through shared memory")
FIRST = Column("first", "microseconds of the launch that transforms filters")
TILE = Column("tile", "shared bytes of a buffer")
