"""What an operand of contraction_mma costs a step: its copies into shared memory, and the reading of its fragments."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.contraction.mixed_input import SPREAD_ISSUE, held, spread, stored, word_costs
from gensor_kernels.programs.contraction.problem import extents, power_of_two_in
from gensor_kernels.programs.core.banks import wavefronts
from gensor_kernels.programs.core.family import Part, Values

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


def k_contiguous(workload: Workload, operand: str) -> bool:
    """Whether an operand's shared rows run along k (also where it has no unit stride)."""
    return extents(workload).unit[operand] in ("k", "s")


def entries(workload: Workload, operand: str, passes: np.ndarray, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A thread's rows of A or columns of B, and its values of k."""
    return (passes, pieces) if k_contiguous(workload, operand) else (pieces, passes)


def matrices(workload: Workload, operand: str) -> int:
    """Matrices an operand consists of."""
    return extents(workload).matrices if operand == "b" else 1


def copies(workload: Workload, operand: str, arch: Arch) -> Part:
    """Pieces of a step's tile of one operand (OperandTile in mma_tiles.cuh), and what widening one costs."""
    e, cost = extents(workload), word_costs(workload, operand, arch)
    axis = {"a": "m", "b": "n"}[operand]
    along_k = k_contiguous(workload, operand)
    element = stored(e, operand)

    def function(v: Values) -> dict[str, np.ndarray]:
        block, width = v[f"block_{axis}"], v[f"vector_{operand}"]
        pieces = ((v["block_k"] if along_k else block) * element).astype(np.int64) // width
        outputs = {
            f"rows_{operand}": block if along_k else v["block_k"],
            f"pieces_{operand}": pieces,
            f"pieces_power_{operand}": power_of_two_in(pieces),
            f"piece_clocks_{operand}": np.maximum(width / 4, 1) + 1,
            f"piece_lines_{operand}": width * 32 / 128,
        }
        if cost:
            # What is widened here is stored in 16-byte chunks, which every other lane has in the same banks.
            words = held(e, operand, v["copy"]) / element * width / 4
            outputs[f"piece_clocks_{operand}"] = np.maximum(words * np.where(words > 4, 2, 1), 1) + 1
            own = (v["copy"] == 0) * np.maximum(width / 4, 1)
            outputs[f"piece_issue_{operand}"] = own * cost[0] + np.maximum(words / 4 - 1, 0)
            outputs[f"piece_widening_{operand}"] = own * cost[1]
        return outputs

    names = (f"block_{axis}", "block_k", f"vector_{operand}")
    return Part((*names, "copy") if cost else names, function, fixed=True)


@lru_cache(maxsize=512)
def unswizzled_degree(row_bytes: int) -> int:
    """Wavefronts to read 8 rows x 16 bytes of an unswizzled tile; 1 is without conflicts."""
    return wavefronts([row * row_bytes for row in range(8)], 16)


@lru_cache(maxsize=512)
def plain_degree(row_bytes: int) -> int:
    """Wavefronts to read 4 rows x 8 adjacent words of an unswizzled tile: one register of 32-bit fragments."""
    return wavefronts([lane % 4 * row_bytes + lane // 4 * 4 for lane in range(32)], 4)


@lru_cache(maxsize=512)
def doubles_degree(row_bytes: int) -> float:
    """The same of 8 rows x 4 adjacent doubles, or of 4 rows x 8, of which half a warp reads 4 x 4 at once."""
    return wavefronts([lane // 4 * row_bytes + lane % 4 * 8 for lane in range(32)], 8) / 2


@lru_cache(maxsize=512)
def complex_degree(row_bytes: int, along_k: bool) -> float:
    """The same of 16 bytes per lane, 8 rows x 4 or 4 rows x 8, of which a quarter of a warp reads 2 x 4 or 4 x 2."""
    lanes = ((lane // 4, lane % 4) for lane in range(32))
    places = [g * row_bytes + t * 16 if along_k else t * row_bytes + g * 16 for g, t in lanes]
    return wavefronts(places, 16) / 4


def read(workload: Workload, operand: str, arch: Arch) -> Part:
    """Instructions and shared clocks of a warp to read one operand's fragments of an iteration."""
    axis = {"a": "m", "b": "n"}[operand]
    e, cost = extents(workload), word_costs(workload, operand, arch)
    element = e.element
    matrices = e.matrices if operand == "b" else 1
    along_k = k_contiguous(workload, operand)
    rounding = 8 if workload.math == "tf32" else 0  # cvt.rna.tf32 of every register, and moves
    by_matrix = (along_k or element == 2) and element < 8
    rows_of: Callable[[int], float] = unswizzled_degree if by_matrix else plain_degree
    if element >= 8:
        rows_of = doubles_degree if element == 8 else partial(complex_degree, along_k=along_k)

    def function(v: Values) -> dict[str, np.ndarray]:
        bytes_k = v["block_k"] * held(e, operand, v.get("copy", 1))
        count = matrices * v[f"warp_{axis}"] / 16 * ((bytes_k if along_k else v["block_k"] * element) / 32)
        row = bytes_k if along_k else v[f"block_{axis}"] * element
        plain = np.array([rows_of(int(length)) for length in row])
        degree = np.where(v["swizzle"] == 1, 1, plain)
        if by_matrix:
            reads = count * (1 + rounding + SPREAD_ISSUE * spread(e, operand, v.get("copy", 1)))
            outputs = {f"read_issue_{operand}": reads, f"read_clocks_{operand}": count * 4 * degree}
            if cost:
                words = (v["copy"] == 1) * matrices * v[f"warp_{axis}"] * v["block_k"] * stored(e, operand) / 128
                outputs[f"read_issue_{operand}"] = reads + words * cost[0]
                outputs[f"read_widening_{operand}"] = words * cost[1]
            return outputs
        if element >= 4:
            return {
                f"read_issue_{operand}": count * (16 // element + rounding),
                f"read_clocks_{operand}": count * 4 * degree,
            }
        # Bytes across rows: sixteen byte loads and their packing.
        degree = np.where((v["swizzle"] == 1) & (row % 64 == 0), 1, 2)
        return {f"read_issue_{operand}": count * (16 + 12), f"read_clocks_{operand}": count * 16 * degree}

    names = (f"warp_{axis}", "block_k", *(() if along_k else (f"block_{axis}",)), "swizzle")
    return Part((*names, "copy") if e.is_widened else names, function, fixed=True)
