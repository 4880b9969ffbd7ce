"""Columns that many rows of a shapes file share: strict access to cells, element types, layouts, epilogues.

Numbers are ASCII digits only, without underscores or signs: int() would accept full-width digits and "1_000". A cell
"16.0" is 16: pandas writes so every integer of a column that has empty cells.

Recordings add the columns of memory layout. `layout_a`, `layout_b`, `layout_c`: the axis of the operand that has
stride 1, `s` for none, followed by `*` where complex elements are conjugated. `align_a`, `align_b`, `align_c`: bytes
that divide the operand's address and every other stride. Empty cells follow from the rest of the row, as contiguous
operands at 16-byte aligned addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gensor_kernels import spelling
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.operators import shape_row
from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.products import gated
from gensor_kernels.operators.shape_row import ALIGNMENTS, split
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import MAX_STEPS, NORMS, PROLOGUES
from gensor_kernels.operators.types.workload import CONJUGATED, Workload
from gensor_tuner.output import printable

Parsed = TypeVar("Parsed")
_INTEGRAL = re.compile(r"\A\s*(-?[0-9]+)\.0+\s*\Z", re.ASCII)
LARGEST = 2**31 - 1  # extents are 32-bit in the kernels' Params


class RowError(GensorError):
    """A row that cannot be read; the message names file, line, column and reason."""


class Line:
    """One CSV line with strict accessors that know file and line."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]):
        self.path, self.line = path, line
        self.cells = {column: _INTEGRAL.sub(r"\1", value) for column, value in cells.items()}

    def fail(self, column: str, reason: str) -> RowError:
        """Return the error for a cell, with its place in the file."""
        return RowError(f"{self.path}:{self.line}: column '{printable(column)}': {printable(reason)}")

    def text(self, column: str, default: str | None = None) -> str:
        """Return a cell's text; an empty cell is an error without a default."""
        value = self.cells.get(column, "").strip()
        if value:
            return value
        if default is None:
            raise self.fail(column, "is required here and is missing or empty")
        return default

    def integer(self, column: str, default: int | None = None, largest: int = LARGEST) -> int:
        """Return a whole number from 0 to `largest`."""
        value = self.text(column, None if default is None else str(default))
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise self.fail(column, f"'{value[:40]}' is not a whole number written in digits")
        number = int(value)
        if number > largest:
            raise self.fail(column, f"{number} is larger than {largest}, the largest extent a kernel takes")
        return number

    def parsed(self, column: str, parse: Callable[[str], Parsed]) -> Parsed:
        """Return what `parse` finds in a list of operations; its UnsupportedError is an error of the cell."""
        try:
            return parse(self.text(column, "none"))
        except UnsupportedError as error:
            raise self.fail(column, error.reason) from None

    def choice(
        self, column: str, choices: Iterable[str], default: str | None, known: Collection[str] = frozenset()
    ) -> str:
        """Return one of `choices`, or of the `known` further values, which the error message does not list."""
        value, wanted = self.text(column, default).lower(), list(choices)
        if value not in wanted and value not in known:
            raise self.fail(column, spelling.unknown(self.text(column, default), wanted))
        return value

    def dtype(
        self, column: str, choices: Iterable[str], default: str | None, known: Collection[str] = frozenset()
    ) -> str:
        """Return one of `choices` of element types, or of the `known` ones, from any common spelling."""
        text, wanted = self.text(column, default), list(choices)
        value = shape_row.dtype_word(text)
        if value not in wanted and value not in known:
            meant = {word: name for word, name in shape_row.SPELLINGS.items() if name in wanted}
            raise self.fail(column, spelling.unknown(text, wanted, meant | EIGHT_BITS))
        return value


LAYOUTS = {"a": "mks", "b": "kns", "c": "ns"}
LAYOUT_COLUMNS = (*(f"layout_{name}" for name in LAYOUTS), *(f"align_{name}" for name in LAYOUTS), "unsupported")


def laid_out(line: Line, workload: Workload) -> Workload:
    """Return `workload` with the layouts and alignments of the row; raise RowError for impossible ones."""
    given = {column for column in LAYOUT_COLUMNS if line.text(column, "")}
    if not given:
        return workload
    if line.text("order", "row").lower() == "col":
        raise line.fail("order", f"'col' cannot stand beside '{min(given)}', which describes the row-major problem")
    layouts, alignments = dict(workload.layout), dict(workload.alignment)
    conjugable = [*"ab"] if facts(workload.accumulator).is_complex else []
    for name in LAYOUTS:
        choices = [axis + mark for mark in ("", CONJUGATED)[: 1 + (name in conjugable)] for axis in LAYOUTS[name]]
        layouts[name] = line.choice(f"layout_{name}", choices, layouts[name])
        alignments[name] = _alignment(line, workload, name, layouts[name].removesuffix(CONJUGATED))
    return replace(workload, layout=tuple(layouts.items()), alignment=tuple(alignments.items()))


def _alignment(line: Line, workload: Workload, name: str, layout: str) -> int:
    """Return an operand's alignment class in bytes: as given, else the largest its row length in bytes allows."""
    size = facts(workload.dtype[name]).itemsize
    row = 0 if layout == "s" else workload.size[layout] * size
    widths = [width for width in (16, 8, 4) if layout != "s" and width > size and row % width == 0] + [size]
    wanted = int(line.choice(f"align_{name}", ALIGNMENTS, str(widths[0])))
    if wanted not in widths:
        single = "elements without unit stride are read one by one"
        reason = single if layout == "s" else f"axis {layout} has {row} bytes"
        possible = ", ".join(map(str, widths))
        raise line.fail(f"align_{name}", f"'{wanted}' is not one of {possible}: {reason}")
    return wanted


def operations(text: str) -> tuple[str, ...]:
    """Return the operation names of an epilogue cell; UnsupportedError for an unknown word or too many operations."""
    names = split(text)
    if len(names) > MAX_STEPS:
        raise UnsupportedError(f"epilogue '{text[:80]}' has {len(names)} operations, at most {MAX_STEPS} are served")
    return names


#: Words for more than one element type.
EIGHT_BITS = dict.fromkeys(("fp8", "float8", "f8"), "fp8_e4m3, fp8_e5m2")
#: Name -> (operand dtype, math mode); the operand dtype decides the accumulator.
DTYPES = {
    "fp64": ("float64", "ieee"),
    "fp64_ozaki": ("float64", "ozaki"),
    "fp32": ("float32", "ieee"),
    "tf32": ("float32", "tf32"),
    "fp16": ("float16", "ieee"),
    "bf16": ("bfloat16", "ieee"),
    "int8": ("int8", "ieee"),
    "complex64": ("complex64", "ieee"),
    "complex128": ("complex128", "ieee"),
    "complex64_3m": ("complex64", "3m"),
    "complex128_3m": ("complex128", "3m"),
    "fp8_e4m3": ("float8_e4m3fn", "ieee"),
    "fp8_e5m2": ("float8_e5m2", "ieee"),
}
#: Element types that no family serves.
FOREIGN = frozenset({"fp4_e2m1", "int4"})
#: Output types besides the operands' own type.
OUTPUTS = {name: DTYPES[name][0] for name in ("fp64", "fp32", "fp16", "bf16", "int8")}
OUTPUTS |= {name: name for name in ("int32", "complex64", "complex128")}
#: The least accumulator type; for complex types, the type of the real and imaginary parts.
ACCUMULATORS = {"fp16": "float32", "fp32": "float32", "fp64": "float64", "int32": "int32"}
ACCUMULATORS |= {"complex64": "float32", "complex128": "float64"}


#: Known words that are no epilogue operations here; readers of matrix products handle gates and norms themselves.
FOREIGN_EPILOGUES = (*gated.GATES, *NORMS, "softmax")


@dataclass(frozen=True)
class Read:
    """A row's workload, or the reason why this version has none; `repeats`: runs per call of the row."""

    workload: Workload | None = None
    unsupported: str | None = None
    repeats: int = 1


@dataclass(frozen=True)
class Element:
    """The columns dtype, acc and out; `out` is None where the operator decides it."""

    name: str
    dtype: str
    out: str | None
    math: str
    accumulator: str

    @property
    def named(self) -> dict[str, Any]:
        """The types as keyword arguments of operators."""
        return {"dtype": self.dtype, "out": self.out, "math": self.math}

    def accumulated(self, workload: Workload) -> Workload:
        """Return the workload if its accumulator is at least the requested one."""
        found = facts(workload.accumulator).part or workload.accumulator
        if found != self.accumulator and self.accumulator != "float32":
            raise UnsupportedError(f"no kernel family of this version accumulates {self.name} in {self.accumulator}")
        return workload


def element(line: Line, more: Mapping[str, str] = MappingProxyType({})) -> Element:
    """Return the element types of a row; raise UnsupportedError for types that no family serves.

    `more`: operand dtypes by further names that the operator knows.
    """
    known = DTYPES | {name: (dtype, "ieee") for name, dtype in more.items()}
    name = line.dtype("dtype", known, "fp32", FOREIGN)
    if name in FOREIGN:
        raise UnsupportedError(f"no kernel family of this version serves {name} operands")
    dtype, math = known[name]
    outputs = OUTPUTS | {name: dtype} | dict(more)
    out = outputs[line.dtype("out", outputs, None)] if line.text("out", "") else None
    # `acc` is a minimum: fp32 accumulation serves acc=fp16, and nothing serves acc=fp64 on fp16 operands. For complex
    # types it is the accumulator of the real and imaginary parts.
    usual = {"float64": "fp64", "int8": "int32"}.get(dtype, dtype if facts(dtype).is_complex else "fp32")
    return Element(name, dtype, out, math, ACCUMULATORS[line.dtype("acc", ACCUMULATORS, usual)])


def second(line: Line, types: Element) -> str:
    """Return the element type of b: the type of a, or the column `dtype_b`."""
    return DTYPES[line.dtype("dtype_b", DTYPES, types.name)][0]


def before(line: Line) -> tuple[str, ...]:
    """Return the operation names of the `prologue` column; raise UnsupportedError for unsupported combinations."""
    names = line.parsed("prologue", split)
    foreign = [name for name in names if name not in PROLOGUES]
    if foreign:
        raise line.fail("prologue", spelling.unknown(foreign[0], PROLOGUES))
    if names:
        prologue.suffix(names)
    return names


def steps(line: Line) -> tuple[str, ...]:
    """Return the operation names of the `epilogue` column; raise UnsupportedError for a known but missing one."""
    text = line.text("epilogue", "none")
    foreign = [word for word in FOREIGN_EPILOGUES if word in text.split("_")]
    if foreign:
        raise UnsupportedError(f"no operator of this version declares the epilogue '{foreign[0]}'")
    return line.parsed("epilogue", operations)
