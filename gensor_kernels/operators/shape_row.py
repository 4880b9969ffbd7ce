"""A Workload of any operator as cells of a row of a shapes file, and back without loss.

No operator is known here by name: columns are the sizes, operands and types of the Workload itself.  Such a row names
the layout of every operand (`layout_x`, ...), unlike hand-written rows, and is recognised by these columns.
gensor-tune reads it with `workload_of`; matrix products have shorter rows (observe/record_file.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from gensor_kernels import spelling
from gensor_kernels.errors import GensorError

from . import operator
from .types import dtypes, epilogue
from .types.dtypes import canonical, facts
from .types.workload import MATHS, Workload

#: Names in shapes files by NumPy's names.
NAMES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
    "complex64": "complex64",
    "complex128": "complex128",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "uint4x2": "int4",
    "float4_e2m1fn_x2": "fp4_e2m1",
    "float8_e8m0fnu": "fp8_e8m0",
}
Choice = TypeVar("Choice")
LARGEST = 2**31 - 1
ALIGNMENTS = ("16", "8", "4", "2", "1")


class CellError(GensorError):
    """A cell that cannot be read: its column and the reason."""

    def __init__(self, column: str, reason: str):
        super().__init__(f"column '{column}': {reason}")
        self.column, self.reason = column, reason


def join(names: Sequence[str]) -> str:
    """Return an epilogue as text that parses to the same operations: ("gelu", "tanh") is not "gelu_tanh"."""
    text = epilogue.join(names)
    return text if len(names) < 2 or epilogue.parse(text) == tuple(names) else ";".join(names)


def split(text: str) -> tuple[str, ...]:
    """Return the inverse of join: names joined by `_`, and by `;` where `_` is ambiguous; UnsupportedError for unknown
    names."""
    return tuple(name for part in text.split(";") for name in epilogue.parse(part))


def dtype_name(dtype: str, math: str) -> str:
    """Return the shapes file's name of a dtype with a math mode."""
    return "tf32" if math == "tf32" else NAMES[dtype] + (f"_{math}" if math != "ieee" else "")


#: Names in shapes files by all other names of element types.
SPELLINGS = NAMES | {word: NAMES[name] for word, name in dtypes.SPELLINGS.items()}


def dtype_word(text: str) -> str:
    """Return the shapes file's name of a dtype in any common spelling, with or without a math mode; else the word.

    Examples
    --------
    >>> [dtype_word(each) for each in ("float16", "Half", "float8_e4m3fn", "float64_ozaki", "tf32", "fp61")]
    ['fp16', 'fp16', 'fp8_e4m3', 'fp64_ozaki', 'tf32', 'fp61']
    """
    word = text[:100].lower()
    base, _, math = word.rpartition("_")
    if base and math in MATHS:
        return f"{dtype_word(base)}_{math}"
    return NAMES.get(canonical(word) or "", word)


#: The inverse of dtype_name: (dtype, math mode).
DTYPES = {
    dtype_name(dtype, math): (dtype, math)
    for math in reversed(MATHS)
    for dtype in NAMES
    if math == "ieee"
    or (facts(dtype).is_complex if math == "3m" else dtype == ("float64" if math == "ozaki" else "float32"))
}


def columns(op: str) -> tuple[str, ...]:
    """Return the columns of an operator's rows other than the common columns."""
    declared = operator(op)
    return (
        *(("prologue",) if "_prologue" in op else ("program",) if op.startswith("pointwise") else ()),
        *declared.size_names,
        *(f"dtype_{name}" for name in declared.names[1:-1]),
        *(f"{what}_{name}" for what in ("layout", "align") for name in declared.names),
    )


def cells_of(workload: Workload) -> dict[str, object]:
    """Return the cells of a Workload's row."""
    first, *others, output = operator(workload.operator).names
    types = workload.dtype
    return {
        "op": workload.operator,
        "dtype": dtype_name(types[first], workload.math),
        "acc": NAMES[workload.accumulator],
        "out": NAMES[types[output]],
        "epilogue": join(workload.epilogue),
        **({"prologue": join(workload.prologue)} if workload.prologue else {}),
        **({"program": workload.program} if workload.program else {}),
        **dict(workload.sizes),
        **{f"dtype_{name}": NAMES[types[name]] for name in others if types[name] != types[first]},
        **{f"layout_{name}": layout for name, layout in workload.layout},
        **{f"align_{name}": width for name, width in workload.alignment},
    }


def is_whole(op: str, cells: Mapping[str, str]) -> bool:
    """Return whether a row has a whole Workload in the columns of this module."""
    return bool(cells.get(f"layout_{operator(op).names[-1]}", "").strip())


def workload_of(op: str, cells: Mapping[str, str]) -> Workload:
    """Return the Workload of a row's cells.

    CellError names a wrong cell and the reason; UnsupportedError is for types and operations that this version lacks.
    """
    declared = operator(op)
    first, *others, output = declared.names
    text = {name: cells.get(name, "").strip() for name in cells}
    dtype, math = _choice(text, "dtype", DTYPES)
    types = {first: dtype, output: _choice(text, "out", _TYPES)}
    types |= {name: _choice(text, f"dtype_{name}", _TYPES) if text.get(f"dtype_{name}") else dtype for name in others}
    try:
        found = Workload(
            operator=op,
            sizes=tuple((name, _integer(text, name)) for name in declared.size_names),
            dtypes=tuple(types.items()),
            accumulator=_choice(text, "acc", _TYPES),
            math=math,
            layout=tuple((name, _require(text, f"layout_{name}")) for name in types),
            alignment=tuple((name, int(_choice(text, f"align_{name}", _WIDTHS))) for name in types),
            epilogue=split(text.get("epilogue") or "none"),
            prologue=split(text.get("prologue") or "none"),
            program=text.get("program") or "" if op.startswith("pointwise") else "",
        )
        _check(found)
    except (ValueError, ArithmeticError) as error:
        raise CellError("op", str(error) or type(error).__name__) from None
    return found


_TYPES = {name: dtype for dtype, name in NAMES.items()}
_WIDTHS = {width: width for width in ALIGNMENTS}


def _check(workload: Workload) -> None:
    """Raise ValueError for layouts that the operator lacks, CellError for an alignment that an operand cannot have."""
    for each in operator(workload.operator).operands(workload):
        size, align = facts(workload.dtype[each.name]).itemsize, workload.align[each.name]
        run = 1
        for axis in each.order[len(each.order) - each.dense :]:
            run *= each.shape[axis]
        if align > size and (each.step > 1 or run * size % align):
            reason = "elements lie apart" if each.step > 1 else f"neighbouring elements are {run * size} bytes"
            raise CellError(f"align_{each.name}", f"'{align}' divides too little: {reason}")


def _require(text: Mapping[str, str], column: str) -> str:
    if not text.get(column):
        raise CellError(column, "is required here and is missing or empty")
    return text[column]


def _choice(text: Mapping[str, str], column: str, choices: Mapping[str, Choice]) -> Choice:
    value = _require(text, column).lower()
    value = value if value in choices else dtype_word(value)
    if value not in choices:
        meant = {word: name for word, name in SPELLINGS.items() if name in choices}
        raise CellError(column, spelling.unknown(value, choices, meant))
    return choices[value]


def _integer(text: Mapping[str, str], column: str) -> int:
    value = _require(text, column)
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > LARGEST:
        raise CellError(column, f"'{value[:40]}' is not a whole number of 0 to {LARGEST}")
    return int(value)
