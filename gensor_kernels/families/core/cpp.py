"""Conditions, which are expressions of Python, as C++."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NONE: Mapping[str, Any] = MappingProxyType({})
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
RELATIONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
#: Functions of types that are variable templates.
TEMPLATES = ("same_type", "is_complex", "is_eight_bit_float", "per_unit")
CHOICE, ANY, ALL, EQUAL, LESS, SUM, PRODUCT, ATOM = range(8)


class _Cpp(ast.NodeVisitor):
    """Prints expressions; each method returns the text and how strongly its operator binds."""

    def __init__(self, constants: Mapping[str, object]):
        self.constants = constants

    def text(self, node: ast.expr, least: int) -> str:
        """Return the text, in parentheses where its operator binds less than ``least``."""
        text, binds = self.visit(node)
        return text if binds >= least else f"({text})"

    def visit_Name(self, node: ast.Name) -> tuple[str, int]:
        return str(self.constants.get(node.id, node.id)), ATOM

    def visit_Attribute(self, node: ast.Attribute) -> tuple[str, int]:
        return f"{ast.unparse(node.value)}::{node.attr}", ATOM

    def visit_Constant(self, node: ast.Constant) -> tuple[str, int]:
        return str(node.value), ATOM

    def visit_BinOp(self, node: ast.BinOp) -> tuple[str, int]:
        binds = SUM if isinstance(node.op, ast.Add | ast.Sub) else PRODUCT
        return f"{self.text(node.left, binds)} {SIGNS[type(node.op)]} {self.text(node.right, binds + 1)}", binds

    def visit_UnaryOp(self, node: ast.UnaryOp) -> tuple[str, int]:
        return ("-" if isinstance(node.op, ast.USub) else "!") + self.text(node.operand, ATOM), ATOM

    def visit_Compare(self, node: ast.Compare) -> tuple[str, int]:
        (relation,), (right,) = node.ops, node.comparators
        binds = EQUAL if isinstance(relation, ast.Eq | ast.NotEq) else LESS
        return f"{self.text(node.left, SUM)} {RELATIONS[type(relation)]} {self.text(right, SUM)}", binds

    def visit_BoolOp(self, node: ast.BoolOp) -> tuple[str, int]:
        binds, sign = (ALL, " && ") if isinstance(node.op, ast.And) else (ANY, " || ")
        return sign.join(self.text(each, EQUAL) for each in node.values), binds

    def visit_IfExp(self, node: ast.IfExp) -> tuple[str, int]:
        test, body = self.text(node.test, ANY), self.text(node.body, ANY)
        return f"{test} ? {body} : {self.text(node.orelse, CHOICE)}", CHOICE

    def visit_Call(self, node: ast.Call) -> tuple[str, int]:
        name, arguments = ast.unparse(node.func), ", ".join(self.text(each, CHOICE) for each in node.args)
        return (f"{name}<{arguments}>" if name in TEMPLATES else f"{name}({arguments})"), ATOM


def in_cpp(condition: str, constants: Mapping[str, object] = NONE) -> str:
    """Return a condition as C++; ``constants`` maps names to what it prints for them."""
    return _Cpp(constants).text(ast.parse(condition, mode="eval").body, CHOICE)
