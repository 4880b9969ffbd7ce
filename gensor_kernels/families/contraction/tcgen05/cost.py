"""Tabulated cost of contraction_tcgen05: products, roles of warps, registers (contraction_tcgen05.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.cost import BLOCK_START, Loop, shared_parts
from gensor_kernels.families.contraction.norm import norm_parts
from gensor_kernels.families.contraction.problem import SECTOR, Extents, extents, scales_of_b
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cluster import cluster_parts, of_operands
from gensor_kernels.families.contraction.wgmma.cost import (
    EXPOSED,
    INTEGERS,
    MOST_SCALES,
    PRODUCT_BYTES,
    RING,
    Kind,
    entry_registers,
    multiplying_registers,
    requests,
)
from gensor_kernels.families.contraction.wgmma.implicit_gemm import taps
from gensor_kernels.families.contraction.wgmma.store import slab_bytes, store_parts
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Part, Values
from gensor_kernels.machine.arch import BFLOAT16_PRODUCTS, Arch
from gensor_kernels.machine.roofline import SUBCORES, clustered
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, PACKED, PARTS
from gensor_kernels.operators.types.workload import Workload

from . import cluster
from . import column as own_column

KINDS = {
    "float16": Kind(2, "peak_f16", "UTCHMMA"),
    "bfloat16": Kind(2, "peak_f16", "UTCHMMA"),
    "tf32": Kind(4, "peak_tf32", "UTCHMMA"),
    "int8": Kind(1, "peak_s8", "UTCIMMA", INTEGERS),
    "float8": Kind(1, "peak_f8", "UTCQMMA"),
    "float4": Kind(1, "peak_f4", "UTCOMMA", together=2),
    PARTS: Kind(2, "peak_f16", "UTCHMMA", ("float32",), promoted=True, parts=3, products=BFLOAT16_PRODUCTS),
    "float8 in blocks": Kind(1, "peak_f8", "UTCQMMA", promoted=True),
}
#: Rows of a block, and warps that do not store: two that request and multiply, two that wait or copy scales.
BLOCK_ROWS, OTHER_WARPS = 128, 4
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
#: Scales of a word; entries and bytes of a copy of words into tensor memory, with those that keep banks apart.
WORD, COPIED_ENTRIES, COPY_BYTES = 4, 128, 512 + 16
#: Instructions of a load of scales with its predicate and address, and of all others of a word of a step. Estimates.
SCALE_LOAD, SCALE_WORD = 3.0, 8.0
#: Share of a tile's stores that the next tile's products hide where tensor memory has room for the sums of one.
ALONE = 0.5
#: Clocks in which a warp stores sectors and fences them, in a pair until the whole device sees them. Estimates.
SCALE_TURN, PAIR_TURN = 200.0, 700.0
#: Clocks in which a warp loads and adds a column of a short sum, and in which it waits for the sum. Estimates.
ADDED_COLUMN, ADDED = 2.0, 60.0
#: Instructions of a warp that adds a scaled short sum, without the multiply-adds of columns, and where these choose
#: between two scales: counted in the SASS of six Programs.
SCALING, CHOOSING = 46.0, 30.0
#: Short sums that have room in tensor memory, and the most columns of four.
SHORT_PLACES, NARROW = (2, 4), 128


def kind(workload: Workload) -> Kind | None:
    """Return the row of KINDS of a product's operands, or None if tensor memory has no sums of theirs."""
    e = extents(workload)
    a, b = (e.dtype[operand] for operand in "ab")
    if e.is_formatted and a == b in PACKED:
        return KINDS["float4"]
    if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS:
        return KINDS["float8 in blocks" if extents(workload).in_blocks else "float8"]
    return KINDS.get("tf32" if workload.math == "tf32" else a) if a == b else None


def columns(e: Extents, kind: Kind) -> tuple[int, ...]:
    """Return the columns of C that a block or a pair may have: where B is N-contiguous, whole boxes.

    Tensor memory has four short sums of up to 128 columns.
    """
    if e.unit["b"] == "n":
        return tuple(range(64, 257, 64))
    found = (*range(16, 129, 16), *(() if kind.parts > 1 else range(160, 257, 32)))
    return tuple(n for n in found if not e.in_blocks or scales_of_b(n, e.group) <= MOST_SCALES)


def storing_warps(v: Values | Columns) -> Numbers:
    """Return the warps that store."""
    return 4 * v["consumers"]


def together(e: Extents) -> int:
    """Return the values of k that are one element in memory."""
    return round(1 / min(e.bytes_b, 1))


def scales(e: Extents) -> int:
    """Return ROW_SCALES: those of a product's k of operands in block-scaled formats, or 0."""
    return PRODUCT_BYTES * together(e) // e.group if e.is_formatted else 0


def scale_words(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the words of scales of a row of A, or a column of B, in a step."""
    return v["block_k"] // (WORD * e.group) if e.is_formatted else 0 * v["block_k"]


def scale_entries(v: Mapping[str, Numbers]) -> Numbers:
    """Return the entries whose scales are copied: whole copies."""
    return COPIED_ENTRIES * (1 + -(-v["block_n"] // COPIED_ENTRIES))


def places(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the tiles whose sums have room next to the scales of a step."""
    columns = scale_words(v, e) * scale_entries(v) // 32
    return np.where(e.is_formatted & (2 * v["block_n"] + columns > MEMORY_COLUMNS), 1, 2)


def ring_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of the shared buffers of a block."""
    own = (v["block_m"] + e.matrices * v["block_n"] // cluster.together(v)) * (v["block_k"] // together(e)) * e.bytes_a
    return v["stages"] * own


def scale_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of the shared buffers of scales: two, of a sector of each entry."""
    copies = scale_entries(v) // COPIED_ENTRIES * int(SECTOR) // WORD
    return e.is_formatted * 2 * -(-copies * COPY_BYTES // RING) * RING


def shared_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the dynamic shared bytes of a block."""
    return RING + ring_bytes(v, e) + scale_bytes(v, e) + slab_bytes(v)


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_tcgen05 tabulates."""
    e, own = extents(workload), kind(workload)
    assert own is not None
    return (
        *shared_parts(e, arch, taps(workload)),
        *cluster_parts(e, cluster.along),
        _shared(e, arch),
        _products(own, e, arch),
        _registers(own, e, arch),
        Part(
            ("block_m", "block_n", "block_k", "stages", "cluster"),
            lambda v: {column.RING: ring_bytes(v, e) + scale_bytes(v, e)},
            fixed=True,
        ),
        Part(("stages",), lambda v: {column.IN_FLIGHT: v["stages"] - 1.0}, fixed=True),
        _scales(e, arch),
        requests(own, e),
        *store_parts(e),
        *(norm_parts(e, arch) if e.norm else ()),
    )


def _products(kind: Kind, e: Extents, arch: Arch) -> Part:
    """Return a block's iteration, seen as if all its warps shared the work evenly."""
    rate, depth = arch.rate(kind.rate), PRODUCT_BYTES // kind.element * kind.together

    def function(v: Values) -> dict[Column, np.ndarray]:
        steps, width = v["block_k"] // depth, e.matrices * v["block_n"]
        own = v["block_m"] + width / cluster.together(v)  # rows and columns in this block's shared memory
        count = steps * kind.products
        warps = OTHER_WARPS + storing_warps(v)
        words, entries = scale_words(v, e), scale_entries(v)
        # Scales are loaded word by word, stored in rows of four words, and copied by the issuing thread.
        loads, copies = words * entries / 32, words * entries / COPIED_ENTRIES
        scaling = words * SCALE_WORD + loads * SCALE_LOAD + copies * PRODUCT_ISSUE
        return {
            column.WARPS: warps,
            column.MATH: v["block_m"] * width * v["block_k"] * kind.products / rate / (warps / 4),
            column.MULTIPLIES: count / warps,
            column.ISSUE: (STEP_ISSUE + PRODUCT_ISSUE * count + scaling) / warps,
            # Each product reads its elements of both operands once, and copies write them once.
            wgmma.WAVEFRONTS: (kind.products + kind.parts) * own * steps * PRODUCT_BYTES / 128.0 + 2 * loads,
            own_column.ADDING: adding(e, kind, width, steps, arch),
            own_column.ROOM: np.where(width > NARROW, *SHORT_PLACES) / (1 + (kind.parts > 1) * steps),
            column.OUTPUTS: v["block_m"] * v["block_n"] / storing_warps(v),
            column.K_STEPS: steps,
        }

    # The number of scales of B is one of sizes.
    return Part(("block_m", "block_n", "block_k", "cluster", "consumers"), function, fixed=not e.in_blocks)


def adding(e: Extents, kind: Kind, width: Numbers, steps: Numbers, arch: Arch) -> Numbers:
    """Return the clocks in which storing warps add the short sums of an iteration.

    Of parts, the small products of a step have one short sum, each large product has another.  Of scaled sums, eight
    warps have half of the rows each: two on a sub-core, one of which loads while the other adds.
    """
    if e.in_blocks:  # loads, multiply-adds of two columns, and instructions: what takes longest
        issued = width / 2 + 2 * (SCALING + CHOOSING * (scales_of_b(width, e.group) > 1))
        own = np.maximum(width, issued) + ADDED
        # Scales are loaded a step before; the first one of a sector comes from DRAM.
        return own + np.maximum(arch.dram_latency - own, 0) / (SECTOR // 4)
    return kind.promoted * (1 + steps) * (ADDED_COLUMN * width + ADDED)


def _scales(e: Extents, arch: Arch) -> Part:
    """Tabulate the warps that copy scales, every other sector of each entry, and the tiles that have room."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        words, entries = scale_words(v, e), v["block_m"] + v["block_n"]
        turn = arch.l2_latency + entries + np.where(cluster.together(v) > 1, PAIR_TURN, SCALE_TURN)
        again = (1 - 1 / cluster.along(v, "m")) * v["block_n"] + (1 - 1 / cluster.along(v, "n")) * v["block_m"]
        return {
            own_column.SCALING: words * WORD / SECTOR * turn / 2,
            own_column.SCALES_AGAIN: again * WORD * words,
            own_column.PLACES: places(v, e),
        }

    return Part(("block_m", "block_n", "block_k", "cluster"), function, fixed=True)


def _shared(e: Extents, arch: Arch) -> Part:
    """Tabulate what another pair of the cluster requests, and the multiprocessors on which clusters find room."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        of_a, of_b = of_operands(v, e)
        again = of_a * (1 - 1 / cluster.along(v, "n")) + of_b * (1 / cluster.together(v) - 1 / cluster.along(v, "m"))
        two = v["cluster"] > cluster.PAIR
        return {
            own_column.MULTICAST: again / (of_a + of_b),
            own_column.PLACED: np.where(two, clustered(arch.sms) / arch.sms, 1.0),
        }

    return Part(("block_m", "block_n", "cluster"), function, fixed=e.is_plain)


def _registers(kind: Kind, e: Extents, arch: Arch) -> Part:
    def function(v: Values) -> dict[Column, np.ndarray]:
        entry = np.minimum(entry_registers(v["consumers"], v["min_blocks"], arch), arch.regs_per_thread)
        if e.in_blocks:  # storing warps take over registers of the others
            taken = multiplying_registers(v["consumers"], v["min_blocks"], arch)
            return {wgmma.ENTRY: entry + np.maximum(v["block_n"] // 2 + OTHER_REGISTERS - taken, 0)}
        # Short sums are added to those of both halves of a warp's rows.
        sums = e.matrices * v["block_n"] // 2 * (2 if kind.promoted else 1)
        return {wgmma.ENTRY: np.minimum(sums + OTHER_REGISTERS, entry)}

    return Part(("block_n", "min_blocks", "consumers"), function, fixed=True)


def loop(c: Columns, memory: np.ndarray, heat: float) -> Loop:
    """Return the family's part of the terms."""
    like = np.ones_like(c[column.MATH])
    storing = storing_warps(c) * like
    warps = OTHER_WARPS + storing
    # Of products that run while a tile is stored, tensor memory has room for some; warps must catch up with them.
    caught_up = 1.0 - c[own_column.ADDING] / (c[column.MATH] * warps * (1 / SUBCORES))
    behind = np.clip(np.minimum(c[own_column.ROOM] / c[column.ITERATIONS], caught_up), 0.0, 1.0)
    return replace(
        Loop(
            warps=warps,
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
            staging=8 / storing * (60.0 + storing * c[column.STAGING_CLOCKS]),
            storing=storing,
        ),
        # Blocks walk tiles: requests run ahead, and one tile is stored while the next is multiplied, which takes longer
        # where the same warps add its short sums, and is the half that has left registers where only its sums have
        # room.
        ahead=1.0,
        behind=np.where(c[own_column.ADDING] > 0, behind, np.where(c[own_column.PLACES] == 1, ALONE, 1.0)),
        request=c[wgmma.REQUEST],
        stalls=np.maximum(np.maximum(c[wgmma.ISSUING], c[own_column.ADDING]), c[own_column.SCALING]),
        share=1 / warps,
    )
