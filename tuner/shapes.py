"""shapes.csv: a strict reader that reports file, line, column and reason for every bad row.

Columns are those of the public shape files (README, "The shapes file"): only `op` and the sizes of the op
are required, unknown columns are kept as notes. Values are parsed strictly: ASCII digits only, no underscores,
no signs, because int() would take full-width digits and "1_000".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.operators import matmul
from gensor_kernels.operators.dtypes import facts
from gensor_kernels.operators.workload import Workload

from . import layouts
from .dtype_names import ACCUMULATORS, DTYPES, FOREIGN, OUTPUTS

LARGEST = 2**31 - 1  # extents are 32-bit in the kernels' Params
MOST_CALLS = 10**18 - 1
SERVED = ("matmul", "batched_matmul", "gemv")
KNOWN = {
    *("grouped_matmul", "conv2d", "grouped_conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose"),
    *(
        "avg_pool2d",
        "max_pool2d",
        "adaptive_avg_pool2d",
        "global_avg_pool2d",
        "softmax",
        "layernorm",
        "rmsnorm",
    ),
    *("reduce_sum", "reduce_mean", "reduce_max", "argmax", "l2_norm", "relu"),
}
FOREIGN_EPILOGUES = ("swiglu", "geglu", "softmax", "layernorm")
COLUMNS = (
    "op",
    "dtype",
    "acc",
    "out",
    "batch",
    "m",
    "n",
    "k",
    "trans_a",
    "trans_b",
    "order",
    "epilogue",
    "count",
    *layouts.COLUMNS,
)


class RowError(GensorError):
    """A row of a shapes file that cannot be read; the message names file, line, column and reason."""


class ShapesError(GensorError):
    """A shapes file that cannot be read at all."""


@dataclass(frozen=True)
class Row:
    """One line of a shapes file and what came of it: a workload, a reason it is unsupported, or an error."""

    line: int
    name: str
    count: int = 1
    workload: Workload | None = None
    unsupported: str | None = None
    error: str | None = None
    notes: dict[str, str] = field(default_factory=dict)


class _Line:
    """One CSV line with strict accessors that know where they are."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]):
        self.path, self.line, self.cells = path, line, cells

    def fail(self, column: str, reason: str) -> RowError:
        return RowError(f"{self.path}:{self.line}: column '{column}': {reason}")

    def text(self, column: str, default: str | None = None) -> str:
        value = self.cells.get(column, "").strip()
        if value:
            return value
        if default is None:
            raise self.fail(column, "is required here and is missing or empty")
        return default

    def integer(self, column: str, default: int | None = None, largest: int = LARGEST) -> int:
        value = self.text(column, None if default is None else str(default))
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise self.fail(column, f"'{value[:40]}' is not a whole number written in digits")
        number = int(value)
        if number > largest:
            raise self.fail(column, f"{number} is larger than {largest}, the largest extent a kernel takes")
        return number

    def choice(
        self, column: str, choices: Iterable[str], default: str | None, known: Collection[str] = frozenset()
    ) -> str:
        """One of `choices`, or of those that are `known` beside them, which an error need not list."""
        value, wanted = self.text(column, default).lower(), list(choices)
        if value not in wanted and value not in known:
            raise self.fail(column, f"'{value[:40]}' is not one of {', '.join(wanted)}")
        return value


def read_shapes(path: str | Path) -> list[Row]:
    """Every row of the shapes file `path`, in order; a bad row carries its error, and the others go on.

    Raises ShapesError where the file itself cannot be read: missing, not UTF-8, without a header or an `op` column.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ShapesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ShapesError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    lines = text.splitlines()
    if not lines:
        raise ShapesError(f"{path}: is empty: a header row is needed, such as op,m,n,k")
    try:
        header = [name.strip() for name in _cells(lines[0])]
    except csv.Error as error:
        raise ShapesError(f"{path}:1: {_about_csv(error)}") from None
    if "op" not in header:
        raise ShapesError(f"{path}:1: the header has no column 'op' (it has: {', '.join(header)[:120]})")
    if len(set(header)) != len(header):
        raise ShapesError(f"{path}:1: the header names a column twice")
    return [_row(path, number, header, line) for number, line in _records(lines)]


def _cells(line: str) -> list[str]:
    return next(csv.reader([line], strict=True))


def _about_csv(error: csv.Error) -> str:
    hint = " (is a quote not closed?)" if "unexpected end" in str(error) else ""
    return f"is not a CSV row: {error}{hint}"


def _records(lines: list[str]) -> Iterator[tuple[int, str]]:
    """One record per physical line: an unclosed quote then spoils its own row and no other."""
    for number, line in enumerate(lines[1:], start=2):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _row(path: Path, number: int, header: list[str], line: str) -> Row:
    name = f"line {number}"
    try:
        try:
            values = _cells(line)
        except csv.Error as error:
            raise RowError(f"{path}:{number}: {_about_csv(error)}") from None
        if len(values) != len(header):
            raise RowError(f"{path}:{number}: has {len(values)} fields where the header has {len(header)}")
        cells = dict(zip(header, values, strict=True))
        notes = {key: value for key, value in cells.items() if key not in COLUMNS and value}
        name = cells.get("name", "").strip() or name
        workload, unsupported = _workload(_Line(path, number, cells))
        count = _Line(path, number, cells).integer("count", 1, MOST_CALLS)
        return Row(number, name, count, workload, unsupported, None, notes)
    except RowError as error:
        return Row(number, name, error=str(error))


def _workload(line: _Line) -> tuple[Workload | None, str | None]:
    op = line.choice("op", SERVED, None, KNOWN)
    if op not in SERVED:
        return None, f"this version serves {', '.join(SERVED)}, not {op}"
    if line.text("unsupported", ""):  # a recorded call that no kernel takes, whatever its other cells
        return None, line.text("unsupported")
    m, n, k = (line.integer(axis) for axis in "mnk")
    batch = line.integer("batch", 1)
    if op == "gemv" and 1 not in (m, n):
        raise line.fail("op", f"gemv needs m = 1 or n = 1, and this row has m = {m}, n = {n}")
    trans_a, trans_b = (line.choice(column, "01", "0") == "1" for column in ("trans_a", "trans_b"))
    if line.choice("order", ("row", "col"), "row") == "col":
        # A column-major problem is the row-major one transposed: C^T = op(B)^T op(A)^T.
        m, n, trans_a, trans_b = n, m, trans_b, trans_a
    name = line.choice("dtype", DTYPES, "fp32", FOREIGN)
    if name in FOREIGN:
        return None, f"no kernel family of this version serves {name} operands"
    dtype, math = DTYPES[name]
    accumulator = _accumulator(line, dtype)
    outputs = OUTPUTS | {name: dtype}
    try:
        workload = matmul.workload(
            *(m, n, k),
            batch=batch,
            dtype=dtype,
            out=outputs[line.choice("out", outputs, "int32" if dtype == "int8" else name)],
            math=math,
            trans_a=trans_a,
            trans_b=trans_b,
            epilogue=_epilogue(line),
        )
    except UnsupportedError as error:
        return None, error.reason
    found = facts(workload.accumulator).part or workload.accumulator
    if found != accumulator and accumulator != "float32":
        return None, f"no kernel family of this version accumulates {name} in {accumulator}"
    return layouts.laid_out(line, workload), None


def _epilogue(line: _Line) -> tuple[str, ...]:
    """Operation names of the `epilogue` column; UnsupportedError for a known one that this version lacks."""
    text = line.text("epilogue", "none")
    foreign = [word for word in FOREIGN_EPILOGUES if word in text.split("_")]
    if foreign:
        raise UnsupportedError(f"no operator of this version declares the epilogue '{foreign[0]}'")
    try:
        return layouts.operations(text)
    except UnsupportedError as error:
        raise line.fail("epilogue", error.reason) from None


def _accumulator(line: _Line, dtype: str) -> str:
    """`acc` is a minimum: fp32 accumulation serves acc=fp16, and nothing serves acc=fp64 on fp16 operands.

    Of a complex type, that of its parts.
    """
    default = {"float64": "fp64", "int8": "int32"}.get(dtype, dtype if facts(dtype).is_complex else "fp32")
    return ACCUMULATORS[line.choice("acc", ACCUMULATORS, default)]
