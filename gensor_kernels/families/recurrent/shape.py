"""Numbers of a recurrent layer and of a block, as the vectorised code and recurrent.cu have them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.core.family import Points
from gensor_kernels.operators import operator
from gensor_kernels.operators.recurrent.recurrent import NAMES, SIZES, Recurrent
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

#: CELL of recurrent.cu.
CELLS = {name: code for code, name in enumerate(NAMES)}
#: Most bytes of a thread's sums.
SUM_BYTES = 256


@dataclass(frozen=True)
class Layer:
    """Sizes of a Workload, and bytes of R's elements and of a word of states."""

    gates: int
    states: int
    steps: int
    batch: int
    directions: int
    hidden: int
    bytes_r: int
    word: int
    align: int


@lru_cache(maxsize=4096)
def layer_of(workload: Workload) -> Layer:
    """Return the Layer of a Workload."""
    of = operator(workload.operator)
    assert isinstance(of, Recurrent)
    steps, batch, directions, hidden = (max(workload.size[name], 1) for name in SIZES[:4])
    bytes_r, word = facts(workload.dtype["b"]).itemsize, facts(workload.accumulator).itemsize
    return Layer(of.gates, of.cells, steps, batch, directions, hidden, bytes_r, word, workload.align["b"])


class Shape(NamedTuple):
    """Threads, blocks and shared bytes of Programs; passes over units, and iterations of a lane in each."""

    threads: np.ndarray
    blocks: np.ndarray
    memory: np.ndarray
    passes: np.ndarray
    iterations: np.ndarray


def shape(c: Points, e: Layer) -> Shape:
    """Return the Shape of Programs."""
    step = np.asarray(c["lanes"]) * c["vector"] // e.bytes_r
    iterations = -(-e.hidden // np.maximum(step, 1))
    buffers = (2 + (e.states > 1)) * np.asarray(c["batch"]) * iterations * step * e.word
    held = np.asarray(c["held"]) * e.gates * e.hidden * e.hidden * e.bytes_r
    return Shape(
        np.asarray(c["lanes"]) * c["groups"],
        e.directions * -(-e.batch // np.asarray(c["batch"])),
        buffers + held,
        -(-e.hidden // np.asarray(c["groups"])),
        iterations,
    )
