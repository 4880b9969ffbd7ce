"""A contraction's sizes, element widths and operands, as the vectorised code needs them.

Operands may be read through the window of an implicit GEMM: how padding is found, and the lines that accesses touch.

They may be stored narrower than they are multiplied (widen.cuh).  The tensor-core family widens them on their way into
shared memory (copy 0), once per block, or on their way from there into fragments (copy 1), once per warp that reads
them, with less shared memory and its traffic.  Which is better depends on the tile: it is a coordinate of the Program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.families.core.family import Columns, Coordinate, Part, Values, product
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.declaration.lowered import BLOCKS, Product
from gensor_kernels.operators.declaration.prologue import vectors_of
from gensor_kernels.operators.types.dtypes import element_bytes, facts, product_type
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload

from . import column

#: Bytes of a scale of blocks.
FLOAT = 4.0
#: Quantised weights that are no floats.
INTEGERS = ("int8", "uint4x2")
#: Bytes that are read per byte of elements without unit stride: at best every other element is one of these.
STRIDED = 2.0


@dataclass(frozen=True, kw_only=True)
class Extents(Product):
    """A contraction's product (an empty axis, an operand without elements count as 1) and element bytes; ``extra`` are
    epilogue operand bytes, ``operands`` the operations of the epilogue that read one.

    ``unit`` and ``align`` are an operand's axis of stride 1 and the bytes of its alignment class; ``whole_a`` and
    ``whole_b`` the bytes of all elements of one batch entry.  ``conjugated`` says which operands are conjugated,
    ``is_complex`` whether all operands are complex.  ``multiplied`` is the type in which the elements of a and b are
    multiplied, ``element`` its bytes: one of them may be stored narrower. ``scaled`` and ``group``: see Side.
    """

    bytes_a: int
    bytes_b: float
    bytes_c: int
    bytes_acc: int
    extra: int
    steps: int
    operands: int
    whole_a: float
    whole_b: float
    unit: Mapping[str, str]
    align: Mapping[str, int]
    dtype: Mapping[str, str]
    conjugated: Mapping[str, bool]
    is_complex: bool
    multiplied: str
    element: int
    scaled: int
    group: int
    fetched: float

    @property
    def prepared(self) -> str:
        """The operand that passes through the prologue: "a", "b", or "" for none."""
        return (self.window or "a") if self.prologue else ""

    @property
    def is_plain(self) -> bool:
        """Whether a step of the main loop is the same for every size: nothing is read through a window, prepared,
        scaled, normalised, or of groups."""
        return self.is_steady and not self.window

    @property
    def is_steady(self) -> bool:
        """Whether rows are not normalised, scaled, prepared or of groups."""
        return not (self.prologue or self.scaled or self.norm or self.rows)

    @property
    def matrices(self) -> int:
        """Matrices B of one product: two where one of them is a gate."""
        return 2 if self.gate else 1

    @property
    def moved_a(self) -> float:
        """Bytes that are read per element of a, with its share of scales."""
        own = element_bytes(self.dtype["a"]) * (self.fetched if self.window == "a" else _read_for(self.unit["a"]))
        return own + _scale_bytes_of_a(self.scaled, self.group, self.dtype["a"] == self.dtype["b"])

    @property
    def moved_b(self) -> float:
        """Bytes that are read per element of b, with its share of scales and zeros."""
        scales = _scale_bytes(self.scaled, self.group, self.is_formatted)
        return self.bytes_b * _read_for(self.unit["b"]) + scales

    @property
    def in_blocks(self) -> bool:
        """Whether both operands have a scale per block (products/block_scaled.py)."""
        return self.scaled == BLOCKS

    @property
    def is_formatted(self) -> bool:
        """Whether B is in a block-scaled format (products/quantised.py)."""
        return _is_formatted(self.scaled, self.dtype["b"])

    @property
    def is_widened(self) -> bool:
        """Whether an operand is stored narrower than it is multiplied."""
        return self.element != min(self.bytes_a, self.bytes_b)


@lru_cache(maxsize=4096)
def extents(workload: Workload) -> Extents:
    """Return the numbers of a Workload that is a matrix product; UnsupportedError for any other."""
    p = product(workload)
    if p is None:
        raise UnsupportedError(f"{workload.operator} is no matrix product")
    a, b, c = p.a, p.b, p.c
    bytes_a, bytes_b, bytes_c = facts(a.dtype).itemsize, element_bytes(b.dtype), facts(c.dtype).itemsize
    batch, m, n, k = max(1, p.batch), max(1, p.m), max(1, p.n), max(1, p.k)
    multiplied, extra = product_type(a.dtype, b.dtype), 0
    for name in workload.epilogue:
        operand = OPERATIONS[name].operand
        extra += {"": 0, "n": n, "mn": batch * m * n}[operand] * (1 if name == "mask" else bytes_c)
    scales = _scale_bytes(b.scaled, b.group, _is_formatted(b.scaled, b.dtype))
    scales_of_a = _scale_bytes_of_a(b.scaled, b.group, a.dtype == b.dtype)
    return Extents(
        **vars(p) | {"batch": batch, "m": m, "n": n, "k": k},
        bytes_a=bytes_a,
        bytes_b=bytes_b,
        bytes_c=bytes_c,
        bytes_acc=facts(workload.accumulator).itemsize,
        extra=extra,
        steps=len(workload.epilogue),
        operands=vectors_of(workload.epilogue),
        whole_a=float(m * k if a.elements is None else max(1, a.elements) / batch)
        * (element_bytes(a.dtype) * _read_for(a.unit) + scales_of_a),
        whole_b=float(n * k if b.elements is None else max(1, b.elements) / batch)
        * (bytes_b * _read_for(b.unit) + scales),
        unit={"a": a.unit, "b": b.unit, "c": c.unit},
        align={"a": a.align, "b": b.align, "c": c.align},
        dtype={"a": a.dtype, "b": b.dtype, "c": c.dtype},
        conjugated={"a": a.conjugated, "b": b.conjugated, "c": c.conjugated},
        is_complex=facts(workload.accumulator).is_complex,
        multiplied=multiplied,
        element=facts(multiplied).itemsize,
        scaled=b.scaled,
        group=b.group,
        fetched=_fetched(p, workload),
    )


def _read_for(unit: str) -> float:
    """Return the bytes that are read per byte of an operand, by its axis of unit stride."""
    return STRIDED if unit == "s" else 1.0


def _fetched(p: Product, workload: Workload) -> float:
    """Return the bytes that L2 sends for a byte that is read through a window: whole sectors, of which a group may have
    a part."""
    z = workload.size
    if p.order not in (1, 3) or z["groups"] == 1:
        return 1.0
    run = max(1, z["c"] // z["groups"]) * element_bytes(workload.dtype["x"])
    return -(-run // SECTOR) * SECTOR / run


def _is_formatted(scaled: int, dtype: str) -> bool:
    return scaled == 1 and dtype not in INTEGERS


def _scale_bytes(scaled: int, group: int, formatted: bool) -> float:
    """Return the bytes of scales and zeros per element of b."""
    if scaled == BLOCKS:
        return FLOAT / group**2
    return (scaled + (not formatted)) / group if group else 0.0


def _scale_bytes_of_a(scaled: int, group: int, alike: bool) -> float:
    """Return the bytes of scales per element of a, which has some in blocks, and in the format that b has."""
    if scaled == BLOCKS:
        return FLOAT / group
    return 1.0 / group if scaled and alike else 0.0


def power_of_two_in(value: np.ndarray) -> np.ndarray:
    """Return the largest power of two that divides each integer (0 for 0)."""
    return value & -value


# ---- windows

#: Bytes of a line of L1; the order of k under a window with channels last (operators' Product).
LINE, SECTOR, CHANNELS_LAST = 128.0, 32.0, 1
#: The coordinate of a window's masks; rows and columns of filters that they have bits for; orders of k that they know.
MASKED, MOST_TAPS, WALKED_PLAINLY = "masked", 31, (1, 2)


def masked_coordinate(e: Extents, z: Mapping[str, int]) -> tuple[Coordinate, ...]:
    """Return how a window's padding is found, if there is a choice: a filter's rows and columns are bits of a word."""
    if not e.window:
        return ()
    fits = e.order in WALKED_PLAINLY and z["r"] + z["s"] <= MOST_TAPS
    doc = "padding: 0 rows and columns are compared, 1 they are looked up"
    return (Coordinate(MASKED, (0, 1) if fits else (0,), 1, "layout", doc),)


def copy_lines(c: Columns, e: Extents, z: Mapping[str, int], operand: str, lanes: np.ndarray) -> np.ndarray:
    """Return the lines of 128 bytes that a warp's accesses of one operand are scattered over, ``lanes`` side by side in
    a row.

    Rows of a matrix are far apart: a line each at least, and more where elements without unit stride share sectors with
    others. Under a window with channels last they are neighbouring pixels of one image row, a step's channels apart, so
    that several share a line (wherever it begins), in each of the filter's rows that the lanes reach into.
    """
    rows = 32.0 / lanes
    if e.unit[operand] == "s" and e.window != operand:
        return rows * np.maximum(lanes * c[f"vector_{operand}"] * (STRIDED / LINE), 1.0)
    if e.window != operand or e.order != CHANNELS_LAST:
        return rows
    apart = float(z["stride_w"] * z["c"] * e.element)
    run, row = lanes * c[f"vector_{operand}"], float(max(1, z["s"] * z["c"] // z["groups"]) * e.element)
    if z["groups"] > 1:  # a group's channels of a pixel, with those of other groups between neighbouring pixels
        taps = np.maximum(run / (row / z["s"]), 1.0)
        across = np.minimum(taps, z["s"])
        pixels = np.minimum(rows * across, (rows - 1) * z["stride_w"] + across) * (taps / across)
        return np.minimum(pixels * np.minimum(apart / z["stride_w"] / LINE, 1.0) + 1.0, 32.0)
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
    ("float4_e2m1fn_x2", "float16"): (20.0, 24.0),
    ("float4_e2m1fn_x2", "bfloat16"): (20.0, 24.0),
}
#: WORD_COSTS where an instruction converts two e4m3 numbers (sm_89).
CONVERTED_COSTS = {("float8_e4m3fn", "float16"): (3.0, 4.0), ("float8_e4m3fn", "bfloat16"): (9.0, 8.0)}
#: Instructions of reading a fragment in another's order of k, beyond ldmatrix: a second load, four moves.
SPREAD_ISSUE = 5
#: Instructions of converting one element to the accumulator's type, on the CUDA cores.
ELEMENT_ISSUE = {"float8_e4m3fn": 8, "float8_e5m2": 3, "int8": 2}


def bytes_in_memory(e: Extents, operand: str) -> float:
    """Return the bytes of an element of operand "a" or "b" in global memory."""
    return element_bytes(e.dtype[operand])


def matrices(e: Extents, operand: str) -> int:
    """Return the matrices an operand consists of."""
    return e.matrices if operand == "b" else 1


def is_transposed(e: Extents, operand: str) -> bool:
    """Return whether an operand is contiguous along k, or has no axis of stride 1: lines of its tile follow k."""
    return e.unit[operand] in ("k", "s")


def entries(e: Extents, operand: str, lines: np.ndarray, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a thread's rows of A or columns of B, and its values of k, of loads in ``lines``, each ``along`` one."""
    return (lines, along) if is_transposed(e, operand) else (along, lines)


def other(operand: str) -> str:
    """Return the operand that "a" or "b" is multiplied by."""
    return "b" if operand == "a" else "a"


def bytes_in_shared(e: Extents, operand: str, copy: Numbers) -> Numbers:
    """Return the bytes of an element in shared memory, by how it gets there."""
    own = bytes_in_memory(e, operand)
    return own if own == e.element else np.where(copy == 1, own, e.element)


def scales_of_b(columns: Numbers, group: int) -> Numbers:
    """Scales that ``columns`` of B may have, of which ``group`` share one: tiles begin at multiples of ``columns``."""
    return -(-(group - np.minimum(columns & -columns, group) + columns) // group)


def scale_bytes_in_shared(e: Extents, operand: str) -> float:
    """Return the bytes of block scales in shared memory per element of k."""
    scaled = e.is_formatted and (operand == "b" or e.dtype["a"] == e.dtype["b"])
    return 1.0 / e.group if scaled else 0.0


def by_fragment(e: Extents) -> bool:
    """Return whether copy 1 can serve: nothing is widened, or both operands are K-contiguous."""
    return not e.is_widened or e.unit["a"] == e.unit["b"] == "k"


def word_costs(e: Extents, operand: str, arch: Arch) -> tuple[float, float] | None:
    """Return (Instructions, clocks of their pipe) of widening four bytes of an operand, or None."""
    types = e.dtype[operand], e.multiplied
    if bytes_in_memory(e, operand) == e.element:
        return None
    return (CONVERTED_COSTS if arch.capability >= (8, 9) else WORD_COSTS).get(types, WORD_COSTS[types])


def spread(e: Extents, operand: str, copy: Numbers) -> Numbers:
    """1 where an operand is read in the order of k of one that is widened from fragments (SPREAD), else 0."""
    wide = e.is_widened and bytes_in_memory(e, operand) == e.element
    return np.where(copy == 1, 1, 0) if wide else 0


def scale_parts(e: Extents) -> tuple[Part, ...]:
    """Tabulate the cost of scales of b's columns in a warp's iteration (mma_scales.cuh); not of block scales
    (blocks/cost.py)."""
    zeros = e.scaled - 1

    def function(v: Values) -> dict[Column, np.ndarray]:
        down, across = v["warp_m"] / 16, v["warp_n"] / 8
        ends = v["block_k"] / e.group if e.group else 0.0 * down  # groups that end in an iteration
        # A group's end: multiply-adds of its sums, and for every column a load, its address and a conversion.
        each = down * across * 4 * (2 + zeros) + across * 2 * (6 + 6 * zeros) + 12
        return {
            column.SCALE_ISSUE: ends * each,
            column.SCALE_MULTIPLIES: zeros * down * v["block_k"] / 16,
            column.SCALE_REGISTERS: (down * across * 4 if e.group else 0)
            + across * (1 + 2 * zeros)
            + down * 4 * zeros
            + 14,
        }

    of_columns = e.scaled and not (e.is_formatted or e.in_blocks)
    return (Part(("warp_m", "warp_n", "block_k"), function),) if of_columns else ()
