"""Sums of products that a graph computes of one tensor: every spelling of a function has the same sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import axes_of, floats, number

#: A tensor or a function: ("x",), ("constant", name), (function, argument) or (function, argument, axes).
Atom: TypeAlias = tuple[Any, ...]
#: Atoms with their exponents.
Product: TypeAlias = frozenset[tuple[Atom, float]]
#: Coefficients by product; numbers belong to the empty one.
Sum: TypeAlias = dict[Product, float]
#: The same as a part of an atom.
Frozen: TypeAlias = frozenset[tuple[Product, float]]

ONE: Product = frozenset()
X: Sum = {frozenset({(("x",), 1.0)}): 1.0}
#: Products of a sum up to which patterns are recognised.
MOST = 32
#: Relative difference of equal numbers: constants may be rounded to 16 bits.
ROUNDING = 2e-3


def constant(value: float) -> Sum:
    """Return a number."""
    return {ONE: value} if value else {}


def add(a: Sum, b: Sum, factor: float = 1.0) -> Sum:
    """Return a + factor * b; terms that cancel up to rounding disappear."""
    found = dict(a)
    for product, value in b.items():
        before, more = found.pop(product, 0.0), factor * value
        if abs(before + more) > 1e-6 * max(abs(before), abs(more)):
            found[product] = before + more
    return found


def multiply(a: Sum, b: Sum) -> Sum:
    """Return a * b, multiplied out; OverflowError where that has many terms."""
    if len(a) * len(b) > MOST**2 // 4:
        raise OverflowError
    found: Sum = {}
    for first, x in a.items():
        for second, y in b.items():
            exponents = dict(first)
            for atom, exponent in second:
                exponents[atom] = exponents.get(atom, 0.0) + exponent
            found = add(found, {frozenset((atom, each) for atom, each in exponents.items() if each): x * y})
    return found


def power(base: Sum, exponent: float) -> Sum | None:
    """Return base ** exponent, None where it is unknown: sums to 2 and 3 are multiplied out, others stay atoms."""
    whole = exponent == int(exponent)
    if len(base) == 1:
        ((product, value),) = base.items()
        if whole or (value > 0 and all(atom[0] == "sum" for atom, _ in product)):
            return {frozenset((atom, each * exponent) for atom, each in product): value**exponent}
    if exponent in (1, 2, 3):
        found = base
        for _ in range(int(exponent) - 1):
            found = multiply(found, base)
        return found
    scale = max((value for product, value in base.items() if product), default=0.0)
    if scale <= 0:
        return None
    rest = multiply(base, constant(1 / scale))
    if exponent == -1 and rest.get(ONE) == 1 and len(rest) == 2:  # 1 / (1 + exp(-u))
        ((atom, each), *more) = next(product for product in rest if product)
        if atom[0] == "exp" and each == 1 and not more:
            return multiply(function("sigmoid", multiply(thaw(atom[1]), constant(-1))), constant(1 / scale))
    return multiply(function("sum", rest, exponent=exponent), constant(scale**exponent))


def freeze(value: Sum) -> Frozen:
    """Return a sum as a part of an atom, its numbers with five digits."""
    return frozenset((product, float(f"{each:.5g}")) for product, each in value.items())


def thaw(value: Frozen) -> Sum:
    """Return a part of an atom as a sum."""
    return dict(value)


def function(name: str, argument: Sum, *more: Any, exponent: float = 1.0) -> Sum:
    """Return a function of a sum as an atom."""
    return {frozenset({((name, freeze(argument), *more), exponent)}): 1.0}


def sigmoid(u: Sum) -> Sum:
    """Return 1 / (1 + exp(-u))."""
    return function("sigmoid", u)


def tanh(u: Sum) -> Sum:
    """Return tanh(u), which is 2 sigmoid(2 u) - 1."""
    return add(multiply(sigmoid(multiply(u, constant(2))), constant(2)), constant(-1))


def erf(u: Sum) -> Sum:
    """Return erf(u)."""
    return function("erf", u)


def clip(u: Sum, low: float, high: float) -> Sum:
    """Return u between two numbers, by a function between 0 and 1."""
    part = multiply(add(u, constant(-low)), constant(1 / (high - low)))
    return add(multiply(function("clip", part), constant(high - low)), constant(low))


def mean(u: Sum, axes: tuple[int, ...]) -> Sum:
    """Return the mean over axes: means over the same axes, and numbers, are factors of it."""
    found: Sum = {}
    for product, value in u.items():
        fixed = frozenset(each for each in product if is_fixed(each[0], axes))
        rest = product - fixed
        inner = function("mean", {rest: 1.0}, axes) if rest else constant(1)
        found = add(found, multiply({fixed: value}, inner))
    return found


def is_fixed(atom: Atom, axes: tuple[int, ...]) -> bool:
    """Return whether an atom is the same along some axes."""
    if len(atom) > 2:
        return bool(atom[2] == axes)
    is_sum = atom[0] not in ("x", "constant")
    return is_sum and all(is_fixed(each, axes) for product, _ in atom[1] for each, _ in product)


def alike(a: Any, b: Any) -> bool:
    """Return whether two sums, or parts of them, are equal up to rounding of their numbers."""
    if isinstance(a, dict) and isinstance(b, dict):
        return alike(frozenset(a.items()), frozenset(b.items()))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=ROUNDING)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if not (isinstance(a, frozenset) and isinstance(b, frozenset)):
        return bool(a == b)
    left = list(b)
    for each in a:
        found = next((other for other in left if alike(each, other)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


class Algebra:
    """Tensors as functions of one tensor `x` and of constants."""

    def __init__(self, links: Links, x: str):
        self.links, self.graph, self._known = links, links.graph, dict[str, Sum | None]({x: X})
        #: Shapes with axes of one element, by tensors of reductions that have lost these axes.
        self.whole = dict[str, tuple[int, ...]]()

    def of(self, name: str) -> Sum | None:
        """Return what a tensor is, or None if it depends on others or is unknown."""
        if name not in self._known:
            self._known[name] = None
            with suppress(OverflowError):
                found = self._find(name)
                self._known[name] = found if found is not None and len(found) <= MOST else None
        return self._known[name]

    def _find(self, name: str) -> Sum | None:
        if name in self.graph.constants:
            value = number(self.graph, name)
            known = floats(self.graph, name) and (value is None or math.isfinite(value))
            atom: Sum = {frozenset({(("constant", name), 1.0)}): 1.0}
            return None if not known else atom if value is None else constant(value)
        node = self.links.maker(name)
        if node is None or node.op not in RULES or node.epilogue or not floats(self.graph, name):
            return None
        names = node.inputs if node.op in PAIRS or node.op in EXTREMES else node.inputs[:1]
        given = [
            constant(bound) if (bound := number(self.graph, each)) is not None else self.of(each) for each in names
        ]
        shapes = {self.whole.get(each, ()) for each in names if number(self.graph, each) is None}
        if None in given or len(shapes) > 1:
            return None
        (whole,) = shapes or {()}
        if node.op in VIEWS:
            same = whole or (self.graph.static(node.inputs[0]) if node.op != "Expand" else ())
            return given[0] if same == self.graph.static(name) or not same else None
        if node.op in REDUCTIONS:
            if whole:
                return None
            whole = () if node.attribute("keepdims") != 0 else self._kept(node)
        self.whole[name] = whole
        return RULES[node.op](self, node, *given)

    def _kept(self, node: Node) -> tuple[int, ...]:
        axes, shape = axes_of(self.graph, node) or (), self.graph.static(node.inputs[0]) or ()
        return tuple(1 if place in axes else extent for place, extent in enumerate(shape))

    def reduced(self, node: Node) -> tuple[tuple[int, ...], int] | None:
        """Return the axes of a reduction, and how many elements they have."""
        axes, shape = axes_of(self.graph, node), self.graph.static(node.inputs[0])
        if node.op == "GlobalAveragePool" and shape is not None:
            axes = tuple(range(2, len(shape)))
        return (axes, math.prod(shape[axis] for axis in axes)) if axes and shape is not None else None

    def value(self, terms: Sum) -> np.ndarray | None:
        """Return a sum of constants in float64, or None if it depends on x."""
        total = np.zeros(())
        for product, factor in terms.items():
            if any(atom[0] != "constant" for atom, _ in product):
                return None
            with np.errstate(all="ignore"):
                arrays = (self.graph.constants[atom[1]].astype(np.float64) ** each for atom, each in product)
                total = total + math.prod(arrays, start=np.float64(factor))
        return np.asarray(total)


def _clip(algebra: Algebra, node: Node, u: Sum) -> Sum | None:
    low, high = (number(algebra.graph, each) if each else None for each in (*node.inputs[1:], "", "")[:2])
    if low is None and high is not None:
        return _least(u, high)
    if low is not None and high is None:
        return add(function("relu", add(u, constant(-low))), constant(low))
    return clip(u, low, high) if low is not None and high is not None and high > low else None


def _least(u: Sum, high: float) -> Sum | None:
    """Return min(relu(v) + low, high) as a clip of v + low."""
    low, rest = u.get(ONE, 0.0), {product: value for product, value in u.items() if product}
    if len(rest) != 1 or high <= low:
        return None
    ((product, value),) = rest.items()
    ((atom, exponent), *more) = product
    is_relu = not more and atom[0] == "relu" and exponent == 1 and value > 0
    return clip(add(constant(low), multiply(thaw(atom[1]), constant(value))), low, high) if is_relu else None


def _extreme(algebra: Algebra, node: Node, *given: Sum) -> Sum | None:
    """Return min or max of a tensor and a number."""
    numbers = [each.get(ONE, 0.0) for each in given if each.keys() <= {ONE}]
    others = [each for each in given if not each.keys() <= {ONE}]
    if len(numbers) != 1 or len(others) != 1:
        return None
    (bound,), (u,) = numbers, others
    if math.isinf(bound):
        return u if (bound > 0) == (node.op == "Min") else None
    if node.op == "Min":
        return _least(u, bound)
    return u if not bound and _is_variance(u) else add(function("relu", add(u, constant(-bound))), constant(bound))


def _is_variance(u: Sum) -> bool:
    axes = next((atom[2] for product in u for atom, _ in product if atom[0] == "mean"), ())
    centre = mean(X, axes)
    return bool(axes) and alike(u, add(mean(multiply(X, X), axes), multiply(centre, centre), -1))


def _power(algebra: Algebra, node: Node, u: Sum) -> Sum | None:
    exponent = number(algebra.graph, node.inputs[1])
    return None if not exponent or abs(exponent) > 3 else power(u, exponent)


def _divide(algebra: Algebra, node: Node, a: Sum, b: Sum) -> Sum | None:
    inverse = power(b, -1) if b else None
    return None if inverse is None else multiply(a, inverse)


def _moments(exponent: float, scale: bool) -> Callable[..., Sum | None]:
    """Return the rule of a mean of u ** exponent, or of a sum."""

    def rule(algebra: Algebra, node: Node, u: Sum) -> Sum | None:
        found, raised = algebra.reduced(node), power(u, exponent)
        if found is None or raised is None:
            return None
        return multiply(mean(raised, found[0]), constant(found[1] if scale else 1))

    return rule


def _largest(algebra: Algebra, node: Node, u: Sum) -> Sum | None:
    found = algebra.reduced(node)
    return None if found is None else function("max", u, found[0])


def _map(apply: Callable[[Sum], Sum | None]) -> Callable[..., Sum | None]:
    return lambda algebra, node, u: apply(u)


PAIRS: dict[str, Callable[..., Sum | None]] = {
    "Add": lambda algebra, node, a, b: add(a, b),
    "Div": _divide,
    "Mul": lambda algebra, node, a, b: multiply(a, b),
    "Sub": lambda algebra, node, a, b: add(a, b, -1),
    "Sum": lambda algebra, node, *given: reduce(add, given),
}
REDUCTIONS: dict[str, Callable[..., Sum | None]] = {
    "GlobalAveragePool": _moments(1, scale=False),
    "ReduceMax": _largest,
    "ReduceMean": _moments(1, scale=False),
    "ReduceSum": _moments(1, scale=True),
    "ReduceSumSquare": _moments(2, scale=True),
}
EXTREMES: dict[str, Callable[..., Sum | None]] = {"Max": _extreme, "Min": _extreme}
#: Views that give a reduction its axes back.
VIEWS: dict[str, Callable[..., Sum | None]] = dict.fromkeys(("Expand", "Reshape", "Unsqueeze"), _map(lambda u: u))
#: Sums that operators compute, from those of their operands.
RULES: dict[str, Callable[..., Sum | None]] = {
    **PAIRS,
    **REDUCTIONS,
    **EXTREMES,
    **VIEWS,
    "Cast": _map(lambda u: u),
    "Clip": _clip,
    "Erf": _map(erf),
    "Exp": _map(lambda u: function("exp", u)),
    "HardSigmoid": lambda algebra, node, u: function(
        "clip", add(constant(node.attribute("beta")), multiply(u, constant(node.attribute("alpha"))))
    ),
    "Log": _map(lambda u: function("log", u)),
    "Neg": _map(lambda u: multiply(u, constant(-1))),
    "Pow": _power,
    "Reciprocal": _map(lambda u: power(u, -1)),
    "Relu": _map(lambda u: function("relu", u)),
    "Sigmoid": _map(sigmoid),
    "Softplus": _map(lambda u: function("log", add(constant(1), function("exp", u)))),
    "Sqrt": _map(lambda u: power(u, 0.5)),
    "Tanh": _map(tanh),
}
