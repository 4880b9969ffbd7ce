"""Warp tiles of default completions: how a block tile is split before a walk looks closer."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .cost import BLOCKS

#: Warp tiles the default completion tries: fewest shared bytes per multiply-add first.
PREFERRED = (
    *((64, 64), (64, 48), (48, 64), (64, 32), (32, 64), (48, 48), (48, 32), (32, 48), (32, 32)),
    *((64, 16), (16, 64), (48, 16), (16, 48), (32, 16), (16, 32), (16, 16)),
)


@lru_cache(maxsize=8)
def default_warp_tiles(matrices: int = 1) -> np.ndarray:
    """(2, 16, 16) int32: warp_m and warp_n of the default completion by block_m / 16 - 1, block_n / 16 - 1.

    The first preferred tile that divides the block into 4 to 16 warps; in smaller blocks, the most warps. A warp sums
    products with ``matrices`` B's.
    """
    table = np.zeros((2, len(BLOCKS), len(BLOCKS)), dtype=np.int32)
    for i, m in enumerate(BLOCKS):
        for j, n in enumerate(BLOCKS):
            tiles = [(wm, wn) for wm, wn in PREFERRED if m % wm == n % wn == 0 and wm * wn * matrices <= 4096]
            warps = [(m // wm) * (n // wn) for wm, wn in tiles]
            good = [tile for tile, count in zip(tiles, warps, strict=True) if 4 <= count <= 16]
            small = [tile for tile, count in zip(tiles, warps, strict=True) if count < 4]
            fewest = tiles[int(np.argmin(warps))]
            table[:, i, j] = good[0] if good else small[-1] if small else fewest
    return table


def warp_tiles(m: np.ndarray, n: np.ndarray, held: np.ndarray) -> np.ndarray:
    """(2, points) int32: warp_m and warp_n for blocks of ``m`` rows and ``n`` columns, of ``held`` words an output."""
    tiles = np.zeros((2, len(m)), dtype=np.int32)
    for each in np.unique(held):
        tiles[:, held == each] = default_warp_tiles(int(each))[:, m // 16 - 1, n // 16 - 1][:, held == each]
    return tiles
