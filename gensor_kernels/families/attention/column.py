"""Columns of attention in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column, each

TILES = Column("tiles", "tiles of rows of an entry")
LONGEST = Column("longest", "steps of the longest block")
SHORTEST = Column("shortest", "steps of the shortest block")
SQUARE = Column("square", "square of a block's steps, on the average")
HELD_Q = Column("held_q", "rows that a tile holds, on the average")
WEIGH_ISSUE = Column("weigh_issue", "instructions of a warp's softmax")
READ_ISSUE = Column("read_issue", "instructions of a warp to read the fragments of a step")
READ_CLOCKS = Column("read_clocks", "wavefronts of these reads")
HOLD = Column("hold", "registers of a copy")
COPIES = each("copies", "kv", "a thread's copies of a tile of K or V")
PASSES = each("passes", "kv", "rows of copies of a thread")
PASS_ISSUE = Column("pass_issue", "instructions of a row of copies")
COPY_CLOCKS = each("copy_clocks", "kv", "wavefronts of a thread's copies")
