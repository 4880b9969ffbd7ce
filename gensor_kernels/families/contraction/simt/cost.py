"""Tabulated cost of contraction_simt: thread tiles, fragments, loads, buffers, stores (simt_*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.complex import RATES, planes, sum_bytes, word_bytes
from gensor_kernels.families.contraction.cost import in_workspace, shared_parts, tiles_part
from gensor_kernels.families.contraction.norm import norm_parts
from gensor_kernels.families.contraction.problem import (
    ELEMENT_ISSUE,
    Extents,
    bytes_in_memory,
    copy_lines,
    extents,
    is_transposed,
    matrices,
    power_of_two_in,
)
from gensor_kernels.families.contraction.prologue import inline_part
from gensor_kernels.families.core.banks import wavefronts
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Part, Values
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from . import column as simt

BLOCKS = (1, 2, 4, 8, *range(16, 257, 16))
STEPS = (4, 8, 16, 32, 64)
THREAD_TILES = (1, 2, 4, 6, 8, 12, 16)
VTHREADS = (1, 2, 4, 8)
LANES = (1, 2, 4, 8, 16, 32)


def ring_bytes(v: Mapping[str, Numbers], e: Extents) -> Numbers:
    """Return the bytes of the shared buffers, of numbers or arrays."""
    word = word_bytes(v["form"], e.bytes_acc)
    total = 0
    for operand, extent in (("a", v["block_m"]), ("b", v["block_n"])):
        row = extent + 4 * v["pad"] if is_transposed(e, operand) else extent
        total = total + matrices(e, operand) * ((v["block_k"] * row * word + 127) // 128 * 128)
    return v["stages"] * planes(v["form"]) * total


def store_rows(tall: Numbers, wide: Numbers, word: int) -> Numbers:
    """Return the rows of a thread whose epilogue runs at once: STORE_ROWS of simt_store.cuh."""
    room = np.where(tall * wide * word >= 256, 8, 16) // (2 if word > 8 else 1)
    four = (tall % 4 == 0) & (4 * wide <= room)
    two = (tall % 2 == 0) & (2 * wide <= room)
    return np.where(four, 4, np.where(two, 2, 1))


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Return everything that contraction_simt tabulates."""
    e = extents(workload)

    def ring(v: Values) -> dict[Column, np.ndarray]:
        return {column.RING: ring_bytes(v, e)}

    def stages(v: Values) -> dict[Column, np.ndarray]:
        # With one buffer, loads, stores and math of a block take turns.
        single = v["stages"] == 1
        return {column.CHAIN: np.where(single, 130, 70), column.EXPOSED: np.where(single, 0.15, 0.08)}

    return (
        *shared_parts(e, arch),
        *(norm_parts(e, arch) if e.norm else ()),
        *(_threads("m"), tiles_part(e.m, "m"), _threads("n"), tiles_part(e.n, "n")),
        _multiply(workload, arch),
        _fragment(e, "a"),
        _fragment(e, "b"),
        _loads(e, "a"),
        _loads(e, "b"),
        Part(("stages", "block_k", "block_m", "block_n", "pad", "form"), ring, fixed=True),
        Part(("stages",), stages, fixed=True),
        _stores(e),
        *((inline_part(e, arch),) if e.prologue else ()),
    )


def _threads(axis: str) -> Part:
    """Return the threads of a block along an axis."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        block, thread = v[f"block_{axis}"], v[f"thread_{axis}"]
        count = {"m": column.DOWN, "n": column.ACROSS}[axis]
        return {count: np.maximum(block // thread, 1), simt.EXTENT[axis]: block}

    return Part((f"block_{axis}", f"thread_{axis}"), function, fixed=True)


def _multiply(workload: Workload, arch: Arch) -> Part:
    """Multiply-adds of a warp's iteration: one instruction is 32 of real numbers."""
    e = extents(workload)
    word, both = e.bytes_acc, e.matrices
    clocks = 32 * 4 / arch.rate(RATES[workload.accumulator])

    def function(v: Values) -> dict[Column, np.ndarray]:
        tall, wide, held = v["thread_m"], v["thread_n"], sum_bytes(v["form"], word)
        multiplies = tall * wide * v["block_k"] * v["form"] * both
        return {
            column.MATH: multiplies * clocks,
            column.MULTIPLIES: multiplies,
            column.STEP_ISSUE: np.full(len(tall), 20),
            # Fitted to the allocations of NVRTC 12.9 for 130 Programs of every type: median error 10 registers.
            column.BASE_REGISTERS: (1.2 * tall * wide * both + 0.65 * (tall + wide * both)) * held / 4 + 39,
            column.OUTPUTS: tall * wide * 32,
            simt.ROW_WORDS: store_rows(tall, wide, word) * word,
            simt.ROW_ROUNDS: tall / store_rows(tall, wide, word),
            simt.STEPS: v["block_k"],
        }

    return Part(("thread_m", "thread_n", "block_k", "form"), function, fixed=True)


def _stores(e: Extents) -> Part:
    """Tabulate the stores of outputs: straight from registers, or through slabs that make whole rows of them."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        split = in_workspace(v, e)
        staged = (v["epilogue_staged"] == 1) & ~split
        group = np.maximum(v["thread_n"] // v["vthread_n"], 1)
        size = np.where(split, e.bytes_acc, e.bytes_c)
        most = np.where(split, 16, v["vector_c"])
        width = np.where(staged, most, np.minimum(most, power_of_two_in(group) * size))
        # Direct: every row of lanes writes elsewhere, in pieces a group apart.
        pieces = v["lanes_m"] * np.maximum(32 / v["lanes_m"] * group * size / 128, 1)
        return {
            column.STORES: size / (width * 32.0),
            # Slabs are conflict-free where a row of lanes fills the banks.
            simt.SLAB_WORDS: np.where(v["lanes_m"] * 128 <= 32 * group * e.bytes_acc, 1, 2) * staged,
            column.STORE_LINES: np.where(staged, np.maximum(width / 4, 1), np.maximum(pieces, width / 4)),
            simt.STAGED: staged,
        }

    return Part(("thread_n", "vthread_n", "lanes_m", "vector_c", "epilogue_staged", "split_k"), function, fixed=True)


@lru_cache(maxsize=512)
def fragment_clocks(axis: str, group: int, lanes: int, word: int) -> int:
    """Wavefronts to read one group of adjacent entries: along M lanes of a row are neighbours, along N they repeat."""
    lane = np.arange(32)
    place = lane // (32 // lanes) if axis == "m" else lane % lanes
    words = min(group & -group, max(1, 16 // word))
    return sum(wavefronts((place * group + entry) * word, words * word) for entry in range(0, group, words))


def _fragment(e: Extents, operand: str) -> Part:
    """Shared loads of a warp for one k of an operand's fragment, from every plane of the tile."""
    axis = {"a": "m", "b": "n"}[operand]

    def function(v: Values) -> dict[Column, np.ndarray]:
        thread, groups = v[f"thread_{axis}"], v[f"vthread_{axis}"]
        lanes = v["lanes_m"] if axis == "m" else 32 // v["lanes_m"]
        group, word = np.maximum(thread // groups, 1), word_bytes(v["form"], e.bytes_acc)
        keys = zip(group.tolist(), lanes.tolist(), word.tolist(), strict=True)
        clocks = np.array([fragment_clocks(axis, *key) for key in keys])
        reads = thread / np.minimum(power_of_two_in(group), np.maximum(1, 16 // word))
        tiles = planes(v["form"]) * matrices(e, operand)
        return {column.READ_ISSUE[operand]: tiles * reads, column.READ_CLOCKS[operand]: tiles * groups * clocks}

    return Part((f"thread_{axis}", f"vthread_{axis}", "lanes_m", "form"), function, fixed=True)


@lru_cache(maxsize=4096)
def transposing_clocks(lanes: int, elements: int, row_bytes: int, span: int, word: int) -> int:
    """Return the wavefronts to store one element per thread of an operand that is transposed on its way in.

    ``lanes`` threads are adjacent along k, ``elements`` apart; ``row_bytes`` is a row's length modulo the
    banks' 128; flipping columns below ``span`` is the swizzle (1: none).  TileShape in simt_tile.cuh.
    """
    thread = np.arange(32)
    lane, line = thread % lanes, thread // lanes
    flip = lane * (128 // word // lanes) % span
    row = row_bytes + 65536  # distinct rows: equal banks, not equal addresses
    return wavefronts(lane * elements * row + (line ^ flip) * word, word)


def _loads(e: Extents, operand: str) -> Part:
    """Tabulate global loads of an operand's step and the cost of a load (TileShape in simt_tile.cuh)."""
    axis = {"a": "m", "b": "n"}[operand]
    element = bytes_in_memory(e, operand)
    cast = ELEMENT_ISSUE[e.dtype[operand]] if element != e.element else int(e.element != e.bytes_acc)

    def common(v: Values, inner: np.ndarray, outer: np.ndarray) -> tuple[np.ndarray, dict[Column, np.ndarray]]:
        elements = v[f"vector_{operand}"] // element
        return elements, {
            simt.PER_LINE[operand]: np.maximum(inner // elements, 1),
            simt.LINES[operand]: outer,
            simt.LOAD_WORDS[operand]: np.maximum(v[f"vector_{operand}"] / 4, 1) * 0.4 + 1.2,
        }

    def converting(v: Values, elements: np.ndarray) -> np.ndarray:
        """Return the instructions of a load's elements on their way: a cast, a flipped sign, a sum of parts."""
        return elements * (cast + int(e.conjugated[operand]) + (v["form"] == 3))

    def stores(v: Values, lanes: np.ndarray, elements: np.ndarray) -> np.ndarray:
        extent, pad, word = v[f"block_{axis}"], v["pad"], word_bytes(v["form"], e.bytes_acc)
        span = np.where(pad == 1, 1, np.minimum(128 // word, power_of_two_in(extent)))
        row = (extent + 4 * pad) * word % 128
        keys = zip(lanes.tolist(), elements.tolist(), row.tolist(), span.tolist(), word.tolist(), strict=True)
        return planes(v["form"]) * np.array([transposing_clocks(*key) for key in keys])

    def by_k(v: Values) -> dict[Column, np.ndarray]:
        elements, outputs = common(v, v["block_k"], v[f"block_{axis}"])
        most = np.clip(32 // v[f"vector_{operand}"], 1, 8)
        lanes = np.minimum(power_of_two_in(outputs[simt.PER_LINE[operand]]), most)
        return outputs | {
            simt.LOAD_LANES[operand]: lanes,
            simt.LOAD_ISSUE[operand]: 3 + converting(v, elements) + elements * planes(v["form"]),
            simt.LOAD_CLOCKS[operand]: elements * stores(v, lanes, elements) + 1,
        }

    def by_entry(v: Values) -> dict[Column, np.ndarray]:
        elements, outputs = common(v, v[f"block_{axis}"], v["block_k"])
        stored = elements * word_bytes(v["form"], e.bytes_acc) / 4
        clocks = planes(v["form"]) * stored * np.where(stored > 4, 2, 1)
        return outputs | {
            simt.LOAD_ISSUE[operand]: 3 + converting(v, elements) + np.ceil(stored / 4) * planes(v["form"]),
            simt.LOAD_CLOCKS[operand]: clocks + 1 + np.maximum(v[f"vector_{operand}"] / 4, 1),
        }

    names = ("block_k", f"vector_{operand}", f"block_{axis}", "form")
    if is_transposed(e, operand):
        return Part((*names, "pad"), by_k, fixed=True)
    return Part(names, by_entry, fixed=True)


def load_clocks(c: Columns, e: Extents, z: Mapping[str, int], operand: str) -> np.ndarray:
    """Return the wavefronts of one of these loads: its stores, and the lines that it is scattered over."""
    own = c[simt.LOAD_CLOCKS[operand]]
    if not is_transposed(e, operand):
        return own
    return own + copy_lines(c, e, z, operand, c[simt.LOAD_LANES[operand]])
