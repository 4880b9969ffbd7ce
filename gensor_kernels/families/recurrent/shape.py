"""Numbers of a recurrent layer and of a block, as the vectorised code and recurrent.cu have them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Points
from gensor_kernels.operators import operator
from gensor_kernels.operators.recurrent.recurrent import NAMES, QUANTISED, SIZES, Recurrent
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

#: CELL of recurrent.cu.
CELLS = {name: code for code, name in enumerate(NAMES)}
#: The same of recurrent_slices.cu, which also has LSTMs that read h in 8 bits.
SLICED_CELLS = {**CELLS, QUANTISED: 0}
#: Bytes of the least and the largest element that each warp finds.
FOUND_BYTES = 256
#: Most bytes of the states of all steps in a workspace.
MOST_WORKSPACE = 256 << 20
#: Most bytes of a thread's sums.
SUM_BYTES = 256


@dataclass(frozen=True)
class Layer:
    """Sizes of a Workload, bytes of R's elements and of a word of states, and whether products read h in 8 bits."""

    gates: int
    states: int
    quantised: bool
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
    return Layer(of.gates, of.cells, of.quantised, steps, batch, directions, hidden, bytes_r, word, workload.align["b"])


class Shape(NamedTuple):
    """Threads, blocks and shared bytes of Programs; units of a block, its passes over them, and iterations of a lane in
    each; blocks of a team."""

    threads: np.ndarray
    blocks: np.ndarray
    memory: np.ndarray
    units: np.ndarray
    passes: np.ndarray
    iterations: np.ndarray
    team: np.ndarray


def shape(c: Points, e: Layer, hidden: Numbers | None = None) -> Shape:
    """Return the Shape of Programs, of this layer or of one of other numbers of units."""
    hidden = e.hidden if hidden is None else hidden
    step = np.asarray(c["lanes"]) * c["vector"] // e.bytes_r
    iterations = -(-hidden // np.maximum(step, 1))
    # Of a team, each block has units for all of its threads.
    units = -(-hidden // np.maximum(np.minimum(c.get("slices", 1), hidden // np.asarray(c["groups"])), 1))
    team = -(-hidden // units)
    buffers = (2 + (e.states > 1) + e.quantised) * np.asarray(c["batch"]) * iterations * step * e.word
    held = np.asarray(c["held"]) * e.gates * units * hidden * e.bytes_r
    return Shape(
        np.asarray(c["lanes"]) * c["groups"],
        e.directions * -(-e.batch // np.asarray(c["batch"])) * team,
        buffers + held + e.quantised * FOUND_BYTES,
        units,
        -(-units // np.asarray(c["groups"])),
        iterations,
        team,
    )


def workspace_bytes(s: Shape, c: Points, e: Layer) -> np.ndarray:
    """Return the bytes of flags and states in the workspace of recurrent_slices.cu; 0 for teams of one block."""
    teams = s.blocks // s.team
    states = e.steps * teams * np.asarray(c["batch"]) * e.hidden * e.word
    return (s.team > 1) * (teams * s.team * s.team * 16 + states)
