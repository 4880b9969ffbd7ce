"""Expressions over knobs and sizes: texts that are stored, and functions that are traced into them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import CodeType
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
_NODES = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Load),
    *(ast.Constant, ast.Tuple, ast.List, ast.IfExp, ast.operator, ast.unaryop, ast.cmpop),
)


def _fold(function: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    found = values[0]
    for value in values[1:]:
        found = function(found, value)
    return found


class _Elementwise(ast.NodeTransformer):
    """Makes `and`, `or`, `not` and chained comparisons work on arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "__and" if isinstance(node.op, ast.And) else "__or"
        return ast.Call(ast.Name(name, ast.Load()), node.values, [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("__not", ast.Load()), [node.operand], []) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("__where", ast.Load()), [node.test, node.body, node.orelse], [])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            options = node.comparators[0]
            values = options.elts if isinstance(options, (ast.Tuple, ast.List)) else [options]
            call: ast.expr = ast.Call(ast.Name("__in", ast.Load()), [node.left, *values], [])
            return ast.Call(ast.Name("__not", ast.Load()), [call], []) if isinstance(node.ops[0], ast.NotIn) else call
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        compared: list[ast.expr] = [ast.Compare(left, [op], [right]) for left, op, right in pairs]
        return compared[0] if len(compared) == 1 else ast.Call(ast.Name("__and", ast.Load()), compared, [])


_LOGIC: dict[str, Callable[..., Any]] = {
    "__and": lambda *values: _fold(np.logical_and, values),
    "__or": lambda *values: _fold(np.logical_or, values),
    "__not": np.logical_not,
    "__where": np.where,
    "__in": lambda value, *options: _fold(np.logical_or, tuple(np.equal(value, each) for each in options)),
}


@lru_cache(maxsize=1024)
def _compiled(text: str) -> tuple[CodeType, frozenset[str]]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ConfigError(f"{text!r} is no expression: {error.msg}") from None
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, _NODES) or (isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)):
            raise ConfigError(f"{text!r} has {type(node).__name__.lower()}, which an expression may not have")
        if isinstance(node, ast.Name):
            names.add(node.id)
    whole = ast.fix_missing_locations(_Elementwise().visit(tree))
    return compile(whole, "<expression>", "eval"), frozenset(names - FUNCTIONS.keys())


def names_in(text: str) -> frozenset[str]:
    """Return the names that an expression reads; ConfigError for a text that is no expression.

    Examples
    --------
    >>> sorted(names_in("min(block_size_x * tile, 512) % w == 0"))
    ['block_size_x', 'tile', 'w']
    """
    return _compiled(text)[1]


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression, an array where names are arrays; ConfigError for a name that is missing.

    Examples
    --------
    >>> int(evaluate("ceil_div(w, 32) if w > 8 else 1", {"w": 70}))
    3
    """
    code, read = _compiled(text)
    if missing := sorted(read - names.keys()):
        raise ConfigError(f"{text!r} reads {missing[0]}, which is neither a knob nor a size")
    try:
        return eval(code, {"__builtins__": {}}, {**FUNCTIONS, **_LOGIC, **names})
    except (ArithmeticError, TypeError, ValueError) as error:
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
