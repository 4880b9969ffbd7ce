"""Columns that main loops and other families have in common (core/columns.py).

A main loop has further columns in a module of this name in its own folder."""

from __future__ import annotations

from gensor_kernels.families.core.columns import Column, each, terms

TILES = each("tiles", "mn", "tiles of the grid along an axis of C")
HELD = each("held", "mn", "rows or columns of C that a tile holds, on the average")
RASTER_ROWS = Column("raster_rows", "tile rows that are walked together")
SLABS = Column("slabs", "copies of C that the grid computes: batch entries times parts of k")
WRITTEN = Column("written", "DRAM bytes that the main launch writes")
AFTER = Column("after", "microseconds of the launches after the main one")
BEFORE = Column("before", "microseconds of the launch that prepares an operand")
INLINED = Column("inlined", "whether the prologue is applied as its operand is loaded")
PROMISED = Column("promised", "blocks per multiprocessor promised to the compiler, at least 1")
ITERATIONS = Column("iterations", "main-loop iterations of a block")
STEP = each("step", "ab", "bytes of an operand that an iteration brings per row or column of C")
MATH, MULTIPLIES, CHAIN, IN_FLIGHT, EXPOSED, ISSUE, WARPS = terms("math multiplies chain in_flight exposed issue warps")
OUTPUTS = Column("outputs", "outputs of a warp")
K_STEPS = Column("k_steps", "steps of k of one instruction in an iteration")
STEP_ISSUE = Column("step_issue", "instructions of a warp's iteration except copies, fragment reads and math")
BASE_REGISTERS = Column("base_registers", "registers of a thread except those of pending copies")
STORES = Column("stores", "store instructions of a warp per output of a lane")
STORE_LINES = Column("store_lines", "wavefronts of such a store")
FITS_STORE = Column("fits_store", "whether whole stores fill the tile")
RING = Column("ring", "shared bytes of the buffers")
SLAB = Column("slab", "shared bytes in which a warp (all warps, where they walk) stages outputs")
STAGING_CLOCKS = Column("staging_clocks", "clocks in which a warp's 16 rows of outputs pass through shared memory")
STAGING_ROWS = Column("staging_rows", "times 16 rows of outputs of a warp that pass through shared memory")
DOWN = Column("down", "warps, or threads, of a block along m")
ACROSS = Column("across", "warps, or threads, of a block along n")
READ_ISSUE = each("read_issue", "ab", "instructions of a warp to read an operand's fragments of an iteration")
READ_CLOCKS = each("read_clocks", "ab", "wavefronts of these reads")
COPY_ISSUE = Column("copy_issue", "instructions of a copy")
TILE = Column("tile", "shared bytes of a tile of whole rows")
ROW_CLOCKS = Column("row_clocks", "clocks of a block's warps to normalise its rows")
SCALE_ISSUE = Column("scale_issue", "instructions that scales of b's columns take")
SCALE_MULTIPLIES = Column("scale_multiplies", "matrix instructions for zeros of quantised weights")
SCALE_REGISTERS = Column("scale_registers", "registers of scales and zeros")
