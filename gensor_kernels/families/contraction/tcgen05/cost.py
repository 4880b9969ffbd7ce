"""Tabulated cost of contraction_tcgen05: products, roles of warps, registers (contraction_tcgen05.cu)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import BLOCK_START, Loop, shared_parts
from gensor_kernels.families.contraction.norm import norm_parts
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.wgmma import cluster
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cost import (
    EXPOSED,
    INTEGERS,
    PRODUCT_BYTES,
    RING,
    Kind,
    requests,
)
from gensor_kernels.families.contraction.wgmma.implicit_gemm import taps
from gensor_kernels.families.contraction.wgmma.store import slab_bytes, store_parts
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Part, Values
from gensor_kernels.machine.arch import BFLOAT16_PRODUCTS, Arch
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, PARTS
from gensor_kernels.operators.types.workload import Workload

from . import column as own_column

KINDS = {
    "float16": Kind(2, "peak_f16", "UTCHMMA"),
    "bfloat16": Kind(2, "peak_f16", "UTCHMMA"),
    "tf32": Kind(4, "peak_tf32", "UTCHMMA"),
    "int8": Kind(1, "peak_s8", "UTCIMMA", INTEGERS),
    "float8": Kind(1, "peak_f8", "UTCQMMA"),
    PARTS: Kind(2, "peak_f16", "UTCHMMA", ("float32",), promoted=True, parts=3, products=BFLOAT16_PRODUCTS),
}
#: Rows of a block, and warps: two that request and multiply, two that wait, four that store.
BLOCK_ROWS, WARPS = 128, 8
#: Columns of tensor memory of a multiprocessor.
MEMORY_COLUMNS = 512
#: Columns of a product whose results can leave through slabs: with more, a thread has too few registers.
SLAB_COLUMNS = 224
#: Clocks in which a block allocates tensor memory and makes its mbarriers. An estimate.
MEMORY_START = 800.0
#: Instructions of the issuing thread for a step, and for a product: counted in the SASS of two Programs.
STEP_ISSUE, PRODUCT_ISSUE = 30.0, 5.0
#: Registers of a storing thread in addition to its sums.
OTHER_REGISTERS = 92
STORING_WARPS = 4.0
#: Clocks in which a warp loads and adds a column of a short sum, and in which it waits for the sum. Estimates.
ADDED_COLUMN, ADDED = 2.0, 60.0


def kind(workload: Workload) -> Kind | None:
    """Return the row of KINDS of a product's operands, or None if tensor memory has no sums of theirs."""
    a, b = (extents(workload).dtype[operand] for operand in "ab")
    if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS:
        return KINDS["float8"]
    return KINDS.get("tf32" if workload.math == "tf32" else a) if a == b else None


def columns(e: Extents, kind: Kind) -> tuple[int, ...]:
    """Return the columns of C that a block or a pair may have: where B is N-contiguous, whole boxes.

    Tensor memory has four short sums of up to 128 columns.
    """
    if e.unit["b"] == "n":
        return tuple(range(64, 257, 64))
    return (*range(16, 129, 16), *(() if kind.promoted else range(160, 257, 32)))


def blocks(v: Values) -> Numbers:
    """Return the blocks that multiply as one: 2 or 1."""
    return cluster.pair(v, "m")


def ring_bytes(v: Values, e: Extents) -> Numbers:
    """Return the bytes of the shared buffers of a block."""
    return v["stages"] * (v["block_m"] + e.matrices * v["block_n"] // blocks(v)) * v["block_k"] * e.bytes_a


def shared_bytes(v: Values, e: Extents) -> Numbers:
    """Return the dynamic shared bytes of a block."""
    return RING + ring_bytes(v, e) + slab_bytes(v)


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_tcgen05 tabulates."""
    e, own = extents(workload), kind(workload)
    assert own is not None
    return (
        *shared_parts(e, arch, taps(workload)),
        *cluster.cluster_parts(e),
        _products(own, e, arch),
        _registers(own, e, arch),
        Part(
            ("block_m", "block_n", "block_k", "stages", "cluster"),
            lambda v: {column.RING: ring_bytes(v, e)},
            fixed=True,
        ),
        Part(("stages",), lambda v: {column.IN_FLIGHT: v["stages"] - 1.0}, fixed=True),
        requests(own, e),
        *store_parts(e),
        *(norm_parts(e, arch) if e.norm else ()),
    )


def _products(kind: Kind, e: Extents, arch: Arch) -> Part:
    """Return a block's iteration, seen as if all its warps shared the work evenly."""
    rate, depth = arch.rate(kind.rate), PRODUCT_BYTES // kind.element

    def function(v: Values) -> dict[Column, np.ndarray]:
        steps, width = v["block_k"] // depth, e.matrices * v["block_n"]
        own = v["block_m"] + width / blocks(v)  # rows and columns in this block's shared memory
        count = steps * kind.products
        return {
            column.WARPS: np.full_like(steps, WARPS),
            column.MATH: v["block_m"] * width * v["block_k"] * kind.products / rate / (WARPS / 4),
            column.MULTIPLIES: count / WARPS,
            column.ISSUE: (STEP_ISSUE + PRODUCT_ISSUE * count) / WARPS,
            # Each product reads its elements of both operands once, and copies write them once.
            wgmma.WAVEFRONTS: (kind.products + kind.parts) * own * v["block_k"] * kind.element / 128.0,
            # The small products of a step have one short sum, each large product has another.
            own_column.ADDING: kind.promoted * (1 + steps) * (ADDED_COLUMN * width + ADDED),
            column.OUTPUTS: v["block_m"] * v["block_n"] / STORING_WARPS,
            column.K_STEPS: steps,
        }

    return Part(("block_m", "block_n", "block_k", "cluster"), function, fixed=True)


def _registers(kind: Kind, e: Extents, arch: Arch) -> Part:
    def function(v: Values) -> dict[Column, np.ndarray]:
        # Short sums are added to those of both halves of a warp's rows.
        sums = e.matrices * v["block_n"] // 2 * (2 if kind.promoted else 1)
        limit = np.minimum(arch.regs_per_sm // (32 * WARPS * v["min_blocks"]) // 8 * 8, arch.regs_per_thread)
        return {wgmma.ENTRY: np.minimum(sums + OTHER_REGISTERS, limit)}

    return Part(("block_n", "min_blocks"), function, fixed=True)


def loop(c: Columns, memory: np.ndarray, heat: float) -> Loop:
    """Return the family's part of the terms."""
    like = np.ones_like(c[column.MATH])
    return replace(
        Loop(
            warps=WARPS * like,
            math=c[column.MATH],
            multiplies=c[column.MULTIPLIES],
            issue=c[column.ISSUE],
            wavefronts=c[wgmma.WAVEFRONTS],
            chain=0 * like,
            in_flight=c[column.IN_FLIGHT],
            exposed=EXPOSED * like,
            heat=heat,
            start=BLOCK_START + MEMORY_START,
            registers=c[wgmma.ENTRY],
            memory=memory,
            outputs=c[column.OUTPUTS],
            touched=c[column.K_STEPS],
            staging=2 * (60.0 + STORING_WARPS * c[column.STAGING_CLOCKS]),
            storing=STORING_WARPS * like,
        ),
        # Blocks walk tiles: requests run ahead, and one tile is stored while the next is multiplied, unless the same
        # warps add its short sums.
        ahead=1.0,
        behind=1.0 * (c[own_column.ADDING] == 0),
        request=c[wgmma.REQUEST],
        stalls=np.maximum(c[wgmma.ISSUING], c[own_column.ADDING]),
        share=1 / WARPS,
    )
