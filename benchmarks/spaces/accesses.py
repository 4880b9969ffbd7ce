"""Costs of memory accesses lane by lane, and figures of the SM that terms of several foreign kernels share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from gensor_kernels.machine.arch import Arch

LINE, WORD, BANKS = 128, 4, 32
#: Threads whose addresses an SM's load/store units take per clock: 32 on data-centre parts (whitepapers of Volta,
#: GA100, GH100: 8 units per sub-core), 16 on the others (Turing, GA102, AD102: 4).
WIDE_LOAD_STORE = frozenset({(7, 0), (8, 0), (9, 0), (10, 0)})
#: Clocks of a barrier with its warps apart, and of a shared read.
BARRIER, SHARED_LATENCY = 30.0, 24.0
#: The share of the less busy resources' work that the busiest does not hide: one buffer, two barriers.
EXPOSED = 0.25

Columns = Mapping[str, np.ndarray]


def least_clocks(arch: Arch) -> float:
    """Return the clocks in which an SM's load/store units take the addresses of one warp."""
    return 1.0 if arch.capability in WIDE_LOAD_STORE else 2.0


def _turn(addresses: np.ndarray, lanes: np.ndarray, words: int) -> int:
    """Return the clocks to serve some lanes at once: the most distinct words that a bank delivers."""
    wanted = {int(a) // WORD + word for a in addresses[lanes] for word in range(words)}
    return max(Counter(word % BANKS for word in wanted).values())


def _alike(addresses: np.ndarray, lanes: np.ndarray) -> bool:
    """Return whether every lane reads the address of its neighbour, or of the neighbour's neighbour."""
    return any(bool((addresses[lanes] == addresses[lanes ^ other]).all()) for other in (1, 2))


def shared_clocks(addresses: np.ndarray, words: int) -> int:
    """Return the wavefronts of a shared access of 1, 2 or 4 words per lane at byte `addresses` (32,).

    An 8-byte access goes by half warps and a 16-byte one by quarters, unless all lanes pair up with a neighbour at the
    same address: then two of these parts go at once (microbenchmarks of Volta and later).
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
    """Return the number of 128-byte lines that an access touches."""
    return len({(int(a) + WORD * word) // LINE for a in addresses for word in range(words)})


def tabulate(function: Callable[..., tuple[float, ...]], *columns: np.ndarray) -> np.ndarray:
    """Return `function` over rows of small integers, called once per distinct row; (outputs, n) float64."""
    keys, where = np.unique(np.stack([c.astype(np.int64) for c in columns], axis=1), axis=0, return_inverse=True)
    values = np.array([function(*(int(x) for x in key)) for key in keys], dtype=np.float64)
    return values[where.ravel()].T
