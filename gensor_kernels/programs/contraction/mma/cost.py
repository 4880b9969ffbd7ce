"""Tabulated parts of contraction_mma: fragments, copies, ring, stores (mma_*.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.contraction.mixed_input import held, scale_parts, spread
from gensor_kernels.programs.contraction.norm import norm_parts, partial
from gensor_kernels.programs.contraction.problem import Extents, extents, power_of_two_in
from gensor_kernels.programs.contraction.prologue import inline_parts
from gensor_kernels.programs.contraction.split_k import shared_parts, tiles_part
from gensor_kernels.programs.core.family import Part, Values

from . import complex as mma_complex
from . import split_float as mma_split_float
from .instructions import MMA_LATENCY, instructions, kind, least_registers, waits
from .operands import copies, read

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

BLOCKS = tuple(range(16, 257, 16))
#: Bytes of k per main-loop step.
STEP_BYTES = (32, 64, 128, 256)
WARP_TILES_M = (16, 32, 48, 64, 80, 96, 128)
WARP_TILES_N = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128)
#: Outputs of a warp; beyond, accumulators spill.
MOST_WARP_OUTPUTS = 5120
MOST_DOUBLES, MOST_SLICED = 2048, 1536


def ring_bytes(v: Mapping[str, Any], workload: Workload) -> Any:
    """Bytes of the shared buffers, of numbers or arrays."""
    e, copy = extents(workload), v["copy"]
    rows_a, rows_b = v["block_m"] * held(e, "a", copy), v["block_n"] * held(e, "b", copy)
    return v["stages"] * v["block_k"] * (rows_a + e.matrices * rows_b)


def words(e: Extents) -> int:
    """Registers of an accumulator; sums of slices have one of integers beside it (rewrite/ozaki.py)."""
    return e.bytes_acc // 4 + (e.multiplied == "int8" and e.bytes_acc == 8)


def slab_bytes(v: Mapping[str, Any], e: Extents) -> Any:
    """Bytes of a warp's slab in the staged epilogue: 16 rows of accumulators."""
    return (v["epilogue_staged"] == 1) * v["warp_n"] * 16 * e.bytes_acc


def parts(workload: Workload, arch: Arch) -> tuple[Part, ...]:
    """Everything contraction_mma tabulates."""
    e = extents(workload)

    def ring(v: Values) -> dict[str, np.ndarray]:
        return {"ring": ring_bytes({"copy": 1, **v}, workload)}

    def copy(v: Values) -> dict[str, np.ndarray]:
        through = v["copy"] == 0
        narrow = np.minimum(v["vector_a"], v["vector_b"]) < 4
        return {
            "fits_copy": np.where(through, v["stages"] == 2, ~narrow),
            # Registers per copy: the piece itself, or its address and predicate (fitted too).
            "hold_a": np.where(through, 1.6 * np.maximum(v["vector_a"] / 4, 1), 1.6),
            "hold_b": np.where(through, 1.6 * np.maximum(v["vector_b"] / 4, 1), 1.6),
            "in_flight": np.where(through, 1, v["stages"] - 1),
            "exposed": np.where(through, 0.12, 0.04),
            "copy_issue": np.where(through, 4.2, 4.6),
        }

    def store(v: Values) -> dict[str, np.ndarray]:
        staged, split = v["epilogue_staged"] >= 1, partial(v, e)
        size = np.where(split, e.bytes_acc, e.bytes_c)
        wide = np.where(split, 16, v["vector_c"])
        width = np.where(staged, wide, np.minimum(wide, 2 * size))
        row = v["warp_n"] * size
        return {
            "fits_store": ~staged | (v["warp_n"] * e.bytes_c % v["vector_c"] == 0),
            "stores": size / (width * 32.0),
            "store_lines": np.where(staged, np.maximum(width / 4, width * 32.0 / row), 8.0),
            "slab": slab_bytes(v, e),
            # A slab is written and read once, in words.
            "staging_clocks": np.where(staged, v["warp_n"] * (16 * e.bytes_acc * 2 / 128), 0.0),
        }

    def rows(v: Values) -> dict[str, np.ndarray]:
        return {"staging_rows": (v["epilogue_staged"] == 1) * v["warp_m"] / 16.0}

    return (
        *shared_parts(e, arch),
        *norm_parts(e, arch),
        *(each for axis, extent in (("m", e.m), ("n", e.n)) for each in (_warps(axis), tiles_part(extent, axis))),
        mma_complex.multiply(workload, arch) if e.is_complex else _multiply(workload, arch),
        copies(workload, "a", arch),
        copies(workload, "b", arch),
        read(workload, "a", arch),
        read(workload, "b", arch),
        Part(("stages", "block_k", "block_m", "block_n", *(("copy",) if e.is_widened else ())), ring, fixed=True),
        Part(("copy", "stages", "vector_a", "vector_b"), copy, fixed=True),
        Part(("warp_n", "epilogue_staged", "vector_c", "split_k"), store, fixed=True),
        Part(("warp_m", "epilogue_staged"), rows, fixed=True),
        *scale_parts(e),
        *inline_parts(e, arch),
    )


def _warps(axis: str) -> Part:
    """Warps of a block along an axis."""

    def function(v: Values) -> dict[str, np.ndarray]:
        block, warp = v[f"block_{axis}"], v[f"warp_{axis}"]
        count = np.maximum(block // warp, 1)
        return {
            {"m": "down", "n": "across"}[axis]: count,
            f"fits_{axis}": block % warp == 0,
            f"power_{axis}": power_of_two_in(count),
        }

    return Part((f"block_{axis}", f"warp_{axis}"), function, fixed=True)


def _multiply(workload: Workload, arch: Arch) -> Part:
    """Math of a warp's iteration: 16 x 8 outputs x 32 bytes of k at a time."""
    choices = instructions(kind(workload) or "", arch)
    e = extents(workload)
    element, narrow, matrices = e.element, min(e.bytes_a, e.bytes_b), e.matrices
    counts = {choice.code: choice.needed for choice in choices}
    clocks = 32 / element * 4 / arch.rate(choices[0].rate) * choices[0].products
    in_parts = choices[0].products > 1
    beside = {1: 10, 4: 8}.get(element, 0) + 40 * (words(e) == 3)
    most = {1: MOST_WARP_OUTPUTS, 2: MOST_DOUBLES, 3: MOST_SLICED}[words(e)]

    def function(v: Values) -> dict[str, np.ndarray]:
        steps = v["block_k"] * element / 32
        count = np.array([counts[int(code)] for code in v["instruction"]])
        of_k = 1 / np.minimum(count, 1)  # fragments along k that one instruction takes
        reads = v["block_k"] * np.where(v["copy"] == 1, narrow, element) / 32 / of_k
        outputs = v["warp_m"] * v["warp_n"]
        sums = outputs * matrices
        held = sums * words(e)
        # Small instructions do not reach the full rate on parts that have the large one.
        math = sums * steps * clocks * np.where(count <= max(1, choices[0].needed), 1, 2)
        latency = np.maximum(steps * MMA_LATENCY * np.sqrt(count) - math, 0)
        rows = {"a": v["warp_m"], "b": matrices * v["warp_n"]}
        fragments = sum(rows[x] * (1 + spread(e, x, v["copy"])) for x in "ab") / 4 * of_k
        widened = e.is_widened * (v["copy"] == 1) * (v["warp_n"] / 4 + 4)
        outputs_of = waits(latency, reads, v["copy"]) | {
            "math": math,
            "multiplies": sums * steps / 128 * count,
            "step_issue": reads + 9,
            # DOUBLE_FRAGMENTS of mma_pipeline.cuh; the rest is fitted to what NVRTC 12.9 allocated.
            "double_needs": held / 32 + 2 * fragments + 48,
            "least_registers": least_registers(count),
            "base_registers": held / 32 + 0.5 * fragments + 36 + beside + widened,
            "second_fragments": 0.7 * fragments,
            "outputs": outputs,
            "k_steps": steps,
            "fits_warp": (sums <= most) & (v["block_k"] * element / of_k % 32 == 0),
        }
        if words(e) == 2:  # the fragments of a whole step are read ahead, and more where there is room
            ahead = 1.7 * fragments / of_k * steps
            outputs_of |= {"base_registers": np.minimum(held / 32 + ahead + 36, 250), "second_fragments": 0 * held}
        if in_parts:  # one set of fragments, of 64 bytes of k
            never = np.full_like(sums, 1e6, dtype=np.float64)
            own = mma_split_float.costs(v, arch) | {
                "base_registers": mma_split_float.registers(v),
                "double_needs": never,
            }
            outputs_of |= own | {"fits_warp": (sums <= mma_split_float.MOST_WARP_OUTPUTS) & (v["block_k"] % 16 == 0)}
        return outputs_of

    return Part(("warp_m", "warp_n", "block_k", "instruction", "copy"), function, fixed=True)
