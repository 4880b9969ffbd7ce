"""Tensor-core instructions, fragments and warp tiles of contraction_mma (cuda/mma_fragments.cuh)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..machine.arch import Arch
from .banks import wavefronts
from .contraction import F, extents
from .family import Columns

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: Clocks until the sum of one mma can enter the next one (Ampere m16n8k16: about 33 measured by third parties).
MMA_LATENCY = 33.0
#: Warp tiles the default completion tries: fewest shared bytes per multiply-add first.
PREFERRED = (
    ((64, 64), (64, 48), (48, 64), (64, 32), (32, 64), (48, 48), (48, 32), (32, 48), (32, 32))
    + ((64, 16), (16, 64), (48, 16), (16, 48), (32, 16), (16, 32), (16, 16))
)  # fmt: skip


class Instruction(NamedTuple):
    """One tensor-core instruction: INSTRUCTION macro, how many make 16 x 8 x 32 bytes, feature, rate."""

    code: int
    count: int
    feature: str
    rate: str


INSTRUCTIONS = {
    "f16": (
        Instruction(0, 1, "mma_m16n8k16", "mma_f16"),
        Instruction(1, 2, "mma_m16n8k8_f16", "mma_f16"),
    ),
    "bf16": (Instruction(0, 1, "mma_m16n8k16", "mma_f16"),),
    "tf32": (Instruction(2, 1, "tf32", "mma_tf32"),),
    "s8": (
        Instruction(3, 1, "mma_m16n8k32_s8", "mma_s8"),
        Instruction(4, 4, "mma_m8n8k16_s8", "mma_s8"),
    ),
}


def kind(workload: Workload) -> str | None:
    """Which row of INSTRUCTIONS a Workload uses; None where tensor cores do not serve its types."""
    dtype = workload.dtype["a"]
    if dtype == "float32" and workload.math == "tf32":
        return "tf32"
    return {"float16": "f16", "bfloat16": "bf16", "int8": "s8"}.get(dtype)


@lru_cache(maxsize=256)
def instructions(name: str, arch: Arch) -> tuple[Instruction, ...]:
    """The instructions of a kind that the Arch has, in the order of their codes."""
    return tuple(i for i in INSTRUCTIONS[name] if i.feature in arch.features)


def k_contiguous(workload: Workload, operand: str) -> bool:
    """Whether an operand's shared rows run along k (also where it has no unit stride)."""
    return workload.layouts[operand] in ("k", "s")


def multiply(
    c: Columns, workload: Workload, arch: Arch, products: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(clocks of the math pipe, clocks of the longest dependent chain, instructions) of a warp's iteration.

    ``products`` are outputs x 32-byte k steps of a warp, ``steps`` the k steps.
    """
    choices = instructions(kind(workload) or "", arch)
    macs = F(32 / extents(workload).bytes_a)
    counts = np.zeros(5, dtype=F)
    for choice in choices:
        counts[choice.code] = choice.count
    count = counts[c["instruction"]]
    clocks = products * (macs * F(4 / arch.rate(choices[0].rate)))
    # Small instructions do not reach the full rate on parts that have the large one.
    derate = np.where(count == choices[0].count, F(1), F(2))
    return clocks * derate, steps * F(MMA_LATENCY) * np.sqrt(count), products * F(1 / 128) * count


@lru_cache(maxsize=64)
def unswizzled_degrees(row_bytes: tuple[int, ...]) -> np.ndarray:
    """Wavefronts to read 8 rows x 16 bytes of an unswizzled tile, by index of the row length, float32."""
    return np.array([wavefronts([row * length for row in range(8)], 16) for length in row_bytes], dtype=F)


@lru_cache(maxsize=8)
def _degree_table(element: int) -> np.ndarray:
    """unswizzled_degrees by row bytes / 16, up to 256 elements or 256 bytes."""
    longest = max(256 * element, 256)
    return unswizzled_degrees(tuple(range(0, longest + 16, 16)))


def read(c: Columns, workload: Workload, operand: str, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(instructions, wavefronts) of a warp to read ``count`` fragments of 16 rows x 32 bytes."""
    element = extents(workload).bytes_a
    along_k = k_contiguous(workload, operand)
    length = c["block_k"] if along_k else c["block_m" if operand == "a" else "block_n"]
    row_bytes = length * element
    plain = np.take(_degree_table(element), row_bytes >> 4)
    rounding = F(4) if element == 4 else F(0)  # cvt.rna.tf32 of every register
    if along_k or element == 2:
        degree = np.where(c["swizzle"] == 1, F(1), plain)
        return count * (F(1) + rounding), count * F(4) * degree
    if element == 4:
        degree = np.where(c["swizzle"] == 1, F(1), np.minimum(plain, F(4)))
        return count * (F(4) + rounding), count * F(4) * degree
    # Bytes across rows: sixteen byte loads and their packing.
    degree = np.where((c["swizzle"] == 1) & (row_bytes % 64 == 0), F(1), F(2))
    return count * F(16 + 12), count * F(16) * degree


@lru_cache(maxsize=1)
def default_warp_tiles(blocks: tuple[int, ...]) -> np.ndarray:
    """(2, blocks, blocks) int32: warp_m and warp_n of the default completion.

    The first preferred tile that divides the block into 4 to 16 warps; in smaller blocks, the most warps.
    """
    table = np.zeros((2, len(blocks), len(blocks)), dtype=np.int32)
    for i, m in enumerate(blocks):
        for j, n in enumerate(blocks):
            tiles = [(wm, wn) for wm, wn in PREFERRED if m % wm == 0 and n % wn == 0]
            warps = [(m // wm) * (n // wn) for wm, wn in tiles]
            good = [tile for tile, count in zip(tiles, warps, strict=True) if 4 <= count <= 16]
            small = [tile for tile, count in zip(tiles, warps, strict=True) if count < 4]
            fewest = tiles[int(np.argmin(warps))]
            table[:, i, j] = good[0] if good else small[-1] if small else fewest
    return table
