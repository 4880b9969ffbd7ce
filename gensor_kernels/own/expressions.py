"""Expressions over knobs and sizes: texts that are stored, and functions that are traced into them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from gensor_kernels.errors import ConfigError
from gensor_kernels.spelling import unknown

#: Functions that an expression may call.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *values: _fold(np.minimum, values),
    "max": lambda *values: _fold(np.maximum, values),
    "abs": abs,
    "int": lambda value: np.asarray(value).astype(np.int64) if np.ndim(value) else int(value),
    "ceil_div": lambda a, b: -(-a // b),
}
_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: lambda a, b: _power(a, b)},
    **{ast.BitAnd: np.bitwise_and, ast.BitOr: np.bitwise_or, ast.BitXor: np.bitwise_xor},
    **{ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne},
}
_SIGNED: dict[type[ast.AST], Callable[[Any], Any]] = {
    **{ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: np.logical_not, ast.Invert: operator.invert},
}
#: Largest exponent: a database's text must not take hours.
MOST_POWER = 64


def _power(base: Any, exponent: Any) -> Any:
    if np.any(np.abs(exponent) > MOST_POWER):
        raise ValueError(f"an exponent above {MOST_POWER}")
    return base**exponent


def _fold(function: Callable[[Any, Any], Any], values: Iterable[Any]) -> Any:
    found, *rest = values
    for value in rest:
        found = function(found, value)
    return found


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return the value of a node that `_parsed` has let pass; `and`, `or` and `if` also take arrays."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return _SIGNED[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return _fold(join, (_value(each, names) for each in node.values))
    if isinstance(node, ast.IfExp):
        test = _value(node.test, names)
        if np.ndim(test) == 0:
            return _value(node.body if test else node.orelse, names)
        return np.where(test, _value(node.body, names), _value(node.orelse, names))
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return FUNCTIONS[node.func.id](*(_value(each, names) for each in node.args))
    assert isinstance(node, ast.Compare)
    sides = [node.left, *node.comparators]
    return _fold(np.logical_and, (_compared(*each, names) for each in zip(sides, node.ops, sides[1:], strict=False)))


def _compared(left: ast.AST, sign: ast.cmpop, right: ast.AST, names: Mapping[str, Any]) -> Any:
    value = _value(left, names)
    if not isinstance(sign, (ast.In, ast.NotIn)):
        return _ARITHMETIC[type(sign)](value, _value(right, names))
    options = right.elts if isinstance(right, (ast.Tuple, ast.List)) else [right]
    found = _fold(np.logical_or, (np.equal(value, _value(each, names)) for each in options))
    return np.logical_not(found) if isinstance(sign, ast.NotIn) else found


_NODES = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.IfExp)
_INNER = (ast.Tuple, ast.List, ast.Load, ast.And, ast.Or, ast.In, ast.NotIn, *_ARITHMETIC, *_SIGNED)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[ast.AST, frozenset[str]]:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{text[:200]!r} is no expression: {getattr(error, 'msg', error)}") from None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") not in FUNCTIONS:
            raise ConfigError(f"{text!r} calls something else than {', '.join(FUNCTIONS)}")
        if not isinstance(node, (*_NODES, *_INNER)):
            raise ConfigError(f"{text!r} has {type(node).__name__.lower()}, which an expression may not have")
        if isinstance(node, ast.Name):
            names.add(node.id)
    return tree, frozenset(names - FUNCTIONS.keys())


def names_in(text: str) -> frozenset[str]:
    """Return the names that an expression reads; ConfigError for a text that is no expression.

    Examples
    --------
    >>> sorted(names_in("min(block_size_x * tile, 512) % w == 0"))
    ['block_size_x', 'tile', 'w']
    """
    return _parsed(text)[1]


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression, an array where names are arrays; ConfigError for a name that is missing.

    Examples
    --------
    >>> int(evaluate("ceil_div(w, 32) if w > 8 else 1", {"w": 70}))
    3
    """
    tree, read = _parsed(text)
    if missing := sorted(read - names.keys()):
        raise ConfigError(f"{text!r} reads {missing[0]}, which is neither a knob nor a size")
    try:
        return _value(tree, names)
    except (ArithmeticError, TypeError, ValueError, KeyError, RecursionError) as error:
        raise ConfigError(f"{text!r} has no value: {error}") from None


class Symbol:
    """A knob or a size in a traced function: operations give longer texts."""

    def __init__(self, text: str):
        self.text = text

    def __bool__(self) -> bool:
        raise ConfigError(f"{self.text} has no value yet: write the condition as a text, 'x if ... else y'")

    def __neg__(self) -> Symbol:
        return Symbol(f"(-{self.text})")


def _text(value: object) -> str:
    if isinstance(value, Symbol):
        return value.text
    if isinstance(value, (str, int, float, np.number)):
        return str(value)
    raise ConfigError(f"{value!r} is no number, text or expression of knobs and sizes")


_SIGNS = {
    **{"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**"},
    **{"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|"},
}


def _operate(sign: str, *, swapped: bool = False) -> Callable[[Symbol, object], Symbol]:
    def operation(self: Symbol, other: object) -> Symbol:
        sides = (_text(other), self.text) if swapped else (self.text, _text(other))
        return Symbol(f"({sides[0]} {sign} {sides[1]})")

    return operation


for _name, _sign in _SIGNS.items():
    setattr(Symbol, f"__{_name}__", _operate(_sign))
    if hasattr(operator, _name) and _sign not in ("<", "<=", ">", ">=", "==", "!="):
        setattr(Symbol, f"__r{_name}__", _operate(_sign, swapped=True))


class Names:
    """The first or second argument of a traced function: attributes and items are names."""

    def __init__(self, names: Iterable[str], kind: str):
        self._names, self._kind = tuple(names), kind

    def __getattr__(self, name: str) -> Symbol:
        if name not in self._names:
            raise ConfigError(f"the {self._kind} {unknown(name, self._names)}")
        return Symbol(name)

    __getitem__ = __getattr__


class AnyNames(Names):
    """The sizes of a traced function, which are what it reads."""

    def __init__(self) -> None:
        super().__init__((), "size")

    def __getattr__(self, name: str) -> Symbol:
        return Symbol(name)

    __getitem__ = __getattr__


Expressions = Any  # a number, a text, a tuple of them, or a function of knobs, or of knobs and sizes, that gives them


def extents(given: Expressions, knobs: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return `count` texts of extents, 1 where fewer are given."""
    if callable(given):
        arguments = (Names(knobs, "knob"), AnyNames())
        given = given(*arguments[: given.__code__.co_argcount])
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(values) > count:
        raise ConfigError(f"a launch has at most {count} extents, not {len(values)}")
    texts = tuple(_text(value) for value in values)
    for text in texts:
        names_in(text)
    return (*texts, *("1",) * (count - len(texts)))
