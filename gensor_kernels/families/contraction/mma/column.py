"""Columns of contraction_mma in addition to the common ones (contraction/column.py)."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column, each

HOLD = each("hold", "ab", "registers of a copy of an operand")
ROWS = each("rows", "ab", "lines of an operand's tile")
PIECES = each("pieces", "ab", "copies of a line")
PIECES_POWER = each("pieces_power", "ab", "the power of two in the copies of a line")
PIECE_CLOCKS = each("piece_clocks", "ab", "wavefronts of a copy's own words")
PIECE_LINES = each("piece_lines", "ab", "wavefronts of a copy's bytes")
PIECE_ISSUE = each("piece_issue", "ab", "instructions to widen a copied piece")
PIECE_WIDENING = each("piece_widening", "ab", "clocks of the conversion pipe to widen a copied piece")
READ_WIDENING = each("read_widening", "ab", "clocks of the conversion pipe to widen fragments of an iteration")
POWER = each("power", "mn", "the power of two in the warps along an axis")
CHAIN_SAVED = Column("chain_saved", "clocks of chain that a second set of fragments saves")
DOUBLE_NEEDS = Column("double_needs", "registers with a second set of fragments")
SECOND_FRAGMENTS = Column("second_fragments", "registers of the second set of fragments")
PARTS_ISSUE = Column("parts_issue", "instructions to split or combine parts of numbers")
PARTS_CLOCKS = Column("parts_clocks", "clocks of the busier pipe that splits floats")
