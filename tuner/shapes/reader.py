"""The reader of shapes files (CSV), which reports file, line, column and reason for every bad row.

docs/reference/shapes-file.md describes the columns: only `op` and the op's sizes are required, and columns that are not
read are kept as notes. A file may mix ops. To serve another op, write its reader in readers.py
and name it in `_KINDS`; an operator that is a plain sum of products needs none.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gensor_kernels import spelling
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.operators import MODULES, shape_row
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.output import printable, say

from . import names, readers
from .columns import LAYOUT_COLUMNS, Line, Read, RowError

#: Columns that every op reads.
COMMON = ("op", "dtype", "acc", "out", "epilogue", "count", "any_size", "unsupported")
_WINDOW = (
    *("n", "h", "w", "c", "r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w", *readers.PADS, "layout"),
    *("k_out", "groups", "weights", "prologue"),
)
_POOL = (*_WINDOW[:-4], "ceil_mode", "count_include_pad")
_ATTENTION = (
    *("batch", "heads", "kv_heads", "queries", "head", "causal", "window_left", "window_right", "softcap"),
    *("sinks", "lse"),
)
_MATRIX = ("batch", "m", "n", "k", "dtype_b", "group", "zeros", "trans_a", "trans_b", "order", "prologue")
_PAGES = ("pages", "page_size", "table")
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Line], Read], tuple[str, ...]], ...] = (
    (("matmul", "batched_matmul", "grouped_matmul", "gemv"), readers.matrix, (*_MATRIX, *LAYOUT_COLUMNS)),
    (("ragged_matmul",), readers.groups, ("groups", "m", "n", "k", "trans_b")),
    (("matmul_block_scaled",), readers.scaled, ("m", "n", "k", "dtype_b")),
    (tuple(readers.GATES), readers.recurrent, ("hidden", "batch", "timesteps")),
    (("conv2d", "grouped_conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose"), readers.convolution, _WINDOW),
    (("max_pool2d", "avg_pool2d", "global_avg_pool2d", "adaptive_avg_pool2d"), readers.pool, _POOL),
    ((*readers.ROWS, *readers.ELEMENTWISE), readers.reduction, ("shape", "axes")),
    (("pointwise",), readers.program, ("program", "shape")),
    (("attention",), readers.attend, (*_ATTENTION, "keys")),
    (("attention_ragged",), readers.attend_sequences, (*_ATTENTION, "keys")),
    (("attention_paged", "attention_ragged_paged"), readers.attend_sequences, (*_ATTENTION, *_PAGES)),
)
#: The reader of each op, and the columns it reads; other columns are kept as notes.
READERS = {op: reader for ops, reader, _ in _KINDS for op in ops}
COLUMNS = {op: (*COMMON, *names) for ops, _, names in _KINDS for op in ops}


def op_of(text: str) -> str:
    """Return the op that a cell names in any common spelling, as GEMM or Conv2D; another word in lower case."""
    word = text.strip()[:100].lower()
    return word if word in READERS or word in MODULES else spelling.find(word, READERS, names.OPS) or word


def read(line: Line) -> Read:
    """Read one row; raise RowError for an unknown op or bad cells."""
    if line.text("unsupported", ""):  # a recorded call that no kernel serves, whatever its other cells
        return Read(unsupported=line.text("unsupported"))
    op = line.text("op")
    if op not in READERS and op not in MODULES:
        raise line.fail("op", spelling.unknown(op, READERS, names.OPS | names.LIKE))
    try:
        if op in MODULES and op != matmul.NAME and shape_row.is_whole(op, line.cells):
            return readers.whole(line)
        return READERS.get(op, readers.declared)(line)
    except UnsupportedError as error:
        return Read(unsupported=error.reason)
    except ValueError as error:  # sizes that do not fit each other
        raise line.fail("op", str(error)) from None


def columns(op: str) -> tuple[str, ...]:
    """Return the columns an op reads; other columns are kept as notes."""
    own = shape_row.columns(op) if op in MODULES else ()
    return (*COLUMNS.get(op, COMMON), *own)


@cache
def every_column() -> frozenset[str]:
    """Return the columns that any op reads."""
    return frozenset().union(*map(columns, (*READERS, *MODULES)))


MOST_CALLS = 10**18 - 1
LARGEST_FILE = 64 << 20  # bytes: half a million rows; endless devices exceed it


class ShapesError(GensorError):
    """A shapes file that cannot be read at all."""


class NoRowsError(ShapesError):
    """A shapes file with a header alone, as a recording without calls."""


@dataclass(frozen=True)
class Row:
    """One line of a shapes file: a workload, a reason why it is unsupported, or an error.

    `any_size` requests kernels for sizes that no row names; `notes` holds the columns that its op does not read.
    """

    line: int
    name: str
    count: int = 1
    workload: Workload | None = None
    unsupported: str | None = None
    error: str | None = None
    notes: dict[str, str] = field(default_factory=dict)
    cells: dict[str, str] = field(default_factory=dict)
    any_size: bool = False


def read_shapes(path: str | Path, notify: Callable[[str], None] = lambda line: None) -> list[Row]:
    """Read a shapes file: CSV, UTF-8, at most 64 MB; `-` is stdin. A bad row carries its error.

    `notify` is called with a sentence about columns that are not read, if there are any. Raises ShapesError where the
    file itself cannot be read: missing, not UTF-8, without a header, an `op` column or rows; or where a column has
    nearly the name of another one that its operators read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "shapes.csv")
    >>> _ = file.write_text("op,m,n,k,dtype\\nmatmul,64,32,16,fp16\\n")
    >>> [row.workload.sizes for row in read_shapes(file)]
    [(('batch', 1), ('m', 64), ('n', 32), ('k', 16))]
    """
    path = Path(path)
    lines = list(_records(_lines(path)))
    if not lines:
        raise ShapesError(f"{path}: is empty: a header row is needed, such as op,m,n,k")
    (place, first), *records = lines
    try:
        header = [name.strip() for name in _cells(first)]
    except csv.Error as error:
        raise ShapesError(f"{path}:{place}: {_about_csv(error)}") from None
    ops = {op for _, line in records if (op := _op(header, line))}
    try:
        _check_header(header, ops)
    except ShapesError as error:
        raise ShapesError(f"{path}:{place}: {error}") from None
    if not records:
        hint = "each row is one operator, such as matmul,128,768,768 under op,m,n,k"
        raise NoRowsError(f"{path}: has a header and no rows: {hint}")
    notes: dict[str, set[str]] = {}
    rows = [_row(path, number, header, line, notes) for number, line in records]
    unread = names.unread(notes, ops)
    if unread is not None:
        notify(f"{path}: {unread}")
    return rows


def _check_header(header: list[str], ops: Collection[str]) -> None:
    """Raise ShapesError for a header without `op`, with equal columns, or with a misspelt one."""
    read = dict.fromkeys(column for op in ops or COLUMNS for column in columns(op))
    wrong = names.misspelt(header, read, every_column())
    if wrong:
        shown = spelling.listed(f"'{printable(column, spelling.LONGEST)}'" for column in wrong)
        meant = spelling.did_you_mean(dict.fromkeys(name for each in wrong.values() for name in each))
        subject = f"columns {shown} are" if len(wrong) > 1 else f"column {shown} is"
        raise ShapesError(f"{subject} unknown: {meant}")
    if "op" not in header:
        separated = len(header) == 1 and re.search(r"[;\t| ]", header[0])
        hint = "columns are separated by commas" if separated else "the first line names the columns, as op,m,n,k"
        raise ShapesError(f"the header has no column 'op' (it has: {printable(', '.join(header), 120)}); {hint}")
    twice = [column for place, column in enumerate(header) if column in header[:place]]
    if twice:
        raise ShapesError(f"the header names a column twice: '{printable(twice[0], spelling.LONGEST)}'")


def _op(header: list[str], line: str) -> str | None:
    """Return the op of a row, None where it has no known one."""
    with suppress(csv.Error):
        op = op_of(dict(zip(header, _cells(line), strict=False)).get("op", ""))
        return op if op in READERS or op in MODULES else None
    return None


def _lines(path: Path) -> list[str]:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise ShapesError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix.lower() == ".onnx":
        raise ShapesError(f"{path}: is a model: use --model in place of --shapes; gensor-tune shapes writes its shapes")
    if data.startswith(b"PK\x03\x04"):
        raise ShapesError(f"{path}: is a spreadsheet or another ZIP archive: save it as CSV, separated by commas")
    if len(data) > LARGEST_FILE:
        raise ShapesError(f"{path}: is larger than {LARGEST_FILE >> 20} MB: split it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ShapesError(f"{path}: is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    return re.split(r"\r\n|\r|\n", text)  # splitlines() would split at more characters than editors do


def _cells(line: str) -> list[str]:
    return next(csv.reader([line], strict=True))


def _about_csv(error: csv.Error) -> str:
    hint = " (is a quote not closed?)" if "unexpected end" in str(error) else ""
    return f"is not a CSV row: {error}{hint}"


def _records(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the header and one record per physical line without comments: an unclosed quote spoils only its own row."""
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _row(path: Path, number: int, header: list[str], text: str, unread: dict[str, set[str]]) -> Row:
    """Return the row of a line; add its op to the columns in `unread` that it has and does not read."""
    name = f"line {number}"
    try:
        try:
            values = _cells(text)
        except csv.Error as error:
            raise RowError(f"{path}:{number}: {_about_csv(error)}") from None
        if len(values) != len(header):
            raise RowError(f"{path}:{number}: has {len(values)} fields where the header has {len(header)}")
        cells = dict(zip(header, values, strict=True))
        name = printable(cells.get("name", "").strip(), 100) or name
        cells["op"] = op_of(cells["op"])
        line = Line(path, number, cells)
        read_row = read(line)
        known = columns(cells["op"])
        notes = {key: value for key, value in cells.items() if key not in known and value}
        for column, meant in names.ELSEWHERE.items():
            if line.text(column, "0") not in ("", "0", "1") and meant in known and not cells.get(meant):
                raise line.fail(column, f"{cells['op']} does not read it: {spelling.did_you_mean([meant])}")
        for column in notes:
            unread.setdefault(column, set()).add(cells["op"])
        count = line.integer("count", 1, MOST_CALLS) * read_row.repeats
        if count == 0:
            raise line.fail("count" if read_row.repeats else "timesteps", "0 is no number of calls: leave the row out")
        any_size = line.choice("any_size", "01", "0") == "1"
        return Row(number, name, count, read_row.workload, read_row.unsupported, None, notes, cells, any_size)
    except RowError as error:
        return Row(number, name, error=str(error))


def main() -> None:
    """Print the Workload of every readable row as a line of JSON: `python -m gensor_tuner.shapes.reader FILE`."""
    try:
        rows = read_shapes(sys.argv[1])
    except NoRowsError:
        return
    except ShapesError as error:
        sys.exit(str(error))
    for row in rows:
        if row.workload is not None:
            say(row.workload.key())


if __name__ == "__main__":
    main()
