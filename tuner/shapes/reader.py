"""The reader of shapes files (CSV), which reports file, line, column and reason for every bad row.

Columns are described in docs/reference/shapes-file.md: only `op` and the op's sizes are required, and unknown columns
are kept as notes. A file may mix ops. To serve another op, write its reader in readers.py or product_readers.py and
name it in `_KINDS`; an operator that is a plain sum of products needs none.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.operators import MODULES, shape_row
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.output import printable

from . import product_readers as products
from . import readers
from .columns import LAYOUT_COLUMNS, Line, Read, RowError

#: Columns that every op reads.
COMMON = ("op", "dtype", "acc", "out", "epilogue", "count", "unsupported")
_WINDOW = (
    *("n", "h", "w", "c", "r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w", *readers.PADS, "layout"),
    *("k_out", "groups", "weights", "prologue"),
)
_POOL = (*_WINDOW[:-4], "ceil_mode", "count_include_pad")
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Line], Read], tuple[str, ...]], ...] = (
    (
        ("matmul", "batched_matmul", "grouped_matmul", "gemv"),
        products.matrix,
        (
            *("batch", "m", "n", "k", "dtype_b", "group", "zeros", "trans_a", "trans_b", "order", "prologue"),
            *LAYOUT_COLUMNS,
        ),
    ),
    (("ragged_matmul",), products.groups, ("groups", "m", "n", "k", "trans_b")),
    (tuple(products.GATES), products.recurrent, ("hidden", "batch", "timesteps")),
    (
        ("conv2d", "grouped_conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose"),
        readers.convolution,
        _WINDOW,
    ),
    (("max_pool2d", "avg_pool2d", "global_avg_pool2d", "adaptive_avg_pool2d"), readers.pool, _POOL),
    ((*readers.ROWS, *readers.ELEMENTWISE), readers.reduction, ("shape", "axes")),
    (("attention",), readers.attend, ("batch", "heads", "kv_heads", "queries", "keys", "head", "causal")),
)
#: The reader of each op, and the columns it reads; other columns are kept as notes.
READERS = {op: reader for ops, reader, _ in _KINDS for op in ops}
COLUMNS = {op: (*COMMON, *names) for ops, _, names in _KINDS for op in ops}


def read(line: Line) -> Read:
    """Read one row; raise RowError for an unknown op or bad cells."""
    if line.text("unsupported", ""):  # a recorded call that no kernel serves, whatever its other cells
        return Read(unsupported=line.text("unsupported"))
    op = line.choice("op", READERS, None, MODULES)
    try:
        if op in MODULES and op != matmul.NAME and shape_row.is_whole(op, line.cells):
            return readers.whole(line)
        return READERS.get(op, readers.declared)(line)
    except UnsupportedError as error:
        return Read(unsupported=error.reason)


def columns(op: str) -> tuple[str, ...]:
    """Return the columns an op reads; other columns are kept as notes."""
    own = shape_row.columns(op) if op in MODULES else ()
    return (*COLUMNS.get(op, COMMON), *own)


MOST_CALLS = 10**18 - 1
LARGEST_FILE = 64 << 20  # bytes: half a million rows; endless devices exceed it


class ShapesError(GensorError):
    """A shapes file that cannot be read at all."""


@dataclass(frozen=True)
class Row:
    """One line of a shapes file: a workload, a reason why it is unsupported, or an error.

    `count` is how often the model calls it; `notes` holds the columns that its op does not read.
    """

    line: int
    name: str
    count: int = 1
    workload: Workload | None = None
    unsupported: str | None = None
    error: str | None = None
    notes: dict[str, str] = field(default_factory=dict)


def read_shapes(path: str | Path) -> list[Row]:
    """Read a shapes file.

    Parameters
    ----------
    path : str or Path
        The CSV file, UTF-8, at most 64 MB; `-` is stdin.

    Returns
    -------
    list of Row
        Every row in file order; a bad row carries its error.

    Raises
    ------
    ShapesError
        Where the file itself cannot be read: missing, not UTF-8, without a header or an `op` column.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "shapes.csv")
    >>> _ = file.write_text("op,m,n,k,dtype\\nmatmul,64,32,16,fp16\\n")
    >>> [row.workload.sizes for row in read_shapes(file)]
    [(('batch', 1), ('m', 64), ('n', 32), ('k', 16))]
    """
    path = Path(path)
    lines = _lines(path)
    if not any(lines):
        raise ShapesError(f"{path}: is empty: a header row is needed, such as op,m,n,k")
    try:
        header = [name.strip() for name in _cells(lines[0])]
    except csv.Error as error:
        raise ShapesError(f"{path}:1: {_about_csv(error)}") from None
    if "op" not in header:
        hint = "" if len(header) > 1 or not re.search(r"[;\t|]", lines[0]) else "; columns are separated by commas"
        raise ShapesError(
            f"{path}:1: the header has no column 'op' (it has: {printable(', '.join(header), 120)}){hint}"
        )
    if len(set(header)) != len(header):
        raise ShapesError(f"{path}:1: the header names a column twice")
    return [_row(path, number, header, line) for number, line in _records(lines)]


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; raise ShapesError where it cannot be read."""
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise ShapesError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
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
    """Yield one record per physical line, so that an unclosed quote spoils only its own row."""
    for number, line in enumerate(lines[1:], start=2):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _row(path: Path, number: int, header: list[str], text: str) -> Row:
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
        line = Line(path, number, cells)
        read_row = read(line)
        known = columns(line.text("op").lower())
        notes = {key: value for key, value in cells.items() if key not in known and value}
        count = line.integer("count", 1, MOST_CALLS) * read_row.repeats
        if count == 0:
            raise line.fail("count" if read_row.repeats else "timesteps", "0 is no number of calls: leave the row out")
        return Row(number, name, count, read_row.workload, read_row.unsupported, None, notes)
    except RowError as error:
        return Row(number, name, error=str(error))


def main() -> None:
    """Print the Workload of every readable row as a line of JSON: `python -m gensor_tuner.shapes.reader FILE`."""
    try:
        rows = read_shapes(sys.argv[1])
    except ShapesError as error:
        sys.exit(str(error))
    for row in rows:
        if row.workload is not None:
            print(row.workload.key())


if __name__ == "__main__":
    main()
