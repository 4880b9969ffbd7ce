"""Shared-memory wavefronts, counted exactly by enumerating the 32 lanes of a warp.

Shared memory has 32 banks of 4 bytes.  A warp's access is served in groups of lanes (8-byte accesses: half a
warp at a time, 16-byte: a quarter); within a group every bank delivers one distinct word per clock, and lanes
that want the same word share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BANKS = 32
WORD = 4


def wavefronts(addresses: Sequence[int] | np.ndarray, width: int) -> int:
    """Return the clocks one access takes: ``addresses`` are bytes per lane (any count up to 32), ``width`` bytes per
    lane.

    A negative address is an inactive lane.
    """
    width = max(width, WORD)
    group = max(1, BANKS * WORD // width)
    lanes = np.asarray(addresses, dtype=np.int64)
    words = (lanes[:, None] + np.arange(0, width, WORD)) // WORD
    total = 0
    for start in range(0, len(lanes), group):
        active = words[start : start + group][lanes[start : start + group] >= 0]
        total += int(np.bincount(np.unique(active) % BANKS, minlength=1).max())
    return total
