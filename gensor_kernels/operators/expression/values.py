"""Element-wise values: expressions over tensor reads at one position of the axes.

Arithmetic and comparisons on values build a small tree.  Functions are in one table with their NumPy meaning and their
cost, so that evaluator, operation count and code generator read the same declaration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gensor_kernels.errors import GensorError
from gensor_kernels.operators.types.dtypes import FLOAT4


class ExpressionError(GensorError, ValueError):
    """A declaration, or arrays given to it, that do not fit together; the message has the names and numbers."""


#: Operands of arithmetic; a float is a complex number to type checkers.
Operand: TypeAlias = "Value | complex"


class IndexExpression:
    """Base of axes and expressions of them (affine.py); ``affine.index`` makes a Value of one."""


class Function(NamedTuple):
    """NumPy meaning of a function, the number of its arguments, and the operations it counts as."""

    numpy: Callable[..., Any]
    arity: int
    operations: int


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


_erf_of = np.frompyfunc(math.erf, 1, 1)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(_erf_of(x), dtype=np.float64)


def _nibble(byte: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the lower (0) or upper (1) half of a byte."""
    bits = np.asarray(byte).astype(np.int64) >> (4 * np.asarray(which).astype(np.int64))
    return (bits & 15).astype(np.float64)


def _float4(bits: np.ndarray) -> np.ndarray:
    """Return the numbers of float4_e2m1fn with these bits, 0 to 15."""
    return np.asarray(FLOAT4[np.asarray(bits).astype(np.int64)])


FUNCTIONS: dict[str, Function] = {
    "add": Function(np.add, 2, 1),
    "subtract": Function(np.subtract, 2, 1),
    "multiply": Function(np.multiply, 2, 1),
    "divide": Function(np.divide, 2, 1),
    "negative": Function(np.negative, 1, 0),
    "absolute": Function(np.abs, 1, 0),
    "conjugate": Function(np.conj, 1, 0),
    "maximum": Function(np.maximum, 2, 1),
    "minimum": Function(np.minimum, 2, 1),
    "exp": Function(np.exp, 1, 1),
    "log": Function(np.log, 1, 1),
    "sqrt": Function(np.sqrt, 1, 1),
    "rsqrt": Function(_rsqrt, 1, 1),
    "tanh": Function(np.tanh, 1, 1),
    "erf": Function(_erf, 1, 1),
    "sigmoid": Function(_sigmoid, 1, 2),
    "less": Function(np.less, 2, 0),
    "less_equal": Function(np.less_equal, 2, 0),
    "greater": Function(np.greater, 2, 0),
    "greater_equal": Function(np.greater_equal, 2, 0),
    "equal": Function(np.equal, 2, 0),
    "where": Function(np.where, 3, 0),
    "nibble": Function(_nibble, 2, 0),
    "float4": Function(_float4, 1, 0),
}


class Value:
    """Base of the tree's nodes; numbers are lifted to Constant in arithmetic."""

    def __add__(self, other: Operand) -> Value:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return apply("subtract", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return apply("subtract", other, self)

    def __mul__(self, other: Operand) -> Value:
        return apply("multiply", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return apply("multiply", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return apply("divide", other, self)

    def __neg__(self) -> Value:
        return apply("negative", self)

    def nodes(self) -> Iterator[Value]:
        """Yield this node and all below it."""
        yield self


@dataclass(frozen=True)
class Constant(Value):
    """A number."""

    value: float | complex


@dataclass(frozen=True)
class Position(Value):
    """Row-major position among the reduced axes, as argmax returns it."""


@dataclass(frozen=True)
class Result(Value):
    """A field of the finished reduction by name ("" for its main value), read in a map pass."""

    field: str = ""


@dataclass(frozen=True)
class Apply(Value):
    """A function of FUNCTIONS on values."""

    function: str
    arguments: tuple[Value, ...]

    def nodes(self) -> Iterator[Value]:
        """Yield this node and all below it, arguments in order."""
        yield self
        for argument in self.arguments:
            yield from argument.nodes()


def result(field: str = "") -> Value:
    """Return the reduction's main value, or one field of its state, in a map pass."""
    return Result(field)


def position() -> Value:
    """Row-major position among the reduced axes."""
    return Position()


def value_of(item: object) -> Value:
    """``item`` as a Value: numbers become constants; ExpressionError for anything else."""
    if isinstance(item, Value):
        return item
    if isinstance(item, (int, float, complex, np.number)):
        return Constant(item if isinstance(item, (int, float, complex)) else item.item())
    hint = "; index(...) makes a number of an axis" if isinstance(item, IndexExpression) else ""
    raise ExpressionError(f"{item} is no value{hint}")


def apply(function: str, *arguments: Operand) -> Value:
    """Return ``function`` (a name in FUNCTIONS) of values and numbers."""
    if function not in FUNCTIONS:
        raise ExpressionError(f"{function!r} is not one of {', '.join(FUNCTIONS)}")
    arity = FUNCTIONS[function].arity
    if len(arguments) != arity:
        raise ExpressionError(f"{function} takes {arity} arguments, {len(arguments)} are given")
    return Apply(function, tuple(value_of(argument) for argument in arguments))
