"""Shape of a gemv block from its tiles: extents, loads, shared bytes, of numbers or arrays (gemv.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gensor_kernels.families.contraction.problem import Extents, extents, power_of_two_in
from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Points
from gensor_kernels.operators.types.workload import Workload

#: The coordinate of launches that start before the one before has ended.
EARLY = "early"
#: Most entries of the small axis that the family serves.
MOST_SMALL = 16
#: Forms of a Program: which operand is streamed, and whether along k or along the long axis.
B_ROWS, B_COLUMNS, A_ROWS, A_COLUMNS = range(4)
#: Bytes a thread may hold: of sums, and of x on its way.
SUM_BYTES, INPUT_BYTES = 512, 128
#: Scratch bytes up to which all entries of the small axis meet at once.
ROUND_BYTES = 32768


def forms(workload: Workload) -> tuple[int, ...]:
    """Return the forms that stream an operand of this Workload along a small axis."""
    e, found = extents(workload), []
    if e.m <= MOST_SMALL:
        found.append(B_COLUMNS if e.unit["b"] == "n" else B_ROWS)
    if e.n <= MOST_SMALL and not e.prologue:  # the streamed operand goes straight into registers
        found.append(A_COLUMNS if e.unit["a"] == "m" else A_ROWS)
    return tuple(found)


def widths(e: Extents) -> dict[str, int]:
    """Return the most elements per access of each operand."""
    return {x: max(1, e.align[x] // e.bytes_a) if e.unit[x] != "s" else 1 for x in "ab"}


def step_of(v: Points) -> Numbers:
    """Extent of k in one step."""
    return v["threads_k"] * v["items"] * np.where(v["form"] % 2 == 1, 1, v["vector"])


def long_tile(v: Points) -> Numbers:
    """Entries of the long axis per block."""
    return v["threads_l"] * np.where(v["form"] % 2 == 1, v["vector"], v["rows"])


class Shape(NamedTuple):
    """Integer arrays, one element per Program.

    ``entries`` of the long axis per thread, ``long`` per block; ``width`` the most elements per access that the class
    of the streamed operand allows; ``x_elements`` of an access of x, ``x_loads`` of a thread and step through shared
    memory; ``parts`` whose sums meet in shared memory, in ``rounds``; ``c_width`` columns per store.
    """

    threads: np.ndarray
    entries: np.ndarray
    long: np.ndarray
    step: np.ndarray
    split: np.ndarray
    steps: np.ndarray
    tiles_small: np.ndarray
    tiles_long: np.ndarray
    width: np.ndarray
    x_elements: np.ndarray
    x_loads: np.ndarray
    parts: np.ndarray
    rounds: np.ndarray
    c_width: np.ndarray
    memory: np.ndarray


def of_form(v: Points, streams_b: Numbers, streams_a: Numbers) -> Numbers:
    """Return the value for the operand that is streamed."""
    return np.where(v["form"] >= A_ROWS, streams_a, streams_b)


def shape(v: Points, e: Extents) -> Shape:
    """See Shape."""
    c: dict[Any, np.ndarray] = {name: np.asarray(value, dtype=np.int64) for name, value in v.items()}
    by_columns, shared = c["form"] % 2 == 1, c["x_shared"] == 1
    threads, step, wide = c["threads_k"] * c["threads_l"], step_of(c), long_tile(c)
    small, split = c["small"], c["split_k"]
    widest = widths(e)
    along_k = {x: widest[x] if e.unit[x] == "k" else 1 for x in "ab"}
    # Next to columns x is in shared memory unchanged: a thread stores the elements of one access.
    most = np.where(by_columns, np.minimum(step, max(1, 16 // e.bytes_acc)), np.where(shared, step, c["vector"]))
    x_elements = np.minimum(of_form(c, along_k["a"], along_k["b"]), most)
    every = -(-e.k // step)
    parts = np.where(by_columns, c["threads_k"], np.maximum(c["threads_k"] // 32, 1))
    scratch, rounds = _scratch(c, e, by_columns, parts)
    entries = np.where(by_columns, c["vector"], c["rows"])
    whole_c = max(1, e.align["c"] // e.bytes_c) if e.unit["c"] != "s" else 1
    memory = np.maximum(np.where(shared, 2 * small * step * e.bytes_acc, 0), scratch)
    return Shape(
        threads=threads,
        entries=entries,
        long=wide,
        step=step,
        split=split,
        steps=-(-every // split),
        tiles_small=-(-of_form(c, e.m, e.n) // small),
        tiles_long=-(-of_form(c, e.n, e.m) // wide),
        width=of_form(c, widest["b"], widest["a"]),
        x_elements=x_elements,
        x_loads=-(-small * (step // x_elements) // threads),
        parts=parts,
        rounds=rounds,
        c_width=np.minimum(whole_c, power_of_two_in(of_form(c, entries, small))),
        memory=memory,
    )


def _scratch(
    c: Mapping[str, np.ndarray], e: Extents, by_columns: np.ndarray, parts: np.ndarray
) -> tuple[Numbers, Numbers]:
    """Return (bytes in which sums meet, rounds they do it in): gemv_store.cuh."""
    banks, small = 128 // e.bytes_acc, c["small"]
    piece = np.minimum(c["vector"], max(1, 16 // e.bytes_acc))
    pieces, wanted = np.maximum(c["vector"] // piece, 1), c["threads_l"] * piece
    line = pieces * (wanted + np.where(pieces > 1, banks // pieces, 0))

    def columns(entries: Numbers) -> Numbers:
        words = entries * line
        return parts * (words + np.where(wanted < banks, (wanted - words) % banks, 0)) * e.bytes_acc

    whole = columns(small) <= ROUND_BYTES
    words = parts * c["threads_l"] * small * c["rows"]
    rows = words * e.bytes_acc + -(-words // banks) * 16  # row_word's padding, where there is any
    scratch = np.where(whole, columns(small), columns(1))
    return np.where(by_columns, scratch, rows), np.where(by_columns & ~whole, small, 1)
