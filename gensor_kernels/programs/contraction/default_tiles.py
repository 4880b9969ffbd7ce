"""Warp and thread tiles of the default completions: what a block tile is split into before a walk looks closer."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .mma.cost import BLOCKS as MMA_BLOCKS
from .simt.cost import BLOCKS as SIMT_BLOCKS
from .simt.cost import LANES, THREAD_TILES, VTHREADS

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
    table = np.zeros((2, len(MMA_BLOCKS), len(MMA_BLOCKS)), dtype=np.int32)
    for i, m in enumerate(MMA_BLOCKS):
        for j, n in enumerate(MMA_BLOCKS):
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


@lru_cache(maxsize=8)
def default_thread_tiles(held: int, word: int, most: int) -> np.ndarray:
    """(5, blocks, blocks) int32: thread_m, thread_n, vthread_m, vthread_n, lanes_m by block indices.

    ``held`` are the bytes a thread sums an output in, ``word`` those of a word in shared memory, ``most`` those of
    all sums of a thread.

    The largest, squarest thread tile that makes whole warps, 4 to 8 of them where the block has that many;
    where no thread tile makes a warp (1 x 16) the entry is illegal and `legal` says so.
    """
    table = np.ones((5, len(SIMT_BLOCKS), len(SIMT_BLOCKS)), dtype=np.int32)
    for i, m in enumerate(SIMT_BLOCKS):
        for j, n in enumerate(SIMT_BLOCKS):
            table[:, i, j] = min(_thread_choices(m, n, held, word, most), default=(0, 1, 1, 1, 1, 1))[1:]
    return table


def _thread_choices(m: int, n: int, held: int, word: int, most: int) -> list[tuple[float, int, int, int, int, int]]:
    found = []
    wide = max(1, 16 // word)
    for tm in (t for t in THREAD_TILES if m % t == 0):
        for tn in (t for t in THREAD_TILES if n % t == 0):
            down, across = m // tm, n // tn
            lanes = [x for x in LANES if down % x == 0 and across % (32 // x) == 0]
            threads = down * across
            if not lanes or threads > 1024 or tm * tn * held > most:
                continue
            best = min(lanes, key=lambda x: (x * tm + 32 // x * tn, x))
            groups = [max(v for v in VTHREADS if t % v == 0 and (v == 1 or t // v >= wide)) for t in (tm, tn)]
            # Fewest words read per multiply-add, but four to eight warps.
            cost = (1 / tm + 1 / tn) * (1 + max(0, 128 - threads) / 64 + max(0, threads - 256) / 256)
            found.append((cost, tm, tn, groups[0], groups[1], best))
    return found
