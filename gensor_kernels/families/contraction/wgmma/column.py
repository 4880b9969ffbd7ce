"""Columns of contraction_wgmma in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column, terms

WAVEFRONTS, AHEAD, BEHIND, REQUEST = terms("wavefronts ahead behind request")
STORING = Column("storing", "warps that store")
ENTRY = Column("entry", "registers of each thread at entry, spills on top")
BOXED = Column("boxed", "columns of B that are requested for a tile, per column of it")
SAVED = Column("saved", "share of its requests that a block of a pair leaves to the other one")
MEETINGS = Column("meetings", "clocks in which a pair of blocks meets")
TAKING = Column("taking", "share of iterations that a multiplying warp takes part in")
SHARE = Column("share", "share of its instructions that the average warp issues")
ISSUING = Column("issuing", "clocks in which the requesting thread issues a step's copies")
