"""Contractions: finds expressions that are matrix products, and the memory layout of their operands.

An expression that sums the product of two reads is C[batch, M, N] = sum over K of A[batch, M, K] B[batch, K, N], where
batch, M, N and K are groups of axes.  Each operand's address is affine in all of them, so that convolutions,
transposes, diagonals and einsum use the same loops without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .affine import Affine, Axis, Quotient
from .combiners import SUM
from .expression import Expression, Read, Tensor
from .values import Apply, ExpressionError, Value, apply


@dataclass(frozen=True)
class Guard:
    """A predicate of a padded read: ``0 <= index < extent`` along one axis of the operand."""

    index: Affine
    extent: int


@dataclass(frozen=True)
class Access:
    """One operand of a contraction: its tensor, index maps, and whether it is conjugated."""

    tensor: Tensor
    indices: tuple[Affine, ...]
    conjugated: bool = False

    def stride(self, axis: Axis, strides: tuple[int, ...]) -> int:
        """Return the elements the address moves by when ``axis`` advances, in a tensor of ``strides`` (elements)."""
        return sum(i.coefficient(axis) * stride for i, stride in zip(self.indices, strides, strict=True))

    def offset(self, strides: tuple[int, ...]) -> int:
        """Return the element at which the access starts when every axis is 0 (negative inside leading padding)."""
        return sum(i.constant * stride for i, stride in zip(self.indices, strides, strict=True))

    def guards(self, shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[Guard, ...]:
        """Predicates a read needs at these sizes: one per axis of the operand whose index may leave it."""
        found = []
        for index, extent in zip(self.indices, shape, strict=True):
            low, high = index.bounds(sizes)
            if low < 0 or high >= extent:
                found.append(Guard(index, extent))
        return tuple(found)


@dataclass(frozen=True)
class Contraction:
    """Groups of axes and the three accesses.  A reads batch, m and k; B reads batch, k and n."""

    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    a: Access
    b: Access
    c: Access

    def extents(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Flattened size of each group: {"batch": ..., "m": ..., "n": ..., "k": ...}."""
        groups = {"batch": self.batch, "m": self.m, "n": self.n, "k": self.k}
        return {name: math.prod(axis.size(sizes) for axis in group) for name, group in groups.items()}

    def strides(self, operand: str, strides: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Element strides of "a", "b" or "c" along every axis of each group, for a tensor of ``strides``."""
        access: Access = getattr(self, operand)
        groups = {"batch": self.batch, "m": self.m, "n": self.n, "k": self.k}
        return {name: tuple(access.stride(axis, strides) for axis in group) for name, group in groups.items()}


def contraction(expression: Expression) -> Contraction | None:
    """Return the contraction ``expression`` is, or None when it is none.

    It is one when the sum of the product of two reads (either may be conjugated), whose indices are affine
    and whose padding is 0, is all there is.  Output axes of both operands or of neither are batch axes; a
    reduced axis that one operand lacks is a K axis of stride 0 there.
    """
    factors = _factors(expression)
    if factors is None:
        return None
    (a, b), output = factors, expression.axes
    in_a, in_b = _axes(a), _axes(b)
    return Contraction(
        batch=tuple(axis for axis in output if (axis in in_a) == (axis in in_b)),
        m=tuple(axis for axis in output if axis in in_a and axis not in in_b),
        n=tuple(axis for axis in output if axis in in_b and axis not in in_a),
        k=expression.over,
        a=a,
        b=b,
        c=Access(expression.output, tuple(Affine(((axis, 1),), 0) for axis in output)),
    )


def _axes(access: Access) -> set[Axis]:
    return {axis for index in access.indices for axis in index.axes}


def _factors(expression: Expression) -> tuple[Access, Access] | None:
    body = expression.body[0]
    product = isinstance(body, Apply) and body.function == "multiply"
    if expression.combiner is not SUM or expression.map is not None or not product:
        return None
    a, b = (_access(value) for value in body.arguments)
    return None if a is None or b is None else (a, b)


def _access(value: Value) -> Access | None:
    conjugated = isinstance(value, Apply) and value.function == "conjugate"
    read = value.arguments[0] if isinstance(value, Apply) and conjugated else value
    if not isinstance(read, Read) or read.tensor.fill not in (None, 0.0):
        return None
    indices = tuple(index for index in read.indices if not isinstance(index, Quotient))
    return Access(read.tensor, indices, conjugated) if len(indices) == len(read.indices) else None


def einsum(text: str, name: str = "out") -> Expression:
    """Return the expression of an einsum of one or more operands: ``"b h i d, b h j d -> b h i j"`` or ``"ij,jk"``.

    Axes are single letters, or words where an operand's axes are separated by spaces.  Operands are called a,
    b, c and so on.  Without an arrow the output has the axes that occur once, in alphabetical order, as in
    NumPy.  A letter repeated within an operand takes its diagonal.
    """
    left, arrow, right = text.partition("->")
    words = [_words(part) for part in left.split(",")]
    flat = [word for part in words for word in part]
    output = _words(right) if arrow else sorted(word for word in set(flat) if flat.count(word) == 1)
    unknown = [word for word in output if word not in flat]
    if unknown or len(set(output)) != len(output) or not all(word.isidentifier() for word in flat):
        raise ExpressionError(f"einsum {text!r}: the output {' '.join(output)!r} does not fit {' '.join(flat)!r}")
    axis = {word: Axis(word) for word in flat}
    body: Value | None = None
    for letter, part in zip("abcdefghijklmnopqrstuvwxyz", words, strict=False):
        read = Tensor(letter, tuple(axis[word] for word in part))[tuple(axis[word] for word in part)]
        body = read if body is None else apply("multiply", body, read)
    reduced = len(set(flat)) > len(output)
    return Expression(name, tuple(axis[word] for word in output), body, SUM if reduced else None)


def _words(part: str) -> list[str]:
    part = part.strip()
    return part.split() if " " in part else list(part)
