"""From the layouts of operands to the arguments of a launch: a Workload and the strides of Params.

Views are `(shape, strides in elements, dtype, alignment)`; no array is touched. Three rewrites happen, each
an identity of the product: axes that follow each other in memory for every operand are merged; a batch axis
that one operand does not have becomes more rows (or columns) of the other; a column-major result is computed
as its transpose, C^T = B^T A^T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.params import STEP_DTYPES
from gensor_kernels.operators.products.matmul import workload_from_operands
from gensor_kernels.operators.types.geometry import BATCH_AXES, Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload

if TYPE_CHECKING:
    from .arguments import Operands
    from .array import DeviceArray

LARGEST_EXTENT = 2**31 - 1


def operand_dtype(dtype: Dtype) -> Dtype:
    """Return the dtype an epilogue operand is brought to: its own where kernels read it, else a float that holds it."""
    if dtype.name in STEP_DTYPES:
        return dtype
    if dtype.kind == "c":  # of extended precision
        raise UnsupportedError(f"an epilogue operand of dtype {dtype.name}")
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


@dataclass(frozen=True)
class Problem:
    """One call as kernels see it; `operands` are the strides of each epilogue operation's operand, None without one."""

    workload: Workload
    geometry: Geometry
    operands: tuple[Strides | None, ...]


class TooManyAxesError(UnsupportedError):
    """The batch has more axes than `Params` holds; compact copies of the operands have one."""


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """Return `view` with stride 0 along the axes of `shape` it lacks or has one element of."""
    missing = len(shape) - len(view.shape)
    strides = [0] * missing + [
        0 if extent == 1 else stride for extent, stride in zip(view.shape, view.strides, strict=True)
    ]
    return View(shape, tuple(strides), view.dtype, view.alignment)


def matrix(view: View, is_row: bool) -> View:
    """Return a one-dimensional view as a matrix: one row of it (a), or one column (b); others unchanged."""
    if len(view.shape) > 1:
        return view
    (extent,), (stride,) = view.shape, view.strides
    if is_row:
        return View((1, extent), (0, stride), view.dtype, view.alignment)
    return View((extent, 1), (stride, 0), view.dtype, view.alignment)


def result_matrix(view: View, a_axes: int, b_axes: int) -> View:
    """Return the result's view (or an operand broadcast to it) with the row or column axis a 1-D operand removed."""
    shape, strides = list(view.shape), list(view.strides)
    if a_axes == 1:
        where = len(shape) - (b_axes > 1)
        shape.insert(where, 1)
        strides.insert(where, 0)
    if b_axes == 1:
        shape.append(1)
        strides.append(0)
    return View(tuple(shape), tuple(strides), view.dtype, view.alignment)


class Axes:
    """Extents and strides of all operands while the batch is folded.

    `batch` is a list of (extent, strides by operand); operands are a, b, c and the epilogue's, in this order.
    """

    def __init__(self, views: Sequence[View], sizes: tuple[int, int, int]):
        self.m, self.n, self.k = sizes
        lead = views[2].shape[:-2]
        self.batch = [
            (extent, [view.strides[axis] for view in views]) for axis, extent in enumerate(lead) if extent != 1
        ]
        self.row = [view.strides[-2] for view in views]
        self.column = [view.strides[-1] for view in views]

    def fold(self, columns: bool = True) -> None:
        """Fold to the fewest batch axes; without `columns`, none becomes more columns."""
        self._merge()
        while self.batch and (self._into_rows() or (columns and self._into_columns())):
            pass

    def _merge(self) -> None:
        merged: list[tuple[int, list[int]]] = []
        for extent, strides in self.batch:
            outer = merged[-1] if merged else None
            if outer and all(far == near * extent for far, near in zip(outer[1], strides, strict=True)):
                merged[-1] = (outer[0] * extent, strides)
            else:
                merged.append((extent, strides))
        self.batch = merged

    def _into_rows(self) -> bool:
        """Return the innermost batch axis as more rows, when b does not have it and all others step on evenly."""
        extent, strides = self.batch[-1]
        others = [index for index in range(len(strides)) if index != 1]
        if strides[1] != 0 or extent * self.m > LARGEST_EXTENT:
            return False
        if self.m == 1:
            for index in others:
                self.row[index] = strides[index]
        elif any(strides[index] != self.row[index] * self.m for index in others):
            return False
        self.m *= extent
        self.batch.pop()
        return True

    def _into_columns(self) -> bool:
        """Return the same for columns, when a does not have the axis."""
        extent, strides = self.batch[-1]
        if strides[0] != 0 or extent * self.n > LARGEST_EXTENT:
            return False
        if self.n == 1:
            self.column[1:] = strides[1:]
        elif any(far != near * self.n for far, near in zip(strides[1:], self.column[1:], strict=True)):
            return False
        self.n *= extent
        self.batch.pop()
        return True

    def transpose(self) -> None:
        """Compute C^T = B^T A^T: a and b change places, rows and columns too."""
        self.m, self.n = self.n, self.m
        self.row, self.column = self.column, self.row
        for strides in (self.row, self.column, *(strides for _, strides in self.batch)):
            strides[0], strides[1] = strides[1], strides[0]

    def strides(self, index: int) -> Strides:
        """Return what Params holds for operand `index`."""
        padding = BATCH_AXES - len(self.batch)
        lead = (0,) * padding + tuple(strides[index] for _, strides in self.batch)
        return Strides((lead[0], lead[1], lead[2]), self.row[index], self.column[index])

    def geometry(self) -> Geometry:
        """Return the kernel's view."""
        batch = (1, 1, 1, *(extent for extent, _ in self.batch))[-BATCH_AXES:]
        return Geometry((self.m, self.n, self.k), batch, *map(self.strides, range(3)))  # type: ignore[arg-type]

    def epilogue_strides(self, operands: Sequence[View | None]) -> tuple[Strides | None, ...]:
        """Return the strides of the epilogue's operands, None for operations without one."""
        numbers = count(3)
        return tuple(None if view is None else self.strides(next(numbers)) for view in operands)

    def view(self, index: int, like: View) -> View:
        """Return operand `index` (0 a, 1 b, 2 c) as a View of the folded axes."""
        shape = ((self.m, self.k), (self.k, self.n), (self.m, self.n))[index]
        lead = tuple(extent for extent, _ in self.batch)
        strides = (*(strides[index] for _, strides in self.batch), self.row[index], self.column[index])
        return View((*lead, *shape), strides, like.dtype, like.alignment)


def fold(a: View, b: View, c: View, operands: Sequence[View | None], columns: bool = True) -> tuple[Axes, list[View]]:
    """Return the axes of a product with the fewest batch axes, and the views of a, b, c and the epilogue's operands.

    Arguments are those of `multiply`; without `columns` no batch axis becomes more columns.
    """
    a_axes, b_axes, shape = len(a.shape), len(b.shape), c.shape
    c = result_matrix(c, a_axes, b_axes)
    lead, (m, n), k = c.shape[:-2], c.shape[-2:], a.shape[-1]
    views = [broadcast(matrix(a, True), (*lead, m, k)), broadcast(matrix(b, False), (*lead, k, n)), c]
    views += [result_matrix(broadcast(view, shape), a_axes, b_axes) for view in operands if view is not None]
    axes = Axes(views, (m, n, k))
    axes.fold(columns)
    if len(axes.batch) > BATCH_AXES:
        raise TooManyAxesError(f"{len(axes.batch)} batch axes that cannot be merged; kernels take {BATCH_AXES}")
    return axes, views


def multiply(
    a: View,
    b: View,
    c: View,
    operands: Sequence[View | None],
    epilogue: Sequence[str],
    math: str,
    conjugated: tuple[bool, bool] = (False, False),
) -> Problem:
    """Return the Problem of c = epilogue(a @ b).

    `a`, `b` and `c` are views of the arrays as the caller has them (one-dimensional a or b included, the batch
    not yet broadcast); `operands` are those of the epilogue's operations. Raises UnsupportedError for operands that
    kernels do not take.
    """
    axes, views = fold(a, b, c, operands)
    swapped = axes.column[2] != 1 and axes.row[2] == 1 and axes.m > 1 and axes.n > 1
    if swapped:
        axes.transpose()
        views[0], views[1] = views[1], views[0]
        conjugated = conjugated[1], conjugated[0]
    if max(axes.m, axes.n, axes.k, prod(extent for extent, _ in axes.batch)) > LARGEST_EXTENT:
        raise UnsupportedError("an extent of 2^31 or more")
    workload = workload_from_operands(
        *(axes.view(index, views[index]) for index in range(3)),
        math=math,
        conjugate="".join(name for name, flag in zip("ab", conjugated, strict=True) if flag),
        epilogue=epilogue,
    )
    geometry = replace(axes.geometry(), swapped=swapped)
    return Problem(workload, geometry, axes.epilogue_strides(operands))


def view_of(array: DeviceArray, pointer: int) -> View:
    """Return the View of an array at address `pointer`; UnsupportedError where strides are no multiples of elements."""
    size = array.dtype.itemsize
    if pointer % size or any(stride % size for stride in array.strides):
        raise UnsupportedError("elements that lie off their natural alignment")
    alignment = next((width for width in (16, 8, 4, 2) if pointer % width == 0), 1)
    strides = tuple(stride // size for stride in array.strides)
    return View(tuple(array.shape), strides, array.dtype.name, alignment)


def byte_range(array: DeviceArray) -> tuple[int, int]:
    """Return (first, past the last) byte of an array's elements, relative to the address of element 0."""
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return low, high + array.dtype.itemsize


def clearance(array: DeviceArray, out: DeviceArray) -> tuple[int, int]:
    """Return exclusive bounds of `out` minus `array`, in bytes, where they overlap; (0, 0) without both."""
    if array is None or out is None:
        return 0, 0
    (low, high), (begin, end) = byte_range(array), byte_range(out)
    return low - end, high - begin


def overlaps(pointer: Callable[[DeviceArray], int], operands: Operands) -> bool:
    """Return whether `out` shares memory with what is read: then it cannot be computed several times."""
    out = operands.out
    if out is None:
        return False
    at, read = pointer(out), operands._replace(out=None).arrays()
    pairs = ((array, clearance(array, out)) for array in read)
    return any(low < at - pointer(array) < high for array, (low, high) in pairs)


def repeats_itself(array: DeviceArray) -> bool:
    """Return whether two elements of an array may share memory."""
    reach = array.dtype.itemsize
    axes = sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1)
    for stride, extent in axes:
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def is_odd(array: DeviceArray, pointer: int) -> bool:
    """Return whether elements are not naturally aligned."""
    size = array.dtype.itemsize
    return bool(pointer % size or any(stride % size for stride in array.strides))
