"""Tabulated cost of contraction_weights_wgmma: weights widened in registers, ring, products (weights_*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import in_workspace, shared_parts, tiles_part
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cost import (
    COPY_ISSUE,
    COPY_LATENCY,
    GROUP_THREADS,
    PRODUCT_ROWS,
    RING,
    STEP_ISSUE,
    TURN,
    entry_registers,
)
from gensor_kernels.families.contraction.wgmma.store import STORE
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Part, Values
from gensor_kernels.families.core.tensor_maps import ROW_BYTES
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

#: Rows per block, which are columns of the transposed product; columns per block, 64 for each tile of a warpgroup.
BLOCKS_M = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256)
BLOCKS_N = (64, 128, 192, 256)
STAGES = (2, 3, 4, 5, 6, 7, 8)
CONSUMERS = (1, 2, 3)
#: Bytes of k of one product, as they are multiplied; k of a chunk of weights where a warpgroup has one tile and more,
#: and of floats.
PRODUCT_BYTES, LONG_CHUNK, SHORT_CHUNK, FLOAT_CHUNK = 32, 64, 32, 16
#: Columns that pass through a warp's slab at a time, and bytes of the slab: 16 rows of them in words.
SLAB_COLUMNS, SLAB_BYTES = 16, 16 * 16 * 4
#: Registers that a multiplying thread needs in addition to sums and weights.
OTHER_REGISTERS = 56
#: Instructions that widen two weights, which one load brings; four of these to a product, and their number; a step's;
#: a group's of a tile without a multiply-add per sum, and for zeros. Counted in the SASS of ten Programs.
WIDEN = {("int8", "float16"): 3.0, ("int8", "bfloat16"): 7.0, ("uint4x2", "float16"): 4.0, ("uint4x2", "bfloat16"): 4.0}
PRODUCT_ISSUE, LOOP_ISSUE, GROUP_ISSUE, ZERO_ISSUE = 4.0, 30.0, 22.0, 12.0
#: Loads of a product of floats, of two each.
FLOAT_LOADS = 2
#: Clocks in which one product takes its weights from registers, however few rows of A there are, and from the first
#: load of a chunk of weights to its first product: estimates, not measured.
LEAST_PRODUCT, CHUNK_LATENCY = 16.0, 100.0
#: Instructions of a piece of 256 outputs on its way into a slab.
WRITTEN, PIECE = 30.0, 256


def tiles(v: Mapping[str, Numbers]) -> Numbers:
    """Return the tiles of 64 columns that a warpgroup multiplies."""
    return v["block_n"] // (PRODUCT_ROWS * v["consumers"])


def chunk(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return k of a chunk, whose weights are widened together."""
    if not e.scaled:
        return np.full_like(tiles(v), FLOAT_CHUNK)
    return np.minimum(np.where(tiles(v) > 1, SHORT_CHUNK, LONG_CHUNK), e.group or LONG_CHUNK)


def product_k(e: Extents) -> int:
    """Return k of one product."""
    return PRODUCT_BYTES // e.element


def ring_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of the shared buffers."""
    return v["stages"] * (v["block_m"] * v["block_k"] * e.bytes_a + v["block_n"] * ROW_BYTES)


def slab_bytes(v: Mapping[str, Numbers]) -> Numbers:
    """Return the bytes of the slabs of all warps that multiply."""
    return 4 * SLAB_BYTES * v["consumers"]


def shared_bytes(ring: Numbers, slab: Numbers) -> Numbers:
    """Return the dynamic shared bytes of a block: mbarriers, the ring, and slabs after it."""
    return RING + ring + slab


def threads(v: Mapping[str, int]) -> int:
    """Return the threads of a block."""
    return GROUP_THREADS * (v["consumers"] + 1)


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_weights_wgmma tabulates."""
    e = extents(workload)
    return (
        *shared_parts(e, arch),
        tiles_part(e.m, "m"),
        tiles_part(e.n, "n"),
        _products(e, arch),
        _entry(arch),
        Part(("block_m", "block_n", "block_k", "stages"), lambda v: {column.RING: ring_bytes(v, e)}, fixed=True),
        Part(("stages",), lambda v: {column.IN_FLIGHT: v["stages"] - 1.0}, fixed=True),
        Part(("block_n", "block_k"), lambda v: _requests(v, e), fixed=True),
        Part(("consumers",), lambda v: {column.SLAB: slab_bytes(v), wgmma.STORING: 4.0 * v["consumers"]}, fixed=True),
        Part(("vector_c", "split_k"), lambda v: _stores(v, e), fixed=True),
    )


def _products(e: Extents, arch: Arch) -> Part:
    """Return a block's iteration, seen as if its warps, requesting warps included, shared the work evenly."""
    depth, zeros = product_k(e), e.scaled - 1
    rate = arch.rate("peak_f16" if e.scaled else "peak_tf32")
    weights = 4 * (1 + WIDEN[e.dtype["b"], e.multiplied]) if e.scaled else FLOAT_LOADS

    def function(v: Values) -> dict[Column, np.ndarray]:
        groups = v["consumers"] + 1
        share = v["consumers"] / groups
        own = np.maximum(tiles(v), 1)
        steps = v["block_k"] // depth
        count = own * steps  # products of a warpgroup
        each = np.maximum(PRODUCT_ROWS * v["block_m"] * depth / rate, LEAST_PRODUCT)  # clocks of one of them
        math = each * count * v["consumers"]
        ends = v["block_k"] / e.group if e.group else 0.0 * math  # groups that end in an iteration
        added = ends * own * (v["block_m"] / 2 + GROUP_ISSUE + zeros * ZERO_ISSUE)
        # A group's sums are waited for and added while the other warpgroups multiply.
        waits = np.maximum(added + ends * TURN - math * (1 - 1 / v["consumers"]), 0)
        chunks = v["block_k"] / chunk(v, e)
        late = chunks * np.maximum(CHUNK_LATENCY - math / chunks, 0)
        # A product reads all rows of A, and each lane four words of weights.
        read = count * v["consumers"] * (v["block_m"] * PRODUCT_BYTES + 16 * ROW_BYTES)
        written = v["block_m"] * v["block_k"] * e.bytes_a + v["block_n"] * ROW_BYTES
        return {
            column.WARPS: 4 * groups,
            column.MATH: math / groups,
            column.MULTIPLIES: count * share,
            column.ISSUE: (LOOP_ISSUE + count * (weights + PRODUCT_ISSUE) + added) * share,
            wgmma.WAVEFRONTS: (read + written) / ROW_BYTES,
            column.CHAIN: np.where(v["consumers"] == 1, TURN, 0.0) + waits + late,
            column.STAGING_ROWS: own * v["block_m"] / 16,
            column.OUTPUTS: own * 16.0 * v["block_m"],
            column.K_STEPS: steps,
            wgmma.SHARE: share,
        }

    return Part(("block_m", "block_n", "block_k", "consumers"), function, fixed=e.is_plain)


def _requests(v: Values, e: Extents) -> dict[Column, np.ndarray]:
    """Tabulate the requests of a step: boxes of A, one of quantised weights or several of floats (weights_ring.cuh)."""
    unit = ROW_BYTES // e.element
    issuing = STEP_ISSUE + COPY_ISSUE * (v["block_k"] / unit + (1 if e.scaled else v["block_n"] / unit))
    return {wgmma.ISSUING: issuing, wgmma.REQUEST: issuing + COPY_LATENCY}


def _entry(arch: Arch) -> Part:
    """Tabulate registers at entry."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        entry = entry_registers(v["consumers"], np.maximum(v["min_blocks"], 1), arch)
        return {wgmma.ENTRY: np.minimum(entry, arch.regs_per_thread)}

    return Part(("consumers", "min_blocks"), function, fixed=True)


def _stores(v: Values, e: Extents) -> dict[Column, np.ndarray]:
    """Tabulate the stores of pieces of 16 rows by 16 columns, which a warp turns in its slab."""
    split = in_workspace(v, e)
    size, width = np.where(split, e.bytes_acc, e.bytes_c), np.where(split, 16, v["vector_c"])
    each = size / (width * 32.0)
    lines = each * np.maximum(width / 4, width * 32.0 / (SLAB_COLUMNS * size))
    counted = each * STORE + WRITTEN / PIECE
    return {
        column.STORES: counted / STORE,
        column.STORE_LINES: lines * STORE / counted,
        column.STAGING_CLOCKS: np.full_like(each, PIECE * 4 * 2 / ROW_BYTES),
    }
