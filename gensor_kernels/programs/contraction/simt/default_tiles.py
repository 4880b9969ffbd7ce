"""Thread tiles of default completions: how a block tile is split before a walk looks closer."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .cost import BLOCKS, LANES, THREAD_TILES, VTHREADS


@lru_cache(maxsize=8)
def default_thread_tiles(held: int, word: int, most: int) -> np.ndarray:
    """(5, blocks, blocks) int32: thread_m, thread_n, vthread_m, vthread_n, lanes_m by block indices.

    ``held`` are the bytes a thread sums an output in, ``word`` the bytes of a word in shared memory, ``most`` the
    bytes of all sums of a thread.

    The largest, squarest thread tile that makes whole warps, 4 to 8 of them where the block has that many;
    where no thread tile makes a warp (1 x 16) the entry is illegal and `legal` says so.
    """
    table = np.ones((5, len(BLOCKS), len(BLOCKS)), dtype=np.int32)
    for i, m in enumerate(BLOCKS):
        for j, n in enumerate(BLOCKS):
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
