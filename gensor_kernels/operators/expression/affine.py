"""Axes and the integer expressions made of them: index maps and extents.

``2 * oh + r - 1`` over the axes ``oh`` and ``r`` is an index map where a tensor is read, and the same
arithmetic over the axes' extents is an extent: ``Axis("oh", (h + 2 - r) // 2 + 1)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .values import ExpressionError, IndexExpression, Value, apply

Index: TypeAlias = "Axis | Affine | Quotient | int"
#: A position along an axis, or an array of them.
Position: TypeAlias = "int | np.ndarray"


class _Arithmetic(IndexExpression):
    """Arithmetic of axes and affine expressions; comparisons give element-wise values (values.py)."""

    def __add__(self, other: Index) -> Affine:
        return affine(self).plus(affine(other), 1)

    def __sub__(self, other: Index) -> Affine:
        return affine(self).plus(affine(other), -1)

    def __radd__(self, other: Index) -> Affine:
        return affine(other).plus(affine(self), 1)

    def __rsub__(self, other: Index) -> Affine:
        return affine(other).plus(affine(self), -1)

    def __mul__(self, factor: int) -> Affine:
        if not isinstance(factor, (int, np.integer)):
            raise ExpressionError(f"({self}) * {factor!r} is no integer combination of axes")
        return Affine((), 0).plus(affine(self), int(factor))

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __floordiv__(self, divisor: int) -> Quotient:
        return Quotient(affine(self), divisor)

    def exactly(self, divisor: int) -> Quotient:
        """Return the quotient by ``divisor``, valid where it has no remainder; other reads give the fill value."""
        return Quotient(affine(self), divisor, exact=True)

    def __lt__(self, other: Index) -> Value:
        return apply("less", index(self), index(other))

    def __le__(self, other: Index) -> Value:
        return apply("less_equal", index(self), index(other))

    def __gt__(self, other: Index) -> Value:
        return apply("greater", index(self), index(other))

    def __ge__(self, other: Index) -> Value:
        return apply("greater_equal", index(self), index(other))


@dataclass(frozen=True)
class Axis(_Arithmetic):
    """A named loop.  ``extent`` is None for an independent size, or an expression of other axes' extents."""

    name: str
    extent: Axis | Affine | Quotient | int | None = None

    def size(self, sizes: Mapping[str, int]) -> int:
        """Return the extent under ``sizes`` (by axis name); ExpressionError names a missing or negative size."""
        if self.extent is None:
            if self.name not in sizes:
                known = ", ".join(f"{name} = {value}" for name, value in sizes.items())
                raise ExpressionError(f"the size of axis {self.name} is not known (known: {known or 'none'})")
            return int(sizes[self.name])
        extent = extent_of(self.extent, sizes)
        if extent < 0:
            raise ExpressionError(f"axis {self.name} has the extent {self.extent} = {extent}")
        return extent

    def __str__(self) -> str:
        return self.name


def axes(names: str) -> tuple[Axis, ...]:
    """Return the axes with independent sizes: ``m, n, k = axes("m n k")``."""
    return tuple(Axis(name) for name in names.split())


@dataclass(frozen=True)
class Affine(_Arithmetic):
    """An integer combination of axes plus a constant; terms are in the order of first use, without zero
    coefficients."""

    terms: tuple[tuple[Axis, int], ...]
    constant: int

    def plus(self, other: Affine, factor: int) -> Affine:
        """``self + factor * other``."""
        total = dict(self.terms)
        for axis, coefficient in other.terms:
            total[axis] = total.get(axis, 0) + factor * coefficient
        terms = tuple((axis, coefficient) for axis, coefficient in total.items() if coefficient)
        return Affine(terms, self.constant + factor * other.constant)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes with a coefficient."""
        return tuple(axis for axis, _ in self.terms)

    def coefficient(self, axis: Axis) -> int:
        """Coefficient of ``axis``, 0 where it does not occur."""
        return dict(self.terms).get(axis, 0)

    def value(self, positions: Mapping[str, Position]) -> Position:
        """Return the value at ``positions`` (integers or arrays by axis name)."""
        return sum((c * positions[axis.name] for axis, c in self.terms), start=self.constant)

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Return the smallest and the largest value over all positions; no axis may have extent 0."""
        spans = [(axis.size(sizes) - 1) * coefficient for axis, coefficient in self.terms]
        return self.constant + sum(min(s, 0) for s in spans), self.constant + sum(max(s, 0) for s in spans)

    def __str__(self) -> str:
        parts = [f"{c} * {a}" if abs(c) != 1 else ("-" if c < 0 else "") + a.name for a, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@dataclass(frozen=True)
class Quotient(IndexExpression):
    """``numerator // divisor``; if ``exact``, only positions where the division leaves no remainder are valid."""

    numerator: Affine
    divisor: int
    exact: bool = False

    def __post_init__(self) -> None:
        if self.divisor < 1:
            raise ExpressionError(f"({self.numerator}) // {self.divisor}: a divisor is at least 1")

    def __add__(self, other: int) -> Quotient:
        return Quotient(self.numerator + other * self.divisor, self.divisor, self.exact)

    def __sub__(self, other: int) -> Quotient:
        return self + -other

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of the numerator."""
        return self.numerator.axes

    def value(self, positions: Mapping[str, Position]) -> Position:
        """Value at ``positions``, rounded down."""
        return self.numerator.value(positions) // self.divisor

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value over all positions."""
        low, high = self.numerator.bounds(sizes)
        return low // self.divisor, high // self.divisor

    def __str__(self) -> str:
        return f"({self.numerator}) {'/' if self.exact else '//'} {self.divisor}"


def affine(value: object) -> Affine:
    """``value`` (an Axis, Affine or integer) as an Affine."""
    if isinstance(value, Affine):
        return value
    if isinstance(value, Axis):
        return Affine(((value, 1),), 0)
    if isinstance(value, (int, np.integer)):
        return Affine((), int(value))
    raise ExpressionError(f"{value!r} is no axis, integer or combination of them")


def extent_of(extent: Index, sizes: Mapping[str, int]) -> int:
    """``extent`` with every axis standing for its size."""
    expression = extent if isinstance(extent, Quotient) else affine(extent)
    return int(expression.value({axis.name: axis.size(sizes) for axis in expression.axes}))


@dataclass(frozen=True)
class IndexValue(Value):
    """An index expression used as a number, as in a causal mask."""

    index: Affine | Quotient


def index(expression: IndexExpression | int) -> Value:
    """Return an axis or index expression as a number."""
    return IndexValue(expression if isinstance(expression, Quotient) else affine(expression))
