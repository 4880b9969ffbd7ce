"""Tabulated parts of contraction_simt: thread tiles, fragments, loads, buffers, stores (simt_*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.contraction.complex import RATES, planes, sum_bytes, word_bytes
from gensor_kernels.programs.contraction.norm import norm_parts, partial
from gensor_kernels.programs.contraction.problem import extents, power_of_two_in
from gensor_kernels.programs.contraction.prologue import inline_parts
from gensor_kernels.programs.contraction.split_k import shared_parts, tiles_part
from gensor_kernels.programs.core.family import Part, Values

from .operands import fragment, loads, matrices, transposed

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

BLOCKS = (1, 2, 4, 8, *range(16, 257, 16))
STEPS = (4, 8, 16, 32, 64)
THREAD_TILES = (1, 2, 4, 6, 8, 12, 16)
VTHREADS = (1, 2, 4, 8)
LANES = (1, 2, 4, 8, 16, 32)
#: Bytes of accumulators a thread may hold.
ACCUMULATOR_BYTES = 768
#: Multiply-adds of a thread's unrolled step: 16 KB of code, a quarter of what 4096 made, which took NVRTC 1.5 s instead
#: of 0.6. An SM's innermost instruction cache is thought to be of this size (unsure: nothing official says so).
STEP_MULTIPLIES = 1024


def ring_bytes(v: Mapping[str, Any], workload: Workload) -> Any:
    """Bytes of the shared buffers, of numbers or arrays."""
    word = word_bytes(v["form"], extents(workload).bytes_acc)
    total = 0
    for operand, extent in (("a", v["block_m"]), ("b", v["block_n"])):
        row = extent + 4 * v["pad"] if transposed(workload, operand) else extent
        total = total + matrices(workload, operand) * ((v["block_k"] * row * word + 127) // 128 * 128)
    return v["stages"] * planes(v["form"]) * total


def store_rows(tall: Any, wide: Any, word: int) -> Any:
    """Rows of a thread whose epilogue runs at once: STORE_ROWS of simt_store.cuh."""
    room = np.where(tall * wide * word >= 256, 8, 16) // (2 if word > 8 else 1)
    four = (tall % 4 == 0) & (4 * wide <= room)
    two = (tall % 2 == 0) & (2 * wide <= room)
    return np.where(four, 4, np.where(two, 2, 1))


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Everything contraction_simt tabulates."""
    e = extents(workload)

    def ring(v: Values) -> dict[str, np.ndarray]:
        return {"ring": ring_bytes(v, workload)}

    def fits_store(v: Values) -> dict[str, np.ndarray]:
        whole = v["block_n"] * e.bytes_c % v["vector_c"] == 0
        return {"fits_store": whole | (v["epilogue_staged"] == 0)}

    def stages(v: Values) -> dict[str, np.ndarray]:
        # With one buffer, loads, stores and math of a block take turns.
        single = v["stages"] == 1
        return {"chain": np.where(single, 130, 70), "exposed": np.where(single, 0.15, 0.08)}

    return (
        *shared_parts(e, arch),
        *norm_parts(e, arch),
        *(each for axis, extent in (("m", e.m), ("n", e.n)) for each in (_threads(axis), tiles_part(extent, axis))),
        _multiply(workload, arch),
        fragment(workload, "a"),
        fragment(workload, "b"),
        loads(workload, "a"),
        loads(workload, "b"),
        Part(("stages", "block_k", "block_m", "block_n", "pad", "form"), ring, fixed=True),
        Part(("stages",), stages, fixed=True),
        Part(("block_n", "vector_c", "epilogue_staged"), fits_store, fixed=True),
        _stores(workload),
        *inline_parts(e, arch),
    )


def _threads(axis: str) -> Part:
    """Threads of a block along an axis."""

    def function(v: Values) -> dict[str, np.ndarray]:
        block, thread = v[f"block_{axis}"], v[f"thread_{axis}"]
        lanes = v["lanes_m"] if axis == "m" else 32 // v["lanes_m"]
        count = np.maximum(block // thread, 1)
        return {
            {"m": "down", "n": "across"}[axis]: count,
            f"fits_{axis}": (block % thread == 0) & (count % lanes == 0),
            f"extent_{axis}": block,
        }

    return Part((f"block_{axis}", f"thread_{axis}", "lanes_m"), function, fixed=True)


def _multiply(workload: Workload, arch: Arch) -> Part:
    """Multiply-adds of a warp's iteration: one instruction is 32 of real numbers."""
    word, both = extents(workload).bytes_acc, extents(workload).matrices
    clocks = 32 * 4 / arch.rate(RATES[workload.accumulator])

    def function(v: Values) -> dict[str, np.ndarray]:
        tall, wide, held = v["thread_m"], v["thread_n"], sum_bytes(v["form"], word)
        multiplies = tall * wide * v["block_k"] * v["form"] * both
        return {
            "math": multiplies * clocks,
            "multiplies": multiplies,
            "step_issue": np.full(len(tall), 20),
            # Fitted to what NVRTC 12.9 allocated for 130 Programs of every type: median error 10 registers.
            "base_registers": (1.2 * tall * wide * both + 0.65 * (tall + wide * both)) * held / 4 + 39,
            "outputs": tall * wide * 32,
            "fits_sums": (tall * wide * held * both <= ACCUMULATOR_BYTES) & (multiplies <= STEP_MULTIPLIES),
            "row_words": store_rows(tall, wide, word) * word,
            "row_rounds": tall / store_rows(tall, wide, word),
            "steps": v["block_k"],
        }

    return Part(("thread_m", "thread_n", "block_k", "form"), function, fixed=True)


def _stores(workload: Workload) -> Part:
    """How outputs leave: straight from registers, or through slabs that make whole rows of them."""
    e = extents(workload)

    def function(v: Values) -> dict[str, np.ndarray]:
        split = partial(v, e)
        staged = (v["epilogue_staged"] == 1) & ~split
        group = np.maximum(v["thread_n"] // v["vthread_n"], 1)
        size = np.where(split, e.bytes_acc, e.bytes_c)
        most = np.where(split, 16, v["vector_c"])
        width = np.where(staged, most, np.minimum(most, power_of_two_in(group) * size))
        # Direct: every row of lanes writes elsewhere, in pieces a group apart.
        pieces = v["lanes_m"] * np.maximum(32 / v["lanes_m"] * group * size / 128, 1)
        return {
            "stores": size / (width * 32.0),
            # Slabs are conflict-free where a row of lanes fills the banks.
            "slab_words": np.where(v["lanes_m"] * 128 <= 32 * group * e.bytes_acc, 1, 2) * staged,
            "store_lines": np.where(staged, np.maximum(width / 4, 1), np.maximum(pieces, width / 4)),
            "staged": staged,
        }

    return Part(("thread_n", "vthread_n", "lanes_m", "vector_c", "epilogue_staged", "split_k"), function, fixed=True)
