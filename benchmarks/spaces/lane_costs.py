"""What one access of a warp costs, by enumerating its 32 lanes: shared-memory wavefronts and 128-byte lines."""

from __future__ import annotations

from collections import Counter

import numpy as np

LINE, WORD, BANKS = 128, 4, 32


def _turn(addresses: np.ndarray, lanes: np.ndarray, words: int) -> int:
    """Clocks to serve some lanes at once: the most distinct words any bank has to deliver."""
    wanted = {int(a) // WORD + word for a in addresses[lanes] for word in range(words)}
    return max(Counter(word % BANKS for word in wanted).values())


def _alike(addresses: np.ndarray, lanes: np.ndarray) -> bool:
    """Whether every lane wants what its neighbour, or the neighbour's neighbour, wants."""
    return any(bool((addresses[lanes] == addresses[lanes ^ other]).all()) for other in (1, 2))


def shared_clocks(addresses: np.ndarray, words: int) -> int:
    """Wavefronts of a shared access of 1, 2 or 4 words per lane at byte ``addresses`` (32,).

    An 8-byte access goes by half warps and a 16-byte one by quarters, unless all lanes pair up with a neighbour of
    the same address: then two of these parts go at once (microbenchmarks of Volta and later).
    """
    lanes = np.arange(32)
    if words == 1:
        return _turn(addresses, lanes, words)
    parts = [lanes] if words == 2 else [lanes[:16], lanes[16:]]
    clocks = 0
    for part in parts:
        halves = [part] if _alike(addresses, part) else np.split(part, 2)
        clocks += sum(_turn(addresses, half, words) for half in halves)
    return clocks


def lines(addresses: np.ndarray, words: int) -> int:
    """128-byte lines an access touches."""
    return len({(int(a) + WORD * word) // LINE for a in addresses for word in range(words)})


def read_costs(width: int, apart: int, words: int) -> tuple[float, float]:
    """(wavefronts, lines) of reading a fragment: lanes ``apart`` words from each other.

    ``width`` > 0: lanes 0 to width - 1 lie side by side, the next ones repeat them.  Below 0: that many lanes at a
    time want the same words, the next ones those behind.
    """
    lane = np.arange(32)
    place = lane % width if width > 0 else lane // -width
    addresses = place * (apart * WORD)
    return float(shared_clocks(addresses, words)), float(lines(addresses, words))


def copy_costs(side: int, apart: int, row: int, words: int) -> tuple[float, float]:
    """(wavefronts, lines) of a copy: ``side`` lanes ``apart`` words from each other, the next ones ``row`` words on."""
    lane = np.arange(32)
    addresses = (lane // side) * (row * WORD) + (lane % side) * (apart * WORD)
    return float(shared_clocks(addresses, words)), float(lines(addresses, words))
