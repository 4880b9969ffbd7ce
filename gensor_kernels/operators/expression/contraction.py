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
from .values import Apply, Value


@dataclass(frozen=True)
class Access:
    """One operand of a contraction: its tensor, index maps, and whether it is conjugated."""

    tensor: Tensor
    indices: tuple[Affine, ...]
    conjugated: bool = False

    def stride(self, axis: Axis, strides: tuple[int, ...]) -> int:
        """Return the elements the address moves by when ``axis`` advances, in a tensor of ``strides`` (elements)."""
        return sum(i.coefficient(axis) * stride for i, stride in zip(self.indices, strides, strict=True))


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
