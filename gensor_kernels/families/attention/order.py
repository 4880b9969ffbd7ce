"""The order in which blocks of attention start (attention_order.cuh), and how long it keeps multiprocessors waiting."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Coordinate
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.attention.attention import last_diagonal
from gensor_kernels.operators.types.geometry import Geometry

from .shape import ELEMENT

#: Bytes of keys and values that stay in the L2 while the blocks that share them come by; of FlashAttention-3's
#: scheduler for the H100's 50 MB.
KEPT_BYTES = 32 * 2**20


LONGEST_FIRST = Coordinate("longest_first", (0, 1), 0, "raster", "1: several entries' longest blocks start first")


def constants(program: Program) -> dict[str, int | str]:
    """Return the macro of the order, where it is not that of units."""
    return {"LONGEST_FIRST": 1} if program.get(LONGEST_FIRST.name) else {}


def taken_together(program: Program, geometry: Geometry, tiling: Tiling) -> int:
    """Return how many units, parts of the keys of an entry, give their longest blocks first: one, if all are as long.

    Examples
    --------
    >>> from gensor_kernels.operators import operator
    >>> from gensor_kernels.operators.attention.attention import workload
    >>> problem = workload(4096, heads=40, head=128, causal=True)
    >>> declared = operator(problem.operator)
    >>> strides = {each.name: each.strides() for each in declared.operands(problem)}
    >>> program = Program("attention_wgmma", {"longest_first": 1})
    >>> taken_together(program, declared.geometry(problem, strides), Tiling(32, 1, 1, 4096, 1))
    14
    """
    (_, head, keys), (outer, middle, _) = geometry.sizes, geometry.batch
    if not program.get(LONGEST_FIRST.name) or last_diagonal(geometry) >= keys:
        return 1
    return int(units_together(outer * middle * tiling.split, head, min(tiling.k_per_split, keys)))


def units_together(units: Numbers, head: Numbers, keys: Numbers) -> Numbers:
    """Return the most units, of keys and values that stay in the L2, into which all can be divided evenly."""
    most = np.maximum(KEPT_BYTES // np.maximum(2 * ELEMENT * head * keys, 1), 1)
    return np.ceil(units / np.ceil(units / most))


def unevenness(
    lengths: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    tiles: np.ndarray,
    units: np.ndarray,
    together: Numbers,
    slots: np.ndarray,
) -> np.ndarray:
    """Return the time until the last block ends over that of as many rounds of mean blocks.

    ``lengths`` of a unit's blocks are the mean, the greatest, the least, and the mean square; ``slots`` is how many
    blocks run at once. A block starts where another one ends. The last units taken together start when the others'
    work has been handed out, of which what runs then remains: half the mean square over the mean, or less where so many
    blocks are taken together that only short ones are left. Lists of 16 to 192 units scheduled one by one took 0.91 to
    1.08 times as long, and 0.95 to 1.03 times unit by unit.
    """
    mean, greatest, least, square = lengths
    blocks = tiles * units
    last = units - (np.ceil(units / together) - 1.0) * together
    before = (units - last) * tiles * mean / slots
    running = square / (2.0 * mean) * np.minimum(slots / (tiles * together), 1.0)
    ends = np.maximum(blocks * mean / slots + least, np.maximum(before - running, 0.0) + greatest)
    ends = np.where(blocks <= slots, greatest, ends)
    return np.where(greatest > mean + 0.5, ends / (np.ceil(blocks / slots) * mean), 1.0)
