"""Tensor expressions: an operator is a few lines over named axes.

    m, n, k = axes("m n k")
    a, b = tensor("a", m, k), tensor("b", k, n)
    matmul = Expression("c", (m, n), a[m, k] * b[k, n], SUM)

Axes of the body that the output lacks are reduced.  A ``map`` pass reads the operands again with the reduced
result, over all output axes:

    softmax = Expression("y", (i, j), x[i, j], LOGSUMEXP, over=(j,),
                         map=exp(x[i, j] - result("max")) / result("sumexp"))

Expressions chain: ``scores[b, i, j]`` reads the output of the expression ``scores``.  evaluate.py computes any
expression in float64; contraction.py finds matrix multiplications.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from gensor_database.lazy import cached_property

from .affine import Affine, Axis, Index, IndexValue, Quotient, affine, axes, extent_of, index
from .combiners import ARGMAX, ARGMIN, LOGSUMEXP, MAX, MIN, PRODUCT, SOFTMAX_AVERAGE, SUM, WELFORD, Combiner
from .values import FUNCTIONS, Apply, ExpressionError, Result, Value, apply, position, result, value_of

__all__ = [
    "ARGMAX", "ARGMIN", "LOGSUMEXP", "MAX", "MIN", "PRODUCT", "SOFTMAX_AVERAGE", "SUM", "WELFORD",
    "Affine", "Axis", "Combiner", "Expression", "ExpressionError", "Read", "Tensor", "Value",
    "absolute", "affine", "axes", "conjugate", "equal", "erf", "exp", "float4", "index", "less", "less_equal", "log",
    "maximum", "minimum", "nibble", "position", "result", "rsqrt", "sigmoid", "sqrt", "tanh", "tensor", "where",
]  # fmt: skip

absolute = partial(apply, "absolute")
conjugate = partial(apply, "conjugate")
equal = partial(apply, "equal")
erf = partial(apply, "erf")
exp = partial(apply, "exp")
float4 = partial(apply, "float4")
less = partial(apply, "less")
less_equal = partial(apply, "less_equal")
log = partial(apply, "log")
maximum = partial(apply, "maximum")
minimum = partial(apply, "minimum")
nibble = partial(apply, "nibble")
rsqrt = partial(apply, "rsqrt")
sigmoid = partial(apply, "sigmoid")
sqrt = partial(apply, "sqrt")
tanh = partial(apply, "tanh")
where = partial(apply, "where")


@dataclass(frozen=True)
class Tensor:
    """A named operand.

    ``extents`` are axes, integers or expressions of axes; ``fill`` is the value of reads outside them (None: such a
    read is an error in the declaration).
    """

    name: str
    extents: tuple[Index, ...]
    fill: float | None = None

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the extents under ``sizes``."""
        return tuple(extent_of(extent, sizes) for extent in self.extents)

    def pad(self, fill: float = 0.0) -> Tensor:
        """Return the same operand with the value ``fill`` outside its extents."""
        return replace(self, fill=float(fill))

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> Read:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.extents):
            shape = ", ".join(map(str, self.extents))
            raise ExpressionError(f"{self.name}({shape}) has {len(self.extents)} axes, read with {len(given)}")
        return Read(self, tuple(i if isinstance(i, Quotient) else affine(i) for i in given))


@dataclass(frozen=True)
class Read(Value):
    """One element of a tensor at affine indices."""

    tensor: Tensor
    indices: tuple[Affine | Quotient, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes the indices depend on, in the order of their use."""
        return tuple(dict.fromkeys(axis for item in self.indices for axis in item.axes))

    def __str__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(str, self.indices))}]"


def tensor(name: str, *extents: Index) -> Tensor:
    """Return a named operand: ``tensor("a", m, k)``."""
    return Tensor(name, extents)


@dataclass(frozen=True)
class Expression:
    """One output tensor: ``finish(combine over the reduced axes of init(body))``, then ``map``.

    Parameters
    ----------
    name : str
        Name of the output.
    axes : tuple[Axis, ...]
        Axes of the output.
    body : Value or tuple[Value, ...]
        Value at one point of the axes, or as many values as the combiner takes.
    combiner : Combiner, optional
        Reduction; without it the body is the output.
    over : tuple[Axis, ...]
        Reduced axes in order; by default the axes of the body that ``axes`` lacks, in the order of their use.
    map : Value, optional
        Value of each output from the reduced result; an axis may then be both reduced and an output axis.

    Raises
    ------
    ExpressionError
        If the parts do not fit together.

    Examples
    --------
    >>> m, n, k = axes("m n k")
    >>> a, b = tensor("a", m, k), tensor("b", k, n)
    >>> product = Expression("c", (m, n), a[m, k] * b[k, n], SUM)
    >>> product.shape({"m": 2, "n": 3, "k": 4}), product.operations({"m": 2, "n": 3, "k": 4})
    ((2, 3), 48)
    """

    name: str
    axes: tuple[Axis, ...]
    body: Any
    combiner: Combiner | None = None
    over: tuple[Axis, ...] = ()
    map: Value | None = None

    def __post_init__(self) -> None:
        body = self.body if isinstance(self.body, tuple) else (self.body,)
        object.__setattr__(self, "body", tuple(value_of(item) for item in body))
        object.__setattr__(self, "axes", tuple(self.axes))
        if not self.over:
            reduced = [axis for axis in _axes_of(self.body) if axis not in self.axes]
            object.__setattr__(self, "over", tuple(reduced))
        self._check()

    def _check(self) -> None:
        if self.combiner is None and (self.over or len(self.body) != 1 or self.map):
            names = ", ".join(axis.name for axis in self.over)
            raise ExpressionError(f"{self.name} reduces over ({names}) without a combiner")
        if self.combiner and len(self.body) != self.combiner.inputs:
            needs = f"{self.combiner.name} combines {self.combiner.inputs} values"
            raise ExpressionError(f"{self.name}: {needs}, the body has {len(self.body)}")
        both = [axis.name for axis in self.over if axis in self.axes]
        if both and self.map is None:
            raise ExpressionError(f"{self.name}: axis {both[0]} is reduced and an output axis, without a map")
        seen: dict[str, Axis] = {}
        for axis in (*self.axes, *self.over, *_axes_of((*self.body, *self._maps))):
            if seen.setdefault(axis.name, axis) != axis:
                raise ExpressionError(f"{self.name} has two different axes called {axis.name}")
        stray = [axis.name for axis in _axes_of(self._maps) if axis not in self.axes]
        if stray:
            raise ExpressionError(f"{self.name}: the map uses axis {stray[0]}, which is no output axis")
        fields = [node.field for value in self._maps for node in value.nodes() if isinstance(node, Result)]
        known = ("", *(self.combiner.fields if self.combiner else ()))
        for field in fields:
            if field not in known:
                raise ExpressionError(f"{self.name}: result({field!r}) is not one of {', '.join(known[1:])}")

    @property
    def _maps(self) -> tuple[Value, ...]:
        return () if self.map is None else (self.map,)

    @cached_property
    def parallel(self) -> tuple[Axis, ...]:
        """Output axes that are not reduced."""
        return tuple(axis for axis in self.axes if axis not in self.over)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Operands in the order of their first read, padding left out; ExpressionError if two share a name."""
        found: dict[str, Tensor] = {}
        for read in self.reads:
            plain = Tensor(read.tensor.name, read.tensor.extents)
            if found.setdefault(plain.name, plain) != plain:
                raise ExpressionError(f"{self.name} reads two different tensors called {plain.name}")
        return tuple(found.values())

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """Every read of the body and the map, in order."""
        values = (*self.body, *self._maps)
        return tuple(node for value in values for node in value.nodes() if isinstance(node, Read))

    @property
    def output(self) -> Tensor:
        """The result as an operand of a further expression."""
        return Tensor(self.name, self.axes)

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> Read:
        return self.output[indices]

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the extents of the output under ``sizes``."""
        return tuple(axis.size(sizes) for axis in self.axes)

    def operations(self, sizes: Mapping[str, int]) -> int:
        """Arithmetic operations: body and combine at every point, the map at every output."""
        points = prod(axis.size(sizes) for axis in (*self.parallel, *self.over))
        each = sum(map(_operations, self.body)) + (self.combiner.operations if self.combiner else 0)
        return points * each + sum(map(_operations, self._maps)) * prod(self.shape(sizes))

    def infer_sizes(self, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] = {}) -> dict[str, int]:
        """Return ``sizes`` and all sizes that follow from operands' ``shapes``; ExpressionError if they disagree."""
        return infer_sizes(self.tensors, shapes, sizes)


def infer_sizes(
    tensors: Iterable[Tensor], shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Sizes by axis name from the shapes of the tensors that have one in ``shapes``, checked against each other."""
    known, origin = dict(sizes), dict.fromkeys(sizes, "as given")
    present = [item for item in tensors if item.name in shapes]
    for item in present:
        shape = tuple(shapes[item.name])
        if len(shape) != len(item.extents):
            declared = ", ".join(map(str, item.extents))
            raise ExpressionError(f"{item.name} has the shape {shape}, declared are the axes ({declared})")
        for number, (extent, size) in enumerate(zip(item.extents, shape, strict=True)):
            if isinstance(extent, Axis) and extent.extent is None:
                here = f"in axis {number} of {item.name}"
                if known.setdefault(extent.name, size) != size:
                    first = f"{known[extent.name]} {origin[extent.name]}"
                    raise ExpressionError(f"axis {extent.name} is {first} and {size} {here}")
                origin.setdefault(extent.name, here)
    for item in present:
        expected = tuple(extent_of(extent, known) for extent in item.extents)
        if expected != tuple(shapes[item.name]):
            raise ExpressionError(f"{item.name} has the shape {tuple(shapes[item.name])}, expected is {expected}")
    return known


def _axes_of(values: Iterable[Value]) -> tuple[Axis, ...]:
    """Return the axes the values depend on, in the order of first use."""
    found: dict[Axis, None] = {}
    for value in values:
        for node in value.nodes():
            if isinstance(node, Read):
                found.update(dict.fromkeys(node.axes))
            elif isinstance(node, IndexValue):
                found.update(dict.fromkeys(node.index.axes))
    return tuple(found)


def _operations(value: Value) -> int:
    return sum(FUNCTIONS[node.function].operations for node in value.nodes() if isinstance(node, Apply))
