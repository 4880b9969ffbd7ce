"""Stores of contraction_wgmma: from registers, through slabs, as boxes by copies (tma_store.cuh)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import in_workspace
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Coordinate, Part, Values
from gensor_kernels.families.core.tensor_maps import ROW_BYTES, TensorMap, operand_extents, readable
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

#: Columns of a small slab: the first of these that divides a tile's, or 8.
SLAB_COLUMNS = (64, 48, 32, 16, 56, 40, 24)
#: Results leave straight from registers, through shared memory by wide stores, and by tensor copies of boxes.
DIRECT, STAGED, COPIED = (0, 1, 3)
BOX_ROWS, BOX_BYTES = 16, 16 * ROW_BYTES
#: Outputs of a warp that leave together, and instructions in addition to two for each lane's output, counted in the
#: SASS of thirty Programs: of a store as contraction/cost.py has them, of one straight from registers with its
#: predicate and address; of a batch on its way into a slab, or into a box, and per byte of an output what boxes need to
#: be freed and sent.
BATCH, STORE, STORED, WRITTEN, FILLED, SENT = 512, 6.0, 10.75, 56.0, 35.0, 10.0
#: Columns of such a batch, of 16 rows.
BATCH_COLUMNS = 32
#: The last two where a call has no operations: boxes are unrolled, and 16-bit ones filled by stmatrix.
UNROLLED_FILLED, UNROLLED_SENT = 1.0, 1.0


def route(given: Coordinate, e: Extents) -> Coordinate:
    """Return the coordinate of the ways out; rows that are normalised leave for the workspace."""
    if e.norm:
        return given._replace(values=(DIRECT, STAGED))
    if not stores_copies(e):
        return given
    doc = "1: C leaves through shared memory; 3: from there by tensor copies"
    return given._replace(values=(DIRECT, STAGED, COPIED), doc=doc)


def copies(v: Mapping[str, Numbers]) -> Numbers:
    """Return whether results of a Program leave by copies."""
    return v["epilogue_staged"] == COPIED


def constants(v: Mapping[str, int]) -> dict[str, int | str]:
    """Return the macro bindings of copies."""
    return {"EPILOGUE_STAGED": DIRECT, "STORE_COPIES": 1} if copies(v) else {}


def maps(v: Mapping[str, int], e: Extents) -> tuple[TensorMap, ...]:
    """Return the tensor map of boxes of C."""
    return (TensorMap("c", False, e.bytes_c, BOX_ROWS),) if copies(v) else ()


def writes(workload: Workload, geometry: Geometry) -> bool:
    """Return whether copies can store c: where they never do, its layout is free."""
    sizes, e = operand_extents(geometry), extents(workload)
    return not stores_copies(e) or readable(geometry.c, sizes["c"], False, e.bytes_c)


def slab_columns(block_n: Numbers, persistent: Numbers) -> Numbers:
    """Return the columns of C that pass through a warp's slab at a time."""
    odd = block_n % 16 > 0
    small = np.select([block_n % columns == 0 for columns in SLAB_COLUMNS], SLAB_COLUMNS, 8)
    whole = np.where(block_n > 128, block_n // 2, block_n)
    return np.where((persistent > 0) | (odd & (block_n > 128)), small, whole)


def rest_columns(block_n: Numbers, e: Extents) -> Numbers:
    """Return the columns of a tile after whole boxes."""
    return block_n % (ROW_BYTES // e.bytes_c)


def slab_bytes(v: Mapping[str, Numbers]) -> Numbers:
    """Bytes of the slabs of the staged epilogue, 16 rows of 4-byte words per warp, or of two boxes of copies."""
    columns = slab_columns(v["block_n"], v["persistent"])
    way = v["epilogue_staged"]
    return 4 * v["consumers"] * ((way == STAGED) * 64 * columns + (way == COPIED) * 2 * BOX_BYTES)


def stores_copies(e: Extents) -> bool:
    """Return whether results can leave by tensor copies: they have rows of whole 16 bytes, belong to one group, and are
    finished here."""
    return e.unit["c"] == "n" and e.align["c"] >= 16 and not (e.rows or e.norm)


def store_parts(e: Extents) -> tuple[Part, ...]:
    """Tabulate slabs, and the cost of stores."""

    def store(v: Values) -> dict[Column, np.ndarray]:
        staged, copied, split = v["epilogue_staged"] == STAGED, v["epilogue_staged"] == COPIED, in_workspace(v, e)
        size = np.where(split, e.bytes_acc, e.bytes_c)
        wide = np.where(split, 16, v["vector_c"])
        width = np.where(staged, wide, np.minimum(wide, 2 * size))
        columns = slab_columns(v["block_n"], v["persistent"])
        # Per output: stores of a warp, wavefronts to the L2 (a copy has rows of ROW_BYTES), and instructions.
        each = size / (width * 32.0)
        lines = each * np.where(staged, np.maximum(width / 4, width * 32.0 / (columns * size)), 8.0)
        # The rest of a row is filled in whole batches, and leaves by wide stores.
        rest = rest_columns(v["block_n"], e)
        wide_stores, batched = size / (16.0 * 32.0), -(-rest // BATCH_COLUMNS) * BATCH_COLUMNS
        rest_lines = wide_stores * 8.0
        boxed = (v["block_n"] - rest) / v["block_n"]
        lines = np.where(copied, boxed * size / ROW_BYTES + (1 - boxed) * rest_lines, lines)
        filled, sent = (FILLED, SENT) if e.steps else (UNROLLED_FILLED, UNROLLED_SENT)
        sending = boxed * sent * size / BATCH + (1 - boxed) * wide_stores * STORED
        filling = filled * (boxed + batched / v["block_n"]) / BATCH
        counted = np.where(copied, filling + sending, each * STORED)
        counted = np.where(staged, each * STORE + WRITTEN / BATCH, counted)
        # A slab is written and read once, in words; a box is written by stores of pairs, pairs of bytes half as wide as
        # the banks, and read by a copy, or for the rest by the warp itself.
        boxes = 16 * (np.maximum(size, 2) + (1 - boxed) * size) / 128
        staging = np.where(staged, 16 * 4 * 2 / 128, np.where(copied, boxes, 0.0))
        return {
            column.STORES: counted / STORE,
            column.STORE_LINES: lines * STORE / counted,
            column.STAGING_CLOCKS: v["block_n"] * staging,
        }

    return (
        Part(
            ("block_n", "consumers", "epilogue_staged", "persistent"),
            lambda v: {column.SLAB: slab_bytes(v)},
            fixed=True,
        ),
        Part(("block_n", "epilogue_staged", "vector_c", "split_k", "persistent"), store, fixed=True),
    )
