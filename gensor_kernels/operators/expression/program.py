"""Programs: element-wise expressions of several arrays as one line of text.

``in_f4_f4__const_f4_3fe0000000000000__mul_f4_0_2__add_f4_3_1__out_4`` is ``x0 * 0.5 + x1`` of two float32 arrays.
Values have numbers: the inputs first, then one per step; a step reads values before it.  ``out_4_3`` has two results
of one type.  Type codes are NumPy's (:data:`TYPES`).  A constant is the hexadecimal bits of a double, or an integer's
64 bits.  The text is an identifier of C, because kernels get it as a macro, and canonical: steps that no result needs
are left out, equal ones are one.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gensor_kernels.errors import UnsupportedError

#: Element types by their codes in a program.
TYPES = {
    **{"f8": "float64", "f4": "float32", "f2": "float16", "bf": "bfloat16"},
    **{"e4": "float8_e4m3fn", "e5": "float8_e5m2"},
    **{"i8": "int64", "i4": "int32", "i1": "int8", "u4": "uint32", "u1": "uint8", "b1": "bool"},
}
CODES = {name: code for code, name in TYPES.items()}
#: Types of a Workload with as many bits, of types that have no name there.
STORED = {"bool": "int8", "uint8": "int8", "uint32": "int32"}
#: Floats that are computed in float32, and rounded by casts and as results.
NARROW = ("f2", "bf", "e4", "e5")
FLOATS, BOOL = ("f8", "f4", *NARROW), "b1"

#: Operations on floats alone, of one and of two arguments.
OF_FLOATS = (
    *("sqrt", "rsqrt", "recip", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin"),
    *("acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "floor", "ceil", "rint"),
    *("trunc", "isnan", "isinf", "isfinite"),
)
OF_TWO_FLOATS = ("div", "pow", "atan2")
#: Operations on integers alone (``not``, ``and``, ``or`` and ``xor`` also on bool); ``floordiv`` rounds down,
#: ``truncdiv`` towards zero.
OF_INTEGERS = ("not", "and", "or", "xor", "shl", "shr", "truncdiv")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
#: Operations whose result is bool.
PREDICATES = (*COMPARISONS, "isnan", "isinf", "isfinite")
#: Arguments of every operation; a type without a minus or a sign refuses some (:func:`check`).
ARITY: dict[str, int] = {
    **dict.fromkeys((*OF_FLOATS, "neg", "abs", "sign", "not", "cast"), 1),
    **dict.fromkeys((*OF_TWO_FLOATS, *OF_INTEGERS[1:], *COMPARISONS), 2),
    **dict.fromkeys(("add", "sub", "mul", "max", "min", "floordiv", "mod", "fmod"), 2),
    "where": 3,
}
#: NumPy's names of operations, where they differ.
NUMPY = {
    **{"sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum", "pow": "power"},
    **{"atan2": "arctan2", "floordiv": "floor_divide", "mod": "remainder", "neg": "negative", "abs": "absolute"},
    **{"not": "invert", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "shl": "left_shift"},
    **{"shr": "right_shift", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal"},
    **{"ne": "not_equal", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh"},
    **{"acosh": "arccosh", "atanh": "arctanh", "recip": "reciprocal"},
}
#: Operations whose arguments may change places.
COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})
#: Most arrays that a program reads, most steps, and most results.
MAX_INPUTS, MAX_STEPS, MAX_RESULTS = 8, 96, 4
_WORD = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)


class Step(NamedTuple):
    """Operation on earlier values. ``dtype`` is the type code of a comparison's arguments, of any other one's result.

    A ``const`` has its bits in place of arguments.
    """

    name: str
    dtype: str
    arguments: tuple[int, ...]

    @property
    def result(self) -> str:
        """The type code of the result."""
        return BOOL if self.name in PREDICATES else self.dtype

    @property
    def text(self) -> str:
        """The step's part of a program."""
        numbers = [f"{self.arguments[0]:016x}"] if self.name == "const" else map(str, self.arguments)
        return "_".join((self.name, self.dtype, *numbers))


@dataclass(frozen=True)
class Program:
    """Element-wise expressions: type codes of the inputs, steps, and the numbers of the values that are results."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Type code of every value."""
        return (*self.inputs, *(step.result for step in self.steps))

    @property
    def result(self) -> str:
        """Type code of the results."""
        return self.types[self.outputs[0]]

    @property
    def accumulator(self) -> str:
        """The widest type that the program computes in."""
        found = set(self.types)
        if "f8" in found:
            return "float64"
        if found & set(FLOATS):
            return "float32"
        return "int64" if found & {"i8", "u4"} else "int32"

    @property
    def operations(self) -> list[Step]:
        """The steps that compute something."""
        return [step for step in self.steps if step.name != "const"]

    @property
    def text(self) -> str:
        """The canonical text; see the module."""
        last = "_".join(("out", *map(str, self.outputs)))
        return "__".join(("_".join(("in", *self.inputs)), *(each.text for each in self.steps), last))

    def __str__(self) -> str:
        names = [f"x{index}" for index in range(len(self.inputs))]
        for step in self.steps:
            if step.name == "const":
                names.append(f"{constant(step):.6g}")
            else:
                own = f"{step.name}.{TYPES[step.dtype]}" if step.name == "cast" else step.name
                names.append(f"{own}({', '.join(names[each] for each in step.arguments)})")
        return ", ".join(names[each] for each in self.outputs)


def bits_of(value: float, code: str) -> int:
    """Return the bits of a number as a constant of a type."""
    if code in FLOATS:
        value = float(value)
        return int.from_bytes(struct.pack(">d", math.nan if math.isnan(value) else value), "big") & (2**64 - 1)
    return int(value) & (2**64 - 1)


def constant(step: Step) -> float | int:
    """Return the number of a ``const``."""
    (bits,) = step.arguments
    if step.dtype in FLOATS:
        number: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
        return number
    return bits - 2**64 if bits >= 2**63 else bits


def check(step: Step, types: Sequence[str]) -> None:
    """Raise UnsupportedError for a step that kernels do not compute after values of these type codes."""
    name, code, arguments = step
    if code not in TYPES or (name != "const" and name not in ARITY):
        raise UnsupportedError(f"no kernel computes {name} of {TYPES.get(code, code)}")
    if name == "const":
        if not 0 <= arguments[0] < 2**64:
            raise UnsupportedError(f"a constant of {arguments[0]}")
        return
    if len(arguments) != ARITY[name] or not all(0 <= each < len(types) for each in arguments):
        raise UnsupportedError(f"{name} of the values {arguments}")
    wanted = [None] if name == "cast" else [BOOL, code, code] if name == "where" else [code] * len(arguments)
    for each, place in zip(wanted, arguments, strict=True):
        if each is not None and types[place] != each:
            raise UnsupportedError(f"{name} of {TYPES[code]} reads a value of {TYPES[types[place]]}")
    real, whole = code in FLOATS, code not in FLOATS
    refused = (name in (*OF_FLOATS, *OF_TWO_FLOATS) and whole) or (name in OF_INTEGERS and real)
    logical = (*COMPARISONS, "not", "and", "or", "xor", "where", "cast", "max", "min")
    if refused or (code == BOOL and name not in logical):
        raise UnsupportedError(f"no kernel computes {name} of {TYPES[code]}")


def make(inputs: Sequence[str], steps: Sequence[Step], *outputs: int) -> Program:
    """Return the canonical program of some steps, of which `outputs` are results.

    UnsupportedError for steps that do not fit together, and for more than kernels take.
    """
    if not 0 < len(inputs) <= MAX_INPUTS or any(code not in TYPES for code in inputs):
        raise UnsupportedError(f"{len(inputs)} arrays in one expression: kernels read 1 to {MAX_INPUTS}")
    count = len(inputs)
    types = list(inputs)
    for step in steps:
        check(step, types)
        types.append(step.result)
    if not 0 < len(outputs) <= MAX_RESULTS or not all(0 <= each < len(types) for each in outputs):
        raise UnsupportedError(f"an expression whose results are the values {outputs} of {len(types)}")
    if len({types[each] for each in outputs}) > 1:
        raise UnsupportedError("results of several types: kernels write one")
    needed, waiting = set(range(count)), list(outputs)
    while waiting:
        place = waiting.pop()
        if place in needed:
            continue
        needed.add(place)
        step = steps[place - count]
        waiting.extend(() if step.name == "const" else step.arguments)
    # Equal steps become one; the order of the rest stays, which is one in which arguments come first.
    renamed, found = {place: place for place in range(count)}, dict[Step, int]()
    for place, step in enumerate(steps, count):
        if place not in needed:
            continue
        if step.name != "const":
            places = tuple(renamed[each] for each in step.arguments)
            step = step._replace(arguments=tuple(sorted(places)) if step.name in COMMUTATIVE else places)
        renamed[place] = found.setdefault(step, count + len(found))
    if len(found) > MAX_STEPS:
        raise UnsupportedError(f"an expression of {len(found)} steps: kernels take {MAX_STEPS}")
    return Program(tuple(inputs), tuple(found), tuple(renamed[each] for each in outputs))


@lru_cache(maxsize=1024)
def parse(text: str) -> Program:
    """Return the Program of a canonical text; UnsupportedError for any other text.

    Examples
    --------
    >>> print(parse("in_f4__const_f4_4000000000000000__mul_f4_0_1__exp_f4_2__out_3"))
    exp(mul(x0, 2))
    """
    parts = text.split("__")
    if len(text) > 64 * (MAX_STEPS + 2) or len(parts) < 2 or not all(_WORD.fullmatch(part) for part in parts):
        raise UnsupportedError(f"{text[:80]!r} is no element-wise program")
    (first, *inputs), *middle, (last, *output) = [part.split("_") for part in parts]
    try:
        steps = [
            Step(name, code, (int(rest[0], 16),) if name == "const" else tuple(map(int, rest)))
            for name, code, *rest in middle
        ]
        found = make(inputs, steps, *map(int, output))
    except (ValueError, IndexError):
        raise UnsupportedError(f"{text[:80]!r} is no element-wise program") from None
    if (first, last) != ("in", "out") or found.text != text:
        raise UnsupportedError(f"{text[:80]!r} is no canonical element-wise program: expected {found.text[:80]!r}")
    return found
