"""Masks of attention: which lines a block reads, and what its warps issue to apply them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Coordinate, Part, Values
from gensor_kernels.families.core.tensor_maps import ROW_BYTES
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.types.workload import Workload

from .shape import Sizes

#: Tiles of a mask that pass through shared memory; with none, each thread reads its elements from global memory.
STAGES = Coordinate("mask_stages", (0, 1, 2), 1, "stages", "shared tiles of the mask, 0: none")
#: Instructions per score that apply a mask whose elements a thread loads itself, and one in shared memory, by bytes of
#: an element; and one more where scores may be as large as a float: counted in the SASS of loops with and without one.
LOADED_ISSUE, COPIED_ISSUE, LARGE_ISSUE = {0: 0.0, 1: 4.5, 2: 3.5, 4: 3.5}, {1: 2.5, 2: 2.1, 4: 2.5}, 1.0
#: Rows of fragments that a warp's load of a mask takes elements of, and clocks that each line of these takes: fitted to
#: times on an H100 of masks with a row for all queries, and with one for each.
LOAD_ROWS, LINE = 8, 0.5
#: Bytes of a tensor copy's alignment.
ALIGNED = 16

RING = Column("mask_ring", "shared bytes of tiles of the mask")
LINES = Column("mask_lines", "clocks of a step's mask: of accesses of shared memory, or of lines of global memory")
WAITED = Column("mask_waited", "those of them that warps wait for")
APPLY = Column("mask_apply", "instructions per score that apply the mask")
READ = Column("mask_read", "bytes of the mask that a step reads")


def is_copied(workload: Workload) -> bool:
    """Return whether tensor copies can read the mask of a Workload."""
    return bool(FORMS[workload.operator].mask) and workload.layouts["e"] != "s" and workload.align["e"] >= ALIGNED


def lines_of(rows: Numbers, e: Sizes) -> Numbers:
    """Return the rows of the mask of neighbouring rows of an entry."""
    queries = np.maximum(rows / e.group, 1.0) if e.mask_queries else 1.0
    return queries * (np.minimum(e.group, rows) if e.mask_heads else 1.0)


def loaded_issue(e: Sizes) -> float:
    """Return the instructions per score that apply a mask whose elements a thread loads itself; 0 without a mask."""
    return LOADED_ISSUE[e.mask_bytes] + LARGE_ISSUE * e.mask_large


def tile_bytes(v: Mapping[str, Numbers], e: Sizes, spare: int) -> Numbers:
    """Return the shared bytes of a tile: boxes of 128 bytes of keys, with ``spare`` rows after those of a block."""
    return -(-v["block_k"] * e.mask_bytes // ROW_BYTES) * ROW_BYTES * (v["block_q"] + spare)


def loaded_part(e: Sizes) -> Part:
    """Tabulate a mask whose elements threads load themselves, pairs of them."""
    each = LINE * np.ceil(lines_of(LOAD_ROWS, e)) * (1 if e.mask_pair else 8 if e.mask_keys else 2)

    def function(v: Values) -> dict[Column, np.ndarray]:
        loads = v["block_q"] * v["block_k"] / 64.0
        return {
            LINES: loads * each,
            WAITED: loads * each,
            APPLY: np.full(len(loads), loaded_issue(e)),
            READ: lines_of(v["block_q"], e) * (v["block_k"] * e.mask_bytes),
        }

    return Part(("block_q", "block_k"), function)


def copied_part(e: Sizes, spare: int) -> Part:
    """Tabulate a mask that may pass through shared memory: written once, and read by each warp."""
    loaded = loaded_part(e)

    def function(v: Values) -> dict[Column, np.ndarray]:
        found, copied = loaded.function(v), v["mask_stages"] > 0
        boxes = -(-v["block_k"] * e.mask_bytes // ROW_BYTES)
        written = lines_of(v["block_q"], e) * boxes
        # Pairs of bytes fill a quarter of the banks, of 2 bytes an eighth of the matrices of ldmatrix each.
        read = v["block_q"] * v["block_k"] / 64.0 * {1: 1, 2: 1, 4: 2}[e.mask_bytes]
        return {
            RING: v["mask_stages"] * tile_bytes(v, e, spare),
            LINES: np.where(copied, written + read, found[LINES]),
            WAITED: np.where(copied, read, found[WAITED]),
            APPLY: np.where(copied, COPIED_ISSUE[e.mask_bytes] + LARGE_ISSUE * e.mask_large, found[APPLY]),
            READ: np.where(copied, written * ROW_BYTES, found[READ]),
        }

    return Part(("block_q", "block_k", "mask_stages"), function)
