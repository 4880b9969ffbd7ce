"""Operands of contractions that are read through a window: how padding is found, and the lines that accesses touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.programs.core.family import Columns, Coordinate

from .problem import extents

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

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
