"""How operands of contractions are read: through the window of an implicit GEMM, or widened from a narrower type.

Under a window: how padding is found, and the lines that accesses touch.

Operands may be stored narrower than they are multiplied (widen.cuh).  The tensor-core family widens them on their way
into shared memory (copy 0), once per block, or on their way from there into fragments (copy 1), once per warp that
reads them, with less shared memory and its traffic.  Which is better depends on the tile: it is a coordinate of the
Program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.core.columns import Column
from gensor_kernels.programs.core.family import Columns, Coordinate, Part, Values

from . import column
from .problem import Extents, extents

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


# ---- windows

#: Bytes of a line of L1; the order of k under a window with channels last (operators' Product).
LINE, CHANNELS_LAST = 128.0, 1
#: The coordinate of a window's masks; rows and columns of filters that they have bits for; orders of k that they know.
MASKED, MOST_TAPS, WALKED_PLAINLY = "masked", 31, (1, 2)


def masked_coordinate(workload: Workload) -> tuple[Coordinate, ...]:
    """Return how a window's padding is found, if there is a choice: a filter's rows and columns are bits of a word."""
    e, z = extents(workload), workload.size
    if not e.window:
        return ()
    fits = e.order in WALKED_PLAINLY and z["r"] + z["s"] <= MOST_TAPS
    doc = "padding: 0 rows and columns are compared, 1 they are looked up"
    return (Coordinate(MASKED, (0, 1) if fits else (0,), 1, "layout", doc),)


def copy_lines(c: Columns, workload: Workload, operand: str, lanes: np.ndarray) -> np.ndarray:
    """Lines of 128 bytes that a warp's accesses of one operand are scattered over, ``lanes`` side by side in a row.

    Rows of a matrix lie far apart: a line each at least. Under a window with channels last they are neighbouring
    pixels of one image row, a step's channels apart, so that several lie in one line (wherever it begins), in each of
    the filter's rows that the lanes reach into.
    """
    rows = 32.0 / lanes
    e, z = extents(workload), workload.size
    if e.window != operand or e.order != CHANNELS_LAST:
        return rows
    apart = float(z["stride_w"] * z["c"] * e.element)
    run, row = lanes * c[f"vector_{operand}"], float(z["s"] * z["c"] // z["groups"] * e.element)
    together = ((rows - 1) * apart + np.minimum(run, row)) / LINE + 1
    return np.minimum(rows, together * (1 + run / row))


# ---- mixed input

#: Widening four bytes into two pairs: SASS instructions, and clocks of the pipe that permutes, shifts and converts,
#: which takes an instruction every other clock.
WORD_COSTS = {
    ("float8_e4m3fn", "float16"): (14.0, 24.0),
    ("float8_e5m2", "float16"): (2.0, 4.0),
    ("int8", "float16"): (5.0, 6.0),
    ("float8_e4m3fn", "bfloat16"): (20.0, 28.0),
    ("float8_e5m2", "bfloat16"): (8.0, 8.0),
    ("int8", "bfloat16"): (11.0, 14.0),
    ("uint4x2", "float16"): (11.0, 14.0),
    ("uint4x2", "bfloat16"): (11.0, 14.0),
}
#: WORD_COSTS where an instruction converts two e4m3 numbers (sm_89).
CONVERTED_COSTS = {("float8_e4m3fn", "float16"): (3.0, 4.0), ("float8_e4m3fn", "bfloat16"): (9.0, 8.0)}
#: Instructions of reading a fragment in another's order of k, beyond ldmatrix: a second load, four moves.
SPREAD_ISSUE = 5
#: Instructions of converting one element to the accumulator's type, on the CUDA cores.
ELEMENT_ISSUE = {"float8_e4m3fn": 8, "float8_e5m2": 3, "int8": 2}


def stored(e: Extents, operand: str) -> float:
    """Bytes of an element of operand "a" or "b" in global memory."""
    return e.bytes_a if operand == "a" else e.bytes_b


def other(operand: str) -> str:
    """The operand that "a" or "b" is multiplied by."""
    return "b" if operand == "a" else "a"


def held(e: Extents, operand: str, copy: Any) -> Any:
    """Bytes of an element in shared memory, by how it gets there."""
    own = stored(e, operand)
    return own if own == e.element else np.where(copy == 1, own, e.element)


def by_fragment(workload: Workload) -> bool:
    """Whether copy 1 can serve: nothing is widened, or both operands are K-contiguous."""
    e = extents(workload)
    return not e.is_widened or e.unit["a"] == e.unit["b"] == "k"


def word_costs(workload: Workload, operand: str, arch: Arch) -> tuple[float, float] | None:
    """(Instructions, clocks of their pipe) of widening four bytes of an operand; None where it is not."""
    e = extents(workload)
    types = e.dtype[operand], e.multiplied
    if stored(e, operand) == e.element:
        return None
    return (CONVERTED_COSTS if arch.capability >= (8, 9) else WORD_COSTS).get(types, WORD_COSTS[types])


def spread(e: Extents, operand: str, copy: Any) -> Any:
    """1 where an operand is read in the order of k of one that is widened from fragments (SPREAD), else 0."""
    wide = e.is_widened and stored(e, operand) == e.element
    return np.where(copy == 1, 1, 0) if wide else 0


def scale_parts(e: Extents) -> tuple[Part, ...]:
    """Tabulate the cost of scales of b's columns in a warp's iteration (mma_scales.cuh)."""
    zeros = e.scaled - 1

    def function(v: Values) -> dict[Column, np.ndarray]:
        down, across = v["warp_m"] / 16, v["warp_n"] / 8
        ends = v["block_k"] / e.group if e.group else 0.0 * down  # groups that end in an iteration
        fits = (v["block_k"] % e.group == 0) | (e.group % v["block_k"] == 0) if e.group else True
        # A group's end: multiply-adds of its sums, and for every column a load, its address and a conversion.
        each = down * across * 4 * (2 + zeros) + across * 2 * (6 + 6 * zeros) + 12
        return {
            column.SCALE_ISSUE: ends * each,
            column.SCALE_MULTIPLIES: zeros * down * v["block_k"] / 16,
            column.SCALE_REGISTERS: (down * across * 4 if e.group else 0)
            + across * (1 + 2 * zeros)
            + down * 4 * zeros
            + 14,
            column.FITS_SCALES: fits & ((v["warp_m"] * v["warp_n"] <= 2560) | (e.group == 0)),
        }

    return (Part(("warp_m", "warp_n", "block_k"), function),) if e.scaled else ()
