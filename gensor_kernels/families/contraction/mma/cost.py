"""Cost of contraction_mma: tabulated parts (fragments, copies, ring, stores: mma_*.cuh), and the main loop.

The main loop and its registers depend on too many coordinates to be tabulated: `loop` and `registers`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction import column, stream_k
from gensor_kernels.families.contraction import prologue as contraction_prologue
from gensor_kernels.families.contraction.cost import (
    Loop,
    in_workspace,
    register_limit,
    shared_parts,
    tiles_part,
    window_issue,
    window_registers,
)
from gensor_kernels.families.contraction.norm import norm_parts
from gensor_kernels.families.contraction.problem import (
    FLOAT,
    MASKED,
    SPREAD_ISSUE,
    Extents,
    bytes_in_memory,
    bytes_in_shared,
    copy_lines,
    entries,
    extents,
    is_transposed,
    matrices,
    power_of_two_in,
    scale_bytes_in_shared,
    scale_parts,
    scales_of_b,
    spread,
    word_costs,
)
from gensor_kernels.families.contraction.prologue import inline_part
from gensor_kernels.families.core.banks import wavefronts
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from . import column as mma
from . import complex as mma_complex
from . import split_float as mma_split_float
from .instructions import MMA_LATENCY, Code, as_stored, heat, instructions, kind, waits

#: Columns of a warp's iteration, by its tile, step and instruction.
Multiplied = Callable[[Values], dict[Column, np.ndarray]]
BLOCKS = tuple(range(16, 257, 16))
#: Bytes of k per main-loop step.
STEP_BYTES = (32, 64, 128, 256)
WARP_TILES_M = (16, 32, 48, 64, 80, 96, 128)
WARP_TILES_N = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128)


def ring_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of the shared buffers, of numbers or arrays."""
    copy = v["copy"]
    a, b = (bytes_in_shared(e, x, copy) + scale_bytes_in_shared(e, x) for x in "ab")
    scales = FLOAT * (v["block_m"] + scales_of_b(v["block_n"], e.group)) if e.in_blocks else 0
    return v["stages"] * (v["block_k"] * (v["block_m"] * a + e.matrices * v["block_n"] * b) + scales)


def words(e: Extents) -> int:
    """Return the registers of an accumulator; sums of slices have a second one of integers (rewrite/ozaki.py)."""
    return e.bytes_acc // 4 + (e.multiplied == "int8" and e.bytes_acc == 8)


def slab_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of a warp's slab in the staged epilogue: 16 rows of accumulators."""
    return (v["epilogue_staged"] == 1) * v["warp_n"] * 16 * e.bytes_acc


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_mma tabulates."""
    return parts_with(workload, arch, None)


def parts_with(workload: Workload, arch: Arch, own: Multiplied | None) -> tuple[Part, ...]:
    """Return the same with ``own`` columns for the products of a main loop that differs."""
    e = extents(workload)

    def ring(v: Values) -> dict[Column, np.ndarray]:
        return {column.RING: ring_bytes({"copy": 1, **v}, e)}

    def copy(v: Values) -> dict[Column, np.ndarray]:
        through = v["copy"] == 0
        return {
            # Registers per copy: the piece itself, or its address and predicate (fitted too).
            mma.HOLD["a"]: np.where(through, 1.6 * np.maximum(v["vector_a"] / 4, 1), 1.6),
            mma.HOLD["b"]: np.where(through, 1.6 * np.maximum(v["vector_b"] / 4, 1), 1.6),
            column.IN_FLIGHT: np.where(through, 1, v["stages"] - 1),
            column.EXPOSED: np.where(through, 0.33, 0.21),
            column.COPY_ISSUE: np.where(through, 4.2, 4.6),
        }

    def store(v: Values) -> dict[Column, np.ndarray]:
        staged, split = v["epilogue_staged"] >= 1, in_workspace(v, e)
        size = np.where(split, e.bytes_acc, e.bytes_c)
        wide = np.where(split, 16, v["vector_c"])
        width = np.where(staged, wide, np.minimum(wide, 2 * size))
        row = v["warp_n"] * size
        return {
            column.STORES: size / (width * 32.0),
            column.STORE_LINES: np.where(staged, np.maximum(width / 4, width * 32.0 / row), 8.0),
            column.SLAB: slab_bytes(v, e),
            # A slab is written and read once, in words.
            column.STAGING_CLOCKS: np.where(staged, v["warp_n"] * (16 * e.bytes_acc * 2 / 128), 0.0),
        }

    def rows(v: Values) -> dict[Column, np.ndarray]:
        return {column.STAGING_ROWS: (v["epilogue_staged"] == 1) * v["warp_m"] / 16.0}

    return (
        *shared_parts(e, arch),
        *(norm_parts(e, arch) if e.norm else ()),
        *(_warps("m"), tiles_part(e.m, "m"), _warps("n"), tiles_part(e.n, "n")),
        mma_complex.multiply(workload, arch) if e.is_complex else _multiply(workload, arch, own),
        _copies(e, "a", arch),
        _copies(e, "b", arch),
        _read(workload, "a", arch),
        _read(workload, "b", arch),
        Part(("stages", "block_k", "block_m", "block_n", *(("copy",) if e.is_widened else ())), ring, fixed=True),
        Part(("copy", "stages", "vector_a", "vector_b"), copy, fixed=True),
        Part(("warp_n", "epilogue_staged", "vector_c", "split_k"), store, fixed=True),
        Part(("warp_m", "epilogue_staged"), rows, fixed=True),
        *scale_parts(e),
        *((inline_part(e, arch),) if e.prologue else ()),
    )


def _warps(axis: str) -> Part:
    """Return the warps of a block along an axis."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        block, warp = v[f"block_{axis}"], v[f"warp_{axis}"]
        count = np.maximum(block // warp, 1)
        return {{"m": column.DOWN, "n": column.ACROSS}[axis]: count, mma.POWER[axis]: power_of_two_in(count)}

    return Part((f"block_{axis}", f"warp_{axis}"), function, fixed=True)


def _multiply(workload: Workload, arch: Arch, own: Multiplied | None) -> Part:
    """Math of a warp's iteration: 16 x 8 outputs x 32 bytes of k at a time."""
    choices = instructions(kind(workload) or "", arch)
    e = extents(workload)
    element, narrow, matrices = e.element, min(e.bytes_a, e.bytes_b), e.matrices
    counts = {choice.code: choice.needed for choice in choices}
    rates = {choice.code: arch.rate(choice.rate) for choice in choices}
    in_parts = choices[0].products > 1
    further = {1: 10, 4: 8}.get(element, 0) + 40 * (words(e) == 3)

    def function(v: Values) -> dict[Column, np.ndarray]:
        steps = v["block_k"] * element / 32
        count = np.array([counts[int(code)] for code in v["instruction"]])
        clocks = 32 / element * 4 / np.array([rates[int(code)] for code in v["instruction"]]) * choices[0].products
        short, stored = v["instruction"] == Code.F8_K32, as_stored(v["instruction"])
        # Fragments along k that one instruction takes; narrow elements as stored are more in as many bytes.
        of_k = np.where(stored, 1, 1 / np.minimum(count, 1))
        reads = v["block_k"] * np.where(v["copy"] == 1, narrow, element) / 32 / of_k
        outputs = v["warp_m"] * v["warp_n"]
        sums = outputs * matrices
        held = sums * words(e) * (1 + short)
        # Small instructions do not reach the full rate on parts that have the large one.
        math = sums * steps * clocks * np.where(count <= max(1, choices[0].needed), 1, 2)
        latency = np.maximum(steps * MMA_LATENCY * np.sqrt(count) - math, 0)
        promoting = short * sums / 32 * 2 * np.maximum(v["block_k"] / 128, 1)  # additions, and zeros for the next sums
        rows = {"a": v["warp_m"], "b": matrices * v["warp_n"]}
        fragments = sum(rows[x] * (1 + spread(e, x, v["copy"])) for x in "ab") / 4 * of_k
        widened = e.is_widened * (v["copy"] == 1) * ~stored * (v["warp_n"] / 4 + 4)
        outputs_of = waits(latency, reads, v["copy"]) | {
            column.MATH: math,
            column.MULTIPLIES: sums * steps / 128 * count,
            column.STEP_ISSUE: reads + 9 + promoting,
            # DOUBLE_FRAGMENTS of mma_pipeline.cuh; the rest is fitted to the allocations of NVRTC 12.9.
            mma.DOUBLE_NEEDS: held / 32 + 2 * fragments + 48,
            column.BASE_REGISTERS: held / 32 + 0.5 * fragments + 36 + further + widened,
            mma.SECOND_FRAGMENTS: 0.7 * fragments,
            column.OUTPUTS: outputs,
            column.K_STEPS: steps,
        }
        if words(e) == 2:  # the fragments of a whole step are read ahead, and more where there is room
            # Fitted to 26 Programs on sm_90: median error 6 registers.
            ahead = np.where(v["instruction"] == Code.F64_K4, 1.7, 0.9) * fragments / of_k * steps
            room = np.maximum(held / 32 + fragments + 36, 225)
            outputs_of |= {
                column.BASE_REGISTERS: np.minimum(held / 32 + ahead + 36, room),
                mma.SECOND_FRAGMENTS: 0 * held,
            }
        return outputs_of | (_in_parts(v, arch, sums) if in_parts else own(v) if own else {})

    return Part(("warp_m", "warp_n", "block_k", "instruction", "copy"), function, fixed=True)


def _in_parts(v: Values, arch: Arch, sums: np.ndarray) -> dict[Column, np.ndarray]:
    """Return the columns of float32 products in bfloat16 parts: they have one set of fragments, of 64 bytes of k."""
    return {
        **mma_split_float.costs(v, arch),
        column.BASE_REGISTERS: mma_split_float.registers(v),
        mma.DOUBLE_NEEDS: np.full_like(sums, 1e6, dtype=np.float64),
    }


def _copies(e: Extents, operand: str, arch: Arch) -> Part:
    """Pieces of a step's tile of one operand (OperandTile in mma_tiles.cuh), and the cost of widening a piece."""
    cost = word_costs(e, operand, arch)
    axis = {"a": "m", "b": "n"}[operand]
    along_k = is_transposed(e, operand)
    element = bytes_in_memory(e, operand)

    def function(v: Values) -> dict[Column, np.ndarray]:
        block, width = v[f"block_{axis}"], v[f"vector_{operand}"]
        pieces = ((v["block_k"] if along_k else block) * element).astype(np.int64) // width
        outputs = {
            mma.ROWS[operand]: block if along_k else v["block_k"],
            mma.PIECES[operand]: pieces,
            mma.PIECES_POWER[operand]: power_of_two_in(pieces),
            mma.PIECE_CLOCKS[operand]: np.maximum(width / 4, 1) + 1,
            mma.PIECE_LINES[operand]: width * 32 / 128,
        }
        if cost:
            # Widened elements are stored in 16-byte chunks; chunks of every other lane are in the same banks.
            words = bytes_in_shared(e, operand, v["copy"]) / element * width / 4
            outputs[mma.PIECE_CLOCKS[operand]] = np.maximum(words * np.where(words > 4, 2, 1), 1) + 1
            own = (v["copy"] == 0) * np.maximum(width / 4, 1)
            outputs[mma.PIECE_ISSUE[operand]] = own * cost[0] + np.maximum(words / 4 - 1, 0)
            outputs[mma.PIECE_WIDENING[operand]] = own * cost[1]
        return outputs

    names = (f"block_{axis}", "block_k", f"vector_{operand}")
    return Part((*names, "copy") if cost else names, function, fixed=True)


@lru_cache(maxsize=512)
def unswizzled_degree(row_bytes: int) -> int:
    """Return the wavefronts to read 8 rows x 16 bytes of an unswizzled tile; 1 is without conflicts."""
    return wavefronts([row * row_bytes for row in range(8)], 16)


@lru_cache(maxsize=512)
def plain_degree(row_bytes: int) -> int:
    """Wavefronts to read 4 rows x 8 adjacent words of an unswizzled tile: one register of 32-bit fragments."""
    return wavefronts([lane % 4 * row_bytes + lane // 4 * 4 for lane in range(32)], 4)


@lru_cache(maxsize=512)
def doubles_degree(row_bytes: int) -> float:
    """Return the wavefronts to read 8 rows x 4 adjacent doubles, or 4 rows x 8; half a warp reads 4 x 4 at once."""
    return wavefronts([lane // 4 * row_bytes + lane % 4 * 8 for lane in range(32)], 8) / 2


@lru_cache(maxsize=512)
def complex_degree(row_bytes: int, along_k: bool) -> float:
    """Wavefronts to read 16 bytes per lane, 8 rows x 4 or 4 rows x 8; a quarter of a warp reads 2 x 4 or 4 x 2."""
    lanes = ((lane // 4, lane % 4) for lane in range(32))
    places = [g * row_bytes + t * 16 if along_k else t * row_bytes + g * 16 for g, t in lanes]
    return wavefronts(places, 16) / 4


def _read(workload: Workload, operand: str, arch: Arch) -> Part:
    """Return the instructions and shared clocks of a warp to read one operand's fragments of an iteration."""
    axis = {"a": "m", "b": "n"}[operand]
    e = extents(workload)
    cost = word_costs(e, operand, arch)
    element = e.element
    matrices = e.matrices if operand == "b" else 1
    along_k = is_transposed(e, operand)
    rounding = 8 if workload.math == "tf32" else 0  # cvt.rna.tf32 of every register, and moves
    by_matrix = (along_k or element == 2) and element < 8
    rows_of: Callable[[int], float] = unswizzled_degree if by_matrix else plain_degree
    if element >= 8:
        rows_of = doubles_degree if element == 8 else functools.partial(complex_degree, along_k=along_k)

    def function(v: Values) -> dict[Column, np.ndarray]:
        bytes_k = v["block_k"] * bytes_in_shared(e, operand, v.get("copy", 1))
        count = matrices * v[f"warp_{axis}"] / 16 * ((bytes_k if along_k else v["block_k"] * element) / 32)
        row = bytes_k if along_k else v[f"block_{axis}"] * element
        plain = np.array([rows_of(int(length)) for length in row])
        degree = np.where(v["swizzle"] == 1, 1, plain)
        if by_matrix:
            reads = count * (1 + rounding + SPREAD_ISSUE * spread(e, operand, v.get("copy", 1)))
            outputs = {column.READ_ISSUE[operand]: reads, column.READ_CLOCKS[operand]: count * 4 * degree}
            if cost:
                widened = (v["copy"] == 1) & ~as_stored(v.get("instruction", np.zeros(1)))
                words = widened * matrices * v[f"warp_{axis}"] * v["block_k"] * bytes_in_memory(e, operand) / 128
                outputs[column.READ_ISSUE[operand]] = reads + words * cost[0]
                outputs[mma.READ_WIDENING[operand]] = words * cost[1]
            return outputs
        if element >= 4:
            return {
                column.READ_ISSUE[operand]: count * (16 // element + rounding),
                column.READ_CLOCKS[operand]: count * 4 * degree,
            }
        # Bytes across rows: sixteen byte loads and their packing.
        degree = np.where((v["swizzle"] == 1) & (row % 64 == 0), 1, 2)
        return {column.READ_ISSUE[operand]: count * (16 + 12), column.READ_CLOCKS[operand]: count * 16 * degree}

    names = (f"warp_{axis}", "block_k", *(() if along_k else (f"block_{axis}",)), "swizzle")
    names = (*names, "copy") if e.is_widened else names
    narrow = kind(workload) in ("f8", "mxf4")
    return Part((*names, "instruction") if narrow else names, function, fixed=True)


def thread_copies(c: Columns, operand: str, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (LANES, PASSES, COLUMNS) of an operand's OperandTile."""
    # The largest power of two in (pieces | threads) is the smaller of the two's.
    lanes = np.minimum(c[mma.PIECES_POWER[operand]], c[mma.POWER["m"]] * c[mma.POWER["n"]] * 32.0)
    passes = np.ceil(c[mma.ROWS[operand]] * lanes / (warps * 32.0))
    return lanes, passes, c[mma.PIECES[operand]] / lanes


def registers(c: Columns, workload: Workload, arch: Arch, of_stream: float) -> np.ndarray:
    """Accumulators, the fragments of a k step, pieces staged in registers, addresses, and a stream's registers."""
    warps = np.maximum(c[column.DOWN] * c[column.ACROSS], 1.0)
    held: Numbers = 0.0
    e = extents(workload)
    for operand in ("a", "b"):
        _, passes, pieces = thread_copies(c, operand, warps)
        held = _holding(held, c, e, operand, passes, pieces)
    held = held + c.get(column.SCALE_REGISTERS, 0.0) + stream_k.registers(c, of_stream)
    return c[column.BASE_REGISTERS] + _has_two_sets(c, warps, arch) * c[mma.SECOND_FRAGMENTS] + held


def _holding(held: Numbers, c: Columns, e: Extents, operand: str, passes: np.ndarray, pieces: np.ndarray) -> Numbers:
    """Return ``held`` registers and the registers of an operand's copies."""
    held = held + passes * pieces * matrices(e, operand) * c[mma.HOLD[operand]]
    if operand == e.window:
        held = held + window_registers(*entries(e, operand, passes, pieces), c[MASKED])
    if operand == e.prepared:
        held = held + contraction_prologue.registers(c, e, *entries(e, operand, passes, pieces))
    return held


def _has_two_sets(c: Columns, warps: np.ndarray, arch: Arch) -> np.ndarray:
    """Return whether the kernel keeps two sets of fragments: DOUBLE_FRAGMENTS of mma_pipeline.cuh."""
    return c[mma.DOUBLE_NEEDS] <= register_limit(c, warps, arch)


def loop(c: Columns, workload: Workload, arch: Arch, memory: np.ndarray, of_stream: float) -> Loop:
    """Return the cost of an iteration, and of the end of a block of ``memory`` shared bytes."""
    e, warps = extents(workload), c[column.DOWN] * c[column.ACROSS]
    doubled = _has_two_sets(c, warps, arch)
    issue, clocks, widening = c[column.STEP_ISSUE], 0.0, np.zeros_like(warps)
    held = stream_k.registers(c, of_stream)
    for operand in ("a", "b"):
        lanes, passes, pieces = thread_copies(c, operand, warps)
        count = passes * pieces * matrices(e, operand)
        # Per piece and per row; fitted, like the other instruction counts, to the SASS of 220 Programs.
        issue = issue + c[column.READ_ISSUE[operand]] + count * c[column.COPY_ISSUE] + passes * 2.4
        if word_costs(e, operand, arch):
            issue = issue + count * c[mma.PIECE_ISSUE[operand]]
            widening = widening + c[mma.READ_WIDENING[operand]] + count * c[mma.PIECE_WIDENING[operand]]
        # A copy takes the load/store pipe for itself, its words, and the lines it is scattered over.
        lines = copy_lines(c, e, workload.size, operand, lanes)
        scattered = np.maximum(lines, c[mma.PIECE_LINES[operand]]) + c[mma.PIECE_CLOCKS[operand]]
        clocks = clocks + c[column.READ_CLOCKS[operand]] + count * scattered * 0.5
        if operand == e.window:
            issue = issue + window_issue(*entries(e, operand, passes, pieces), c[MASKED])
        if operand == e.prepared:
            issue = issue + contraction_prologue.issue(c, e, *entries(e, operand, passes, pieces))
        held = _holding(held, c, e, operand, passes, pieces)
    more = c.get(column.SCALE_MULTIPLIES, np.zeros_like(warps))
    return Loop(
        warps=warps,
        math=np.maximum(c[column.MATH] * (1 + more / c[column.MULTIPLIES]), widening + c.get(mma.PARTS_CLOCKS, 0.0)),
        multiplies=c[column.MULTIPLIES] + more,
        issue=issue + c.get(column.SCALE_ISSUE, 0.0) + c.get(mma.PARTS_ISSUE, 0.0),
        wavefronts=clocks * warps,
        chain=c[column.CHAIN] - doubled * c[mma.CHAIN_SAVED],
        in_flight=c[column.IN_FLIGHT],
        exposed=c[column.EXPOSED],
        heat=heat(workload, arch),
        registers=c[column.BASE_REGISTERS]
        + doubled * c[mma.SECOND_FRAGMENTS]
        + held
        + c.get(column.SCALE_REGISTERS, 0.0),
        memory=memory,
        outputs=c[column.OUTPUTS],
        touched=c[column.K_STEPS],
        staging=c[column.STAGING_ROWS] * (60.0 + warps * c[column.STAGING_CLOCKS])
        + (c[column.ROW_CLOCKS] / warps if e.norm else 0.0),
    )
