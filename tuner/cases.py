"""The sizes and arrays a Program is verified on.

A verification case must exercise every branch a Program has (docs/design: verified means executed): at least
two full blocks plus a partial one on each axis, more k-iterations per split than stages + 2 with a partial last
one, splits that are non-empty and unequal, a second batch, k = 0, and a single partial block. Sizes are
multiples of what the workload's alignment class promises, and of nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gensor_kernels.operators.dtypes import facts, round_to
from gensor_kernels.operators.epilogue import OPERATIONS
from gensor_kernels.operators.workload import Workload

PADDING = 3  # vectors added behind each row, so that a row's end is not the next row's start


@dataclass(frozen=True)
class Case:
    """One problem: its purpose, its extents and the epilogue operations it runs."""

    name: str
    batch: int
    m: int
    n: int
    k: int
    epilogue: tuple[str, ...]


def granularity(workload: Workload) -> dict[str, int]:
    """Elements of which each extent is a multiple in this class: an axis that is some operand's unit-stride
    axis is a multiple of that operand's vector."""
    step = {"m": 1, "n": 1, "k": 1}
    for operand, axis in workload.layout:
        if axis in step:
            elements = workload.align[operand] // facts(workload.dtype[operand]).itemsize
            step[axis] = max(step[axis], elements)
    return step


def cases(workload: Workload, tile: Mapping[str, int]) -> list[Case]:
    """The cases for a Program with these runtime numbers (`family.tile`): m, n, k, stages, split, raster."""
    step = granularity(workload)
    ragged = {axis: _partial(tile[axis], step[axis]) for axis in "mnk"}
    # A raster group of w tile rows has a narrower last group only when the rows are no multiple of w.
    rows = max(2, tile["raster"] + 1 if 1 < tile["raster"] <= 4 else 2)
    per_split = tile["stages"] + 4
    iterations = per_split * tile["split"] - 1  # the last split has one iteration fewer than the others
    k = iterations * tile["k"] - (tile["k"] - ragged["k"] if ragged["k"] else 0)
    main = Case("blocks", 1, rows * tile["m"] + ragged["m"], 2 * tile["n"] + ragged["n"], k, epilogue_for(workload))
    small = {axis: ragged[axis] or tile[axis] for axis in "mnk"}
    return [
        main,
        Case("batch", 3, small["m"], small["n"], small["k"], workload.epilogue),
        Case("empty k", 2, small["m"], small["n"], 0, epilogue_for(workload)),
        *([Case("empty splits", 1, small["m"], small["n"], tile["k"], ())] if tile["split"] > 1 else []),
    ]


def _partial(tile: int, step: int) -> int:
    """Extent of the partial block: about 5/8 of a tile, a multiple of `step`, 0 where no partial can exist."""
    return min(tile - step, max(step, (tile * 5 // 8) // step * step)) if step < tile else 0


def epilogue_for(workload: Workload) -> tuple[str, ...]:
    """The epilogue a verification runs: the workload's own, or one that takes operands of every broadcast."""
    if workload.epilogue:
        return workload.epilogue
    if workload.accumulator == "int32":
        return ("bias", "relu", "scale", "add")
    return ("scale", "bias", "add", "silu")


@dataclass
class Operand:
    """An array inside a larger poisoned buffer: `base` in elements, `strides` in elements (batch, row, column)."""

    buffer: np.ndarray
    base: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    values: np.ndarray  # float64, shape (batch, rows, columns)

    @property
    def address(self) -> int:
        """Address in bytes of element (0, 0, 0)."""
        return self.buffer.ctypes.data + self.base * self.buffer.itemsize

    def view(self) -> np.ndarray:
        """The array as the kernel sees it, in storage type."""
        size = self.buffer.itemsize
        return np.lib.stride_tricks.as_strided(
            self.buffer[self.base :], self.shape, tuple(stride * size for stride in self.strides)
        )


def storage(name: str) -> np.dtype:
    """The NumPy type holding values of the dtype called `name`; bfloat16 is held as its 16 bits."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def to_storage(values: np.ndarray, name: str) -> np.ndarray:
    """`values` (float64, exactly representable) in the storage type of `name`."""
    if name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(name)


def from_storage(array: np.ndarray, name: str) -> np.ndarray:
    """Stored values as float64."""
    if name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def place(values: np.ndarray, name: str, unit: int | None, alignment: int) -> Operand:
    """`values` (batch, rows, columns) in a buffer with padded rows, axis `unit` (1 or 2) of unit stride.

    The pitch is the smallest that the alignment class allows beyond the row, so it is not a multiple of a larger
    vector; `unit` None gives both axes a stride above 1. Everything around the elements is NaN (or 0x55), and the
    first element is aligned to `alignment` bytes and no more.
    """
    batch, rows, columns = values.shape
    size = storage(name).itemsize
    vector = max(1, alignment // size)
    inner = {2: columns, 1: rows, None: 2 * columns + 1}[unit]
    pitch = -(-inner // vector) * vector + (PADDING * vector if vector * size < 16 else vector)
    outer = (columns if unit == 1 else rows) * pitch + vector
    strides = {2: (outer, pitch, 1), 1: (outer, 1, pitch), None: (outer, pitch, 2)}[unit]
    raw = np.full((batch * outer + pitch + 64) * size + 64, 0x7F if size == 1 else 0xFF, np.uint8)
    lead = (-raw.ctypes.data) % 64 + (alignment if alignment < 16 else 64)
    usable = (len(raw) - lead) // size * size
    operand = Operand(raw[lead : lead + usable].view(storage(name)), 0, values.shape, strides, values)
    operand.view()[...] = to_storage(values, name)
    return operand


def draw(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Random values of dtype `name` as float64: standard normal, or integers over the whole of int8."""
    if facts(name).is_integer:
        span = 128 if name == "int8" else 1 << 20
        return rng.integers(-span, span, shape).astype(np.float64)
    return round_to(name, rng.standard_normal(shape))


def takes_operand(name: str) -> bool:
    """Whether epilogue operation `name` reads an operand."""
    return OPERATIONS[name].takes_operand
