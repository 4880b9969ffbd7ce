"""Columns of contraction_simt in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column, each

EXTENT = each("extent", "mn", "extent of the block tile along an axis")
PER_LINE = each("per_line", "ab", "loads of a line of an operand's tile")
LINES = each("lines", "ab", "lines of an operand's tile")
LOAD_WORDS = each("load_words", "ab", "registers of a pending load")
LOAD_LANES = each("load_lanes", "ab", "adjacent threads along k that load a transposed operand")
LOAD_ISSUE = each("load_issue", "ab", "instructions of a load")
LOAD_CLOCKS = each("load_clocks", "ab", "wavefronts of a load's stores into shared memory")
ROW_WORDS = Column("row_words", "bytes of the rows that a thread stages at a time")
ROW_ROUNDS = Column("row_rounds", "times that a thread stages rows")
SLAB_WORDS = Column("slab_words", "wavefronts of a staged word, 0 without staging")
STAGED = Column("staged", "whether outputs leave through shared memory")
STEPS = Column("steps", "values of k of an iteration")
