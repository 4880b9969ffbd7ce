"""Columns of attention_wgmma in addition to those of attention and of contraction_wgmma."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column

FITS_GROUP = Column(
    "fits_group", "whether boxes of whole queries, in all heads of a group, fit the memory of a tile of Q"
)
