"""Output of commands: files and stdout, text that is safe to print, and short names of Workloads and classes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gensor_database.writing import written
from gensor_kernels import shown
from gensor_kernels.errors import ConfigError
from gensor_kernels.operators import operator

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

STDOUT = "-"


@contextmanager
def output(path: Path, option: str = "") -> Iterator[TextIO]:
    """Open a file that replaces `path` (`-` is stdout) once the block ends well; ConfigError names the `option`."""
    if str(path) == STDOUT:
        yield sys.stdout
        return
    try:
        with written(path) as file:
            yield file
    except BrokenPipeError:  # the reader of the pipe has closed it
        raise
    except OSError as error:
        raise _cannot(path, option, error) from None


@contextmanager
def json_lines(path: Path | None) -> Iterator[TextIO | None]:
    """Open the file of `--json`, if any, flushed line by line; with `-` for stdout, other text goes to stderr."""
    if path is None:
        yield None
    elif str(path) == STDOUT:
        lines = sys.stdout
        with redirect_stdout(sys.stderr):
            yield lines
    else:
        try:
            file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise _cannot(path, "--json", error) from None
        with file:
            yield file


def write_json(lines: TextIO | None, value: object) -> None:
    """Write a value as a line of JSON and flush it; without a file, do nothing."""
    if lines is not None:
        lines.write(json_text(value) + "\n")
        lines.flush()


def json_text(value: object) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def take_stdout() -> TextIO:
    """Return a file on stdout for a protocol; from now on, prints of libraries go to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def say(line: str, file: TextIO | None = None, flush: bool = False) -> None:
    """Print a line that may quote a foreign database or file, on stdout unless `file` names another stream."""
    print(printable(line, None), file=file, flush=flush)


def note(text: str) -> None:
    """Print a line about the work of a command on stderr, after the command's name."""
    say(f"gensor-tune: {text}", sys.stderr, flush=True)


def printable(text: str, longest: int | None = 400) -> str:
    """Return `text` on one line, cut to `longest` characters: a cell may hold terminal commands or ten megabytes."""
    cut = text if longest is None or len(text) <= longest else f"{text[:longest]} ..."
    return shown.printable(cut)


def terminal_width(file: TextIO) -> int | None:
    """Return the columns of a stream's terminal, or None: files and pipes take lines of any length."""
    return shutil.get_terminal_size().columns if file.isatty() else None


def plural(noun: str, count: int) -> str:
    """Return the form of a noun that follows a number: 1 row, 2 rows, 0 binaries."""
    if count != 1 and noun.endswith("s"):
        return f"{noun}es"
    return noun if count == 1 else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def beside(path: Path | None) -> TextIO:
    """Return the stream for people's text while a command writes `path`: stderr where `path` is stdout."""
    return sys.stderr if str(path) == STDOUT else sys.stdout


def _cannot(path: Path, option: str, error: OSError) -> ConfigError:
    where = f"{option} {path}:" if option else f"{path}"
    return ConfigError(f"{where} cannot be written: {error.strerror or error}")


def sizes_text(workload: Workload) -> str:
    """Return the sizes of a Workload: 12x128x128x64, attention 12x128x64, 512 keys, 8x56x56x64 -> 128, 3x3/2."""
    size, declared = workload.size, operator(workload.operator)
    if "queries" in size:
        return attention_text(size)
    if "r" in size:
        return window_text(size)
    if {"m", "n", "k"} <= size.keys() and declared.product(workload) is not None:
        many = [size[axis] for axis in ("batch", "groups") if size.get(axis, 1) != 1]
        return "x".join(map(str, (*many, size["m"], size["n"], size["k"])))
    return "x".join(str(extent) for extent in declared.operands(workload)[0].shape if extent != 1) or "1"


def attention_text(size: Mapping[str, int]) -> str:
    """Return the sizes of attention: the shape of the queries, and how many keys there are."""
    queries = "x".join(str(size[axis]) for axis in ("batch", "heads", "queries", "head")).removeprefix("1x")
    shared = f" for {size['kv_heads']} heads" if size["kv_heads"] != size["heads"] else ""
    keys = f"{size['table']} pages of {size['page_size']}" if "table" in size else f"{size['keys']}"
    return f"{queries}, {keys} keys{shared}"


def window_text(size: Mapping[str, int]) -> str:
    """Return the sizes of a convolution or pooling: image, channels of the result, window, stride, groups."""
    image = "x".join(str(size[axis]) for axis in "nhwc").removeprefix("1x")
    result = f" -> {size['k_out']}" if "k_out" in size else ""
    strides = dict.fromkeys((size["stride_h"], size["stride_w"]))
    stride = "" if set(strides) == {1} else "/" + "x".join(map(str, strides))
    groups = f", {size['groups']} groups" if size.get("groups", 1) != 1 else ""
    return f"{image}{result}, {size['r']}x{size['s']}{stride}{groups}"


def class_text(workload: Workload) -> str:
    """Return a class for people: operator, element types, input layouts, alignment in bytes."""
    declared = operator(workload.operator)
    *inputs, out = declared.names
    laid = " ".join(dict(workload.layout)[name] for name in inputs)
    aligned = "/".join(str(workload.align[name]) for name in declared.names)
    return f"{workload.operator} {workload.kind} {laid} -> {workload.dtype[out]}, alignment {aligned}"


def counts_text(found: Mapping[str, int], empty: bool = False) -> str:
    """Return numbers of rows by table for people, in order; tables without rows only with `empty`."""
    return ", ".join(f"{count} {plural(table, count)}" for table, count in found.items() if count or empty) or "no rows"
