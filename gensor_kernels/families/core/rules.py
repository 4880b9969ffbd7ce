"""Rules: the legality of a family's Programs, one table per family (``families/<family>/rules.py``).

A condition is a Python expression in the names of the kernel's macros, of its constants, and of C++ types (in small
letters).  `Bound` evaluates the table for many Programs at once; the kernel's source ends with its static_asserts.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import count
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

from .columns import Column, Numbers
from .cpp import NONE, RELATIONS, SIGNS, in_cpp
from .family import Columns, Family, Part, Values
from .lattice import Columns as Gathered
from .program_batch import once

#: Share of Programs up to which the others are left out before numbers are computed for them.
MOST_KEPT = 0.7
#: Most coordinates of a rule that is tabulated, and of different rules that are tabulated together.
MOST_TABULATED, MOST_JOINED = 6, 4


class Rule(NamedTuple):
    """A condition on Programs, and the sentence that its static_assert has as its message.

    ``when``: a condition on macros for the rule to apply at all: other kernels lack constants that it names.  ``of``:
    the operands that it is about; their names stand without the operand's letter.  A rule that follows from
    the class and the lattice (``given``) is not evaluated, one of the launch has no static_assert (``asserted`` False),
    one may differ between sizes of a class whose lattice does not (``sized``).
    """

    text: str
    condition: str
    when: str = ""
    of: str = ""
    given: bool = False
    asserted: bool = True
    sized: bool = False

    def row(self, constants: Mapping[str, int] = NONE) -> str:
        """Return the rule's row of a table in Markdown."""
        condition = in_cpp(self.condition, constants).replace("|", r"\|")
        return f"| {self.text} | `{condition}` |"


#: Rules of every launch, about numbers that a family computes (see `launch_names`).
LAUNCH = (
    Rule("A block's shared memory fits a multiprocessor's.", "SHARED_BYTES <= MOST_SHARED_BYTES", asserted=False),
    Rule(
        "Shared memory and warps of as many blocks as are promised fit a multiprocessor.",
        "PROMISED * (SHARED_BYTES + RESERVED_BYTES) <= SM_SHARED_BYTES and PROMISED * WARPS <= SM_WARPS",
        asserted=False,
    ),
)
#: The same of the largest problem that a Program is verified with (see `Family.cases`).
VERIFIED = Rule(
    "Problems of verification fit shared memory, too.", "VERIFIED_BYTES <= MOST_SHARED_BYTES", asserted=False
)
#: The same of families whose blocks may be many, and small.
ONE_DIMENSION = Rule("The grid is one-dimensional.", "BLOCKS < 2147483648", asserted=False)
GRID = (
    ONE_DIMENSION,
    Rule("A multiprocessor has as many blocks as are promised.", "PROMISED <= SM_BLOCKS", asserted=False),
)


def launch_names(arch: Arch) -> dict[str, int]:
    """Return the numbers of an Arch that `LAUNCH` is about."""
    return {
        "MOST_SHARED_BYTES": arch.smem_per_block,
        "RESERVED_BYTES": arch.smem_reserved,
        "SM_SHARED_BYTES": arch.smem_per_sm,
        "SM_WARPS": arch.threads_per_sm // 32,
        "SM_BLOCKS": arch.blocks_per_sm,
        "SMS": arch.sms,
    }


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of a family, and what their names mean.

    ``coordinates``: macros that are not called like their coordinates; ``derived``: constants, as expressions;
    ``of_operand``: the same for each operand; ``constants``: names of numbers; ``sizes``: names that
    differ between Workloads of a class; ``computed``: names that the family computes for every call of `Bound.legal`;
    ``members``: constants that a C++ type has of each operand; ``types``: the names of these types.
    """

    table: Sequence[Rule]
    coordinates: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    of_operand: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    sizes: Sequence[str] = ()
    computed: Sequence[str] = ()
    members: Collection[str] = ()
    types: Mapping[str, str] = field(default_factory=lambda: {"A": "TileA", "B": "TileB"})

    def static_asserts(self) -> str:
        """Return the C++ text of the table."""
        found = []
        for rule in self.table:
            for operand in rule.of or ("",) if rule.asserted else ():
                condition = self._in_cpp(rule.condition, operand)
                text = f'static_assert({condition}, "{rule.text}");\n'
                found.append(f"#if {self._in_cpp(rule.when)}\n{text}#endif\n" if rule.when else text)
        return "".join(found)

    def _in_cpp(self, condition: str, operand: str = "") -> str:
        members = {name: f"{self.types[operand]}::{name}" for name in self.members} if operand else {}
        return in_cpp(condition, {**self.constants, **members})


#: A rule, and the operand that it is about, if any.
Asserted = tuple[Rule, str]
Computed = Callable[[Columns], Mapping[str, Numbers]]


class Bound:
    """The rules of a family for the Workloads of a class on an Arch.

    ``known`` are macros that the class decides, and macros of coordinates that its lattice does not have.
    """

    def __init__(self, rules: Rules, known: Mapping[str, object]):
        self.rules, self.known = rules, {**FUNCTIONS, **TYPES, **rules.constants, **known}
        every = [(rule, operand) for rule in rules.table if not rule.given for operand in rule.of or ("",)]
        self._fixed = [each for each in every if not each[0].sized]
        self._sized = [each for each in every if each[0].sized]

    def settled(self, columns: Columns, computed: Computed, sizes: Mapping[str, Numbers], steady: bool) -> np.ndarray:
        """Return which Programs fulfil the rules that hold or not for every size of a ``steady`` class.

        ``computed`` gives the numbers that the family computes, which are the same for every such size.
        """
        return once(columns, "legal", steady, lambda: self._hold(self._fixed, columns, {**computed(columns), **sizes}))

    def legal(self, columns: Columns, computed: Computed, sizes: Mapping[str, Numbers], steady: bool) -> np.ndarray:
        """Return which Programs fulfil all rules; see `settled`."""
        if isinstance(columns, Gathered):
            return self._legal_of_lattice(columns, computed, sizes)
        held: np.ndarray = self.settled(columns, computed, sizes, steady) & self._hold(self._sized, columns, sizes)
        return held

    def _legal_of_lattice(self, columns: Gathered, computed: Computed, sizes: Mapping[str, Numbers]) -> np.ndarray:
        """Look tabulated rules up, and evaluate the others for what is left."""
        held = np.ones(columns.count, bool)
        for names, _ in self._groups:
            held &= columns[_fits(names)] > 0
        left = columns.where(held) if np.count_nonzero(held) < MOST_KEPT * len(held) else columns
        others = self._hold(self._direct, left, {**computed(left), **sizes})
        if left is columns:
            return held & others
        held[held] = others
        return held

    def parts(self, sizes: Mapping[str, Numbers]) -> tuple[Part, ...]:
        """Return what a lattice tabulates: whether rules about a few coordinates hold, those of the same together."""

        def part(names: tuple[str, ...], rules: list[Asserted]) -> Part:
            return Part(names, lambda values: {_fits(names): self._hold(rules, values, sizes)})

        return tuple(part(*group) for group in self._groups)

    def _hold(self, rules: Sequence[Asserted], columns: Values | Columns, computed: Mapping[str, Numbers]) -> Numbers:
        names, held = Names(self, columns, computed), True
        for rule, operand in rules:
            held = held & names.holds(rule, operand)
        return held

    @cached_property
    def _read(self) -> list[tuple[frozenset[str], Asserted]]:
        """Rules that not all Programs fulfil, after the names of coordinates and computed numbers that they read."""
        found = []
        for each in (*self._fixed, *self._sized):
            read = _Read()
            with np.errstate(all="ignore"):
                held = Names(self, read).holds(*each)
            if not _decides(held, True):
                found.append((frozenset(read).difference(self.rules.sizes), each))
        return found

    def _is_tabulated(self, names: frozenset[str]) -> bool:
        return 0 < len(names) <= MOST_TABULATED and names.isdisjoint(self.rules.computed)

    @cached_property
    def _direct(self) -> list[Asserted]:
        return [each for names, each in self._read if not self._is_tabulated(names)]

    @cached_property
    def _groups(self) -> list[tuple[tuple[str, ...], list[Asserted]]]:
        """Tabulated rules, by coordinates: few tables, of few coordinates."""
        found: dict[frozenset[str], list[Asserted]] = {}
        rules = [(names, each) for names, each in self._read if self._is_tabulated(names)]
        for names, each in sorted(rules, key=lambda of: (-len(of[0]), sorted(of[0]))):
            fits = (other for other in found if names <= other)
            more = (other for other in found if names & other and len(names | other) <= MOST_JOINED)
            other = next(fits, None) or next(more, names)
            found[names | other] = [*found.pop(other, []), each]
        return [(tuple(sorted(names)), rules) for names, rules in found.items()]


class Ruled(Family):
    """A family whose legality is a table of rules."""

    rules: Rules

    def asserts(self) -> str:
        """Return the rules as static_asserts."""
        return f'#line 1 "{self.name}.rules"\n{self.rules.static_asserts()}'

    def known(self, workload: Workload) -> Mapping[str, object]:
        """Return macros that the class decides, and macros of coordinates that its lattice does not have."""
        return NONE

    def sizes(self, workload: Workload) -> Mapping[str, Numbers]:
        """Return the sizes that rules are about."""
        return NONE

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> Mapping[str, Numbers]:
        """Return what rules are about beyond coordinates, such as shared bytes."""
        raise NotImplementedError

    def rule_parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """See Bound.parts."""
        return bound(self, workload, arch).parts(self.sizes(workload))

    def steady(self, workload: Workload) -> bool:
        """Return whether `known` and `computed` are the same for every size with the same coordinates."""
        return False

    def settled(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray | None:
        """Return which Programs fulfil all rules but those about sizes."""
        if not self.steady(workload):
            return None
        return bound(self, workload, arch).settled(columns, *self._numbers(workload, arch))

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return which Programs fulfil all rules."""
        rules = once(columns, "rules", self.steady(workload), lambda: bound(self, workload, arch))
        return rules.legal(columns, *self._numbers(workload, arch))

    def _numbers(self, workload: Workload, arch: Arch) -> tuple[Computed, Mapping[str, Numbers], bool]:
        return lambda some: self.computed(some, workload, arch), self.sizes(workload), self.steady(workload)


@lru_cache(maxsize=4096)
def bound(family: Ruled, workload: Workload, arch: Arch) -> Bound:
    """Return the rules of a family for a Workload on an Arch."""
    return _bind(family.rules, frozenset({**launch_names(arch), **family.known(workload)}.items()))


@lru_cache(maxsize=256)
def _bind(rules: Rules, known: frozenset[tuple[str, object]]) -> Bound:
    return Bound(rules, dict(known))


@cache
def _fits(names: tuple[str, ...]) -> Column:
    return Column(f"fits_{'_'.join(names)}", "whether rules about these coordinates hold")


class _Read(dict[str, np.ndarray]):
    """Columns of one Program, those that are read."""

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = np.full(1, 16)
        return self[name]


# ---- as masks

#: Bytes of C++ types.
BYTES = {
    **{"e4m3_t": 1, "e5m2_t": 1, "i8": 1, "u4x2_t": 1, "e2m1x2_t": 1, "half_t": 2, "bfloat16_t": 2},
    **{"float": 4, "i32": 4, "double": 8, "i64": 8, "c64": 8, "c128": 16},
}
TYPES = {name: name for name in BYTES}


def _decides(value: Numbers, holds: bool) -> bool:
    """Whether a number, not an array, makes a condition true or false."""
    return not isinstance(value, np.ndarray) and bool(value) == holds


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sizeof": lambda name: BYTES[name] if isinstance(name, str) else name,
    "same_type": operator.eq,
    "is_complex": ("c64", "c128").__contains__,
    "is_eight_bit_float": ("e4m3_t", "e5m2_t").__contains__,
    "per_unit": lambda name: 2 if name in ("u4x2_t", "e2m1x2_t") else 1,
    "power_of_two": lambda value: (value > 0) & (value & (value - 1) == 0),
    "power_of_two_in": lambda value: value & -value,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "decides": _decides,
    "where": np.where,
}


class Names(dict[str, Any]):
    """The values of names for the Programs of some columns, each found when it is first read."""

    def __init__(self, bound: Bound, columns: Values | Columns, computed: Mapping[str, Numbers] = NONE):
        super().__init__(bound.known)
        self.update(computed)
        self.rules, self.columns = bound.rules, columns

    def __missing__(self, name: str) -> Numbers:
        rules = self.rules
        if name in rules.derived:
            self[name] = self.value(rules.derived[name])
        elif name.startswith("Tile"):
            self[name] = _OfOperand(self, name.removeprefix("Tile"))
        elif name in rules.sizes or name in rules.computed:
            self[name] = self.columns[name]
        else:
            self[name] = self.columns[rules.coordinates.get(name, name.lower())]
        return self[name]

    def holds(self, rule: Rule, operand: str = "") -> Numbers:
        """Return for which Programs a rule holds."""
        names = self[f"Tile{operand}"] if operand else self
        text = f"not ({rule.when}) or ({rule.condition})" if rule.when else rule.condition
        return eval(_compiled(text), {}, names) != 0

    def value(self, text: str) -> Numbers:
        """Return the value of an expression."""
        return eval(_compiled(text), {}, self)


class _OfOperand(dict[str, Any]):
    """The values of names for one operand: its own constants, its macros (X_NAME), or the kernel's."""

    def __init__(self, names: Names, operand: str):
        self.names, self.operand = names, operand

    def __missing__(self, name: str) -> Numbers:
        names, rules, own = self.names, self.names.rules, f"{self.operand}_{name}"
        if name in rules.of_operand:
            self[name] = self.value(rules.of_operand[name])
        else:
            declared = own in names or own in rules.coordinates or own in rules.derived or own in rules.computed
            self[name] = names[own if declared else name]
        return self[name]

    __getattr__ = dict.__getitem__  # TileA.NAME

    def value(self, text: str) -> Numbers:
        """Return the value of an expression about the operand."""
        return eval(_compiled(text), {}, self)


_LOGIC = re.compile(r"\b(?:and|or|not|if)\b")


@cache
def _compiled(text: str) -> CodeType:
    """Return an expression as NumPy evaluates it.

    What a number decides is not evaluated for arrays: ``X or Y`` is True where X is not 0 in this class.
    """
    return compile(_Masks(text).visit(ast.parse(text, mode="eval").body) if _LOGIC.search(text) else text, text, "eval")


class _Masks(ast.NodeVisitor):
    """Prints an expression with operators of NumPy in place of and, or, not and if."""

    def __init__(self, text: str):
        self.text, self.numbers = text, count()

    def visit(self, node: ast.AST) -> str:
        """Return what has no logic as it is."""
        assert isinstance(node, ast.expr)
        text = self.text[node.col_offset : node.end_col_offset]
        return str(super().visit(node)) if _LOGIC.search(text) else f"({text})"

    def visit_BoolOp(self, node: ast.BoolOp) -> str:
        sign, decided = ("&", False) if isinstance(node.op, ast.And) else ("|", True)
        found = self._truth(node.values[-1])
        for each in reversed(node.values[:-1]):
            name = f"_{next(self.numbers)}"
            found = f"({decided} if decides({name} := {self._truth(each)}, {decided}) else {name} {sign} {found})"
        return found

    def _truth(self, node: ast.expr) -> str:
        text = self.visit(node)
        return text if isinstance(node, ast.Compare | ast.BoolOp) else f"({text} != 0)"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> str:
        assert isinstance(node.op, ast.Not)
        return f"({self.visit(node.operand)} == 0)"

    def visit_IfExp(self, node: ast.IfExp) -> str:
        name, test = f"_{next(self.numbers)}", self.visit(node.test)
        body, other = self.visit(node.body), self.visit(node.orelse)
        by_array = f"{other} if decides({name}, False) else where({name}, {body}, {other})"
        return f"({body} if decides({name} := {test}, True) else {by_array})"

    def visit_Compare(self, node: ast.Compare) -> str:
        (relation,), (right,) = node.ops, node.comparators
        return f"({self.visit(node.left)} {RELATIONS[type(relation)]} {self.visit(right)})"

    def visit_BinOp(self, node: ast.BinOp) -> str:
        sign = "//" if isinstance(node.op, ast.FloorDiv) else SIGNS[type(node.op)]
        return f"({self.visit(node.left)} {sign} {self.visit(node.right)})"

    def visit_Call(self, node: ast.Call) -> str:
        return f"{ast.unparse(node.func)}({', '.join(map(self.visit, node.args))})"
