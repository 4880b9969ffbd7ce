"""Columns of attention_wgmma in addition to those of attention (column.py) and of products (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.programs.core.columns import Column

WAVEFRONTS = Column("wavefronts", "see roofline.Terms")
STORING = Column("storing", "warps that store")
ENTRY = Column("entry", "registers of each thread at entry")
FITS_GROUP = Column(
    "fits_group", "whether boxes of whole queries, in all heads of a group, fit the memory of a tile of Q"
)
