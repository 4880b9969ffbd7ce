"""Rows of x, reduced or mapped one by one: the base of reductions, softmax, norms and element-wise operators.

x is [batch, m, n, i, j, k]: (i, j, k) are reduced, the outermost digit first; batch, m and n are kept.  Rows are
contiguous along k (layout "k"; n = 1), or adjacent columns along n (layout "n"), or neither ("s"; n = 1).  Layouts
"ijk", "ijn" and "ijs" mean that reduced axes do not merge into one, so that kernels count k in three digits; in all
other layouts i = j = 1.  views.py finds this view of arrays in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Rows, Side
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator, even
from gensor_kernels.operators.types.dtypes import decode, facts
from gensor_kernels.operators.types.geometry import Geometry, RowsTail, Strides
from gensor_kernels.operators.types.workload import Workload

#: Memory order of x's rows, by the last letter of its layout.
ALONG = ("k", "n", "s")
#: Kernels count k in 32 bits, with room for a step past its end.
LARGEST_K, LARGEST_LINES = 2**30, 2**31 - 1
#: How many sizes portfolios are chosen for, in addition to tuned sizes; logarithms to base 2 of their lines and k.
USUAL, USUAL_LEAST, USUAL_MOST = 32, (0, 5), (16, 15)

Reference = Callable[[np.ndarray, float], np.ndarray]


@dataclass(frozen=True)
class RowOperator(Operator):
    """An operator on rows."""

    #: name for kernels and tolerances
    operation: str = ""
    #: float64 reference ``row(x, value)`` over the last axis of x (..., k)
    row: Reference = lambda x, value: x
    #: whether there is one output per element
    maps: bool = False
    #: the operator's scalar argument, if no size gives it: eps of a norm.  It is a run-time argument of kernels; this
    #: value serves verification, and is large enough to show in results.
    value: float = 0.0

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return x with the reduced axes last, and C: the same axes for a map, else [batch, n, m]."""
        size, (along, digits) = workload.size, layout_of(workload)
        batch, m, n, k = (size[axis] for axis in ("batch", "m", "n", "k"))
        whole = (size.get("i", 1), size.get("j", 1)) == (1, 1)
        if (along != "n" and n != 1) or (digits == 1 and not whole):
            raise ValueError(f"layout {workload.layouts['a']!r} has no axis n, or none of i and j: {dict(size)}")
        step, c_step = 2 if along == "s" else 1, 2 if workload.layouts["c"] == "s" else 1
        if self.maps:
            order = (0, 1, 3, 2) if along == "n" else (2, 0, 1, 3)
            shape = (batch, m, n, k)
            return Operand("a", shape, order, 1, step), Operand("c", shape, order, 1, c_step)
        # Kept axes stand between the digits of k, so that the digits do not merge.
        apart = (3, 0, 4, 1, 5, 2) if along == "n" else (2, 3, 0, 4, 1, 5)
        return (
            Operand("a", (batch, m, n, size["i"], size["j"], k), apart, 1, step),
            Operand("c", (batch, n, m), (0, 2, 1) if along == "n" else (0, 1, 2), 1, c_step),
        )

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view with one batch axis; for columns that are mapped, m is a batch axis too."""
        size, (along, _) = workload.size, layout_of(workload)
        batch, m, n, k, a = size["batch"], size["m"], size["n"], size["k"], strides["a"]
        c = self.output(workload, strides["c"])
        if along == "n" and a[2] != 1 and n > 1:
            raise UnsupportedError(f"columns of stride {a[2]}: expected 1")
        if self.maps:
            sizes, extents = ((k, n, k), (1, batch, m)) if along == "n" else ((m, k, k), (1, 1, batch))
            where = Strides((0, a[0], a[1]), 0, a[3]) if along == "n" else Strides((0, 0, a[0]), a[1], a[3])
            return check_extents(Geometry(sizes, extents, where, c=c, k_digits=(1, k), tail=self.tail(workload).pack()))
        outer, middle = size["i"], size["j"]
        tail = self.tail(workload, (a[3], a[4]), (middle, k))
        where = Strides((0, 0, a[0]), a[1], a[5])
        sizes = (m, n, outer * middle * k)
        return check_extents(Geometry(sizes, (1, 1, batch), where, c=c, k_digits=(middle, k), tail=tail.pack()))

    def tail(
        self, workload: Workload, strides: tuple[int, int] = (0, 0), extents: tuple[int, int] = (1, 1)
    ) -> RowsTail:
        """Return the kernel arguments other than sizes and strides, with the number of verification."""
        return RowsTail(self.value_of(workload), strides, extents)

    def value_of(self, workload: Workload) -> float:
        """Return the scalar argument: the size ddof, else ``value``."""
        return float(workload.size.get("ddof", self.value))

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides of rows along m, or along k for mapped columns."""
        if not self.maps:
            return Strides((0, 0, strides[0]), strides[2], strides[1])
        batch, m, n, k = strides
        return Strides((0, batch, m), k, n) if layout_of(workload)[0] == "n" else Strides((0, 0, batch), m, k)

    def rows(self, workload: Workload) -> Rows:
        """Return the Workload as Rows, with all kept axes but n in ``lines``."""
        size, types, (along, digits) = workload.size, workload.dtype, layout_of(workload)
        sides = (Side(types[name], workload.layouts[name], workload.align[name]) for name in "ac")
        k = size.get("i", 1) * size.get("j", 1) * size["k"]
        lines = size["batch"] * size["m"]
        return Rows(self.operation, self.maps, lines, size["n"], k, along, digits, *sides)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the reference of x, [batch, m, n, i, j, k] or [batch, m, n, k], in float64; see Operator."""
        from gensor_kernels.operators.tolerance import rows as tolerance_rows

        x = decode(workload.dtype["a"], arrays["a"])
        x = x.reshape(*x.shape[:3], -1) if not self.maps else x
        value = self.value_of(workload)
        with np.errstate(all="ignore"):
            values = self.row(x, value)
        bound = tolerance_rows.bound(
            self.operation, x, values, workload.accumulator, structured=conditions.structured, value=value
        )
        return (values, bound) if self.maps else (values.transpose(0, 2, 1), bound.transpose(0, 2, 1))

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the wanted sizes, rounded up to the alignment class; i and j only if k has three digits."""
        along, digits = layout_of(workload)
        inner = "n" if along == "n" else "k"
        least = workload.align["a"] // facts(workload.dtype["a"]).itemsize
        sizes = {"batch": wanted["batch"], "m": wanted["m"], "n": 1, "k": wanted["k"]}
        if along == "n":
            sizes["n"] = wanted["n"]
        sizes[inner] = -(-sizes[inner] // least) * least
        if digits == 3:
            sizes |= {"i": wanted.get("i", 2), "j": wanted.get("j", 3)}
        return workload.with_sizes(**sizes)

    def usual(self, workload: Workload) -> list[Workload]:
        """Return row counts and lengths that fill their range evenly in logarithms."""
        along = layout_of(workload)[0]
        if self.operation == "copy":
            return [self.resize(workload, {"batch": 1, "m": 1, "n": 1, "k": 4**p}) for p in range(6, 14)]
        return [
            self.resize(workload, {"batch": 1, "m": 1, "n": lines, "k": k} if along == "n"
                       else {"batch": 1, "m": lines, "n": 1, "k": k})
            for lines, k in np.round(even(USUAL, USUAL_LEAST, USUAL_MOST)).astype(int).tolist()
        ]  # fmt: skip


def layout_of(workload: Workload) -> tuple[str, int]:
    """Return (along, digits) of x: "k", "n" or "s", and 1 or 3; ValueError for an unknown layout."""
    text = workload.layouts["a"]
    if text[-1:] not in ALONG or text[:-1] not in ("", "ij") or (text[:-1] and "i" not in workload.size):
        raise ValueError(f"'layout' of a is one of {', '.join(ALONG)}, ijk, ijn, ijs, not {text!r}")
    if workload.layouts["c"] not in (*ALONG, "m"):
        raise ValueError(f"'layout' of c is one of m, {', '.join(ALONG)}, not {workload.layouts['c']!r}")
    return text[-1], 3 if text[:-1] else 1


def check_extents(geometry: Geometry) -> Geometry:
    """Return ``geometry``; UnsupportedError for more rows or elements than kernels count."""
    m, n, k = geometry.sizes
    lines = geometry.batch[0] * geometry.batch[1] * geometry.batch[2] * m
    if k > LARGEST_K or lines > LARGEST_LINES or n > LARGEST_K:
        raise UnsupportedError(f"{lines} x {n} rows of {k} elements: more than kernels count in 32 bits")
    return geometry
