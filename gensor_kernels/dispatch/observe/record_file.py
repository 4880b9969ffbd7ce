"""The file a recording is: rows of a shapes file with counts, read, merged and written in one step.

`gensor-tune --shapes` reads it unchanged and gets the Workloads that were called, exactly: properties that have
no column in a hand-written shapes file (operands without unit stride, smaller alignment) have columns here.
"""

from __future__ import annotations

import csv
import io
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gensor_database.writing import written
from gensor_kernels.dispatch.file_lock import State, file_lock
from gensor_kernels.errors import GensorError
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.shape_row import NAMES, cells_of, dtype_name, join
from gensor_kernels.operators.types.workload import Workload

OPERANDS = ("a", "b", "c")
#: The first columns of every recording. Rows of operators other than products add columns.
COLUMNS = (
    *("op", "batch", "m", "n", "k", "dtype", "acc", "out", "trans_a", "trans_b", "epilogue"),
    *(f"layout_{name}" for name in OPERANDS),
    *(f"align_{name}" for name in OPERANDS),
    *("count", "tier", "part", "unsupported"),
)
_NAME, _MARKED = re.compile(r"[a-z][a-z0-9_]{0,40}"), re.compile(r"(dtype|layout|align)_")
#: Seconds to wait for other processes that write to the file, which takes milliseconds.
PATIENCE = 30.0
_LARGEST = 10**18 - 1  # what a count may have: 18 digits

#: The cells of a row that say something, but for its count, by column.
Cells = tuple[tuple[str, str], ...]


class ForeignFileError(GensorError):
    """A file that is there and is no recording: it is left as it is."""


@dataclass(frozen=True)
class Served:
    """Who served a call: the tier (0: nothing to compute) and the part it ran on ("" where that is unlisted)."""

    tier: int
    part: str

    def row(self, cells: Mapping[str, object]) -> Cells:
        """Return a row with these cells."""
        whole = {"tier": self.tier, "part": self.part} | dict(cells)
        plain = {name: _plain(value) for name, value in whole.items() if name != "count"}
        return tuple(sorted((name, value) for name, value in plain.items() if value))


def _plain(value: object) -> str:
    """Return one line of text: the reader takes a line for a row."""
    return " ".join(str(value).split())


def workload_row(workload: Workload, served: Served) -> Cells:
    """Return the row of a Workload; of a matmul, cells that say what a plain row means anyway stay empty."""
    if workload.operator != matmul.NAME:
        return served.row(cells_of(workload))
    size, types, layouts = workload.size, workload.dtype, workload.layouts
    trans_a, trans_b = layouts["a"] == "m", layouts["b"] == "k"
    plain = matmul.workload(
        *(size["m"], size["n"], size["k"]),
        batch=size["batch"],
        dtype=types["a"],
        dtype_b=types["b"],
        out=types["c"],
        math=workload.math,
        trans_a=trans_a,
        trans_b=trans_b,
    )
    cells: dict[str, object] = dict(size) | {
        "op": "matmul" if size["batch"] == 1 else "batched_matmul",
        "dtype": dtype_name(types["a"], workload.math),
        "acc": NAMES[workload.accumulator],
        "out": NAMES[types["c"]],
        "trans_a": int(trans_a),
        "trans_b": int(trans_b),
        "epilogue": join(workload.epilogue),
    }
    if types["b"] != types["a"]:
        cells["dtype_b"] = NAMES[types["b"]]
    stored, usual = dict(workload.layout), dict(plain.layout)
    for name in OPERANDS:
        other = stored[name] != usual[name]
        if other:
            cells[f"layout_{name}"] = stored[name]
        if other or workload.align[name] != plain.align[name]:
            cells[f"align_{name}"] = workload.align[name]
    return served.row(cells)


def read(path: Path) -> dict[Cells, int]:
    """Return the rows and counts of a recording; none where the file is absent or empty.

    Raises ForeignFileError for a file of another form, OSError for one that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise ForeignFileError(f"{path} is no recording: it is not UTF-8 text") from None
    counts: dict[Cells, int] = {}
    header: list[str] = []
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text), strict=True), start=1):
            if number == 1:
                header = row
                if set(COLUMNS) - set(row) or len(set(row)) < len(row) or not all(map(_NAME.fullmatch, row)):
                    raise ForeignFileError(f"{path} is no recording: its header has other columns")
                continue
            cells = dict(zip(header, row, strict=False))
            if len(row) != len(header) or not re.fullmatch(r"[0-9]{1,18}", cells["count"]):
                raise ForeignFileError(f"{path} is no recording: line {number} is no row of one")
            count = int(cells.pop("count"))
            key = tuple(sorted((name, value) for name, value in cells.items() if value))
            counts[key] = counts.get(key, 0) + count
    except csv.Error as error:
        raise ForeignFileError(f"{path} is no recording: {error}") from None
    return counts


def check(path: Path) -> None:
    """Raise ForeignFileError or OSError where a recording could not be written to `path` as things stand."""
    if path.exists() and not path.is_file():
        raise ForeignFileError(f"{path} is no recording: it is no regular file")
    read(path)
    if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        path.parent.stat()  # a folder that is absent says so
        raise PermissionError(13, os.strerror(13))


def update(path: Path, counts: Mapping[Cells, int]) -> None:
    """Add counts to the recording at `path`, made where it is absent; most frequent rows first.

    In one step: a reader, or a process that dies on the way, sees the old file or the new one. Processes that share
    the file take turns. Raises ForeignFileError and OSError; then the file is as it was.
    """
    with _alone(path):
        check(path)
        total = read(path)
        for cells, count in counts.items():
            total[cells] = total.get(cells, 0) + count
        with written(path) as file:
            file.write(_text(total))


def _text(counts: Mapping[Cells, int]) -> str:
    """Return the text of a file. The most frequent calls come first, so that `--budget` tunes them first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    more = {name for cells in counts for name, _ in cells} - set(COLUMNS)
    header = (*COLUMNS, *sorted(more, key=lambda name: (_MARKED.match(name) is not None, name)))
    writer.writerow(header)
    for row, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        cells = dict(row) | {"count": str(min(count, _LARGEST))}
        writer.writerow([cells.get(name, "") for name in header])
    return buffer.getvalue()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process in at a time; where the system has no such locks, or somebody else holds them for good, two that
    end together may lose one's counts."""
    lock, deadline = path.with_name(f".{path.name}.lock"), time.monotonic() + PATIENCE
    while True:
        with file_lock(lock, deadline - time.monotonic()) as state:
            if state is State.FINISHED:  # another process took the file away: the next one is free
                continue
            if state is State.BUSY:
                text = f"another process has held {lock} for {PATIENCE:.0f} s: this process no longer waits for it"
                warnings.warn(text, RuntimeWarning, stacklevel=5)
            yield
            return
