"""A contraction's sizes and element widths, as the vectorised code needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..operators.dtypes import facts
from ..operators.epilogue import OPERATIONS

if TYPE_CHECKING:
    from ..operators.workload import Workload


@dataclass(frozen=True)
class Extents:
    """A contraction's sizes (an empty axis counts as 1) and element bytes; ``extra`` are epilogue operand bytes."""

    batch: int
    m: int
    n: int
    k: int
    bytes_a: int
    bytes_b: int
    bytes_c: int
    bytes_acc: int
    extra: int
    steps: int


@lru_cache(maxsize=4096)
def extents(workload: Workload) -> Extents:
    """The numbers of a Workload the vectorised code needs."""
    batch, m, n, k = (max(1, workload.size[axis]) for axis in ("batch", "m", "n", "k"))
    width = {name: facts(workload.dtype[name]).itemsize for name in ("a", "b", "c")}
    extra = 0
    for name in workload.epilogue:
        operand = OPERATIONS[name].operand
        extra += {"": 0, "n": n, "mn": batch * m * n}[operand] * (1 if name == "mask" else width["c"])
    accumulator = facts(workload.accumulator).itemsize
    return Extents(batch, m, n, k, width["a"], width["b"], width["c"], accumulator, extra, len(workload.epilogue))


def power_of_two_in(value: np.ndarray) -> np.ndarray:
    """The largest power of two that divides each integer (0 for 0)."""
    return value & -value
