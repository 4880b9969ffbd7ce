"""Where commands write: files that people name, and stdout for `-`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

from gensor_database.writing import written
from gensor_kernels.errors import ConfigError
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload

STDOUT = "-"


@contextmanager
def output(path: Path, option: str = "") -> Iterator[TextIO]:
    """Write the file at `path`, which has the text once the block ends without an error.

    Parameters
    ----------
    path : Path
        The file; `-` is stdout.
    option : str
        The option of the command line that named it, for the error.

    Yields
    ------
    TextIO
        The open file.

    Raises
    ------
    ConfigError
        Where the file cannot be written.
    """
    if str(path) == STDOUT:
        yield sys.stdout
        return
    try:
        with written(path) as file:
            yield file
    except BrokenPipeError:  # the reader of a pipe left
        raise
    except OSError as error:
        raise _cannot(path, option, error) from None


@contextmanager
def json_lines(path: Path | None) -> Iterator[TextIO | None]:
    """Open the file behind `--json`, which has every line as soon as that is flushed.

    Parameters
    ----------
    path : Path or None
        The file; `-` is stdout, and what the command prints for people goes to stderr then.

    Yields
    ------
    TextIO or None
        The open file; None where there is no `path`.

    Raises
    ------
    ConfigError
        Where the file cannot be opened.
    """
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


def say(line: str, file: TextIO | None = None, flush: bool = False) -> None:
    """Print a line that may quote a database or a file of somebody else's, on stdout unless `file` says otherwise."""
    print(printable(line, None), file=file, flush=flush)


def printable(text: str, longest: int | None = 400) -> str:
    """`text` on one line and of bearable length: a cell can hold what moves a terminal's cursor, or ten megabytes.

    Control characters, marks that turn the direction of text, and others that show nothing are escaped as in Python.
    """
    cut = text if longest is None or len(text) <= longest else f"{text[:longest]} ..."
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def beside(path: Path | None) -> TextIO:
    """Where a command prints for people while it writes `path`."""
    return sys.stderr if str(path) == STDOUT else sys.stdout


def _cannot(path: Path, option: str, error: OSError) -> ConfigError:
    where = f"{option} {path}:" if option else f"{path}"
    return ConfigError(f"{where} cannot be written: {error.strerror or error}")


def sizes_text(workload: Workload) -> str:
    """Sizes as a person writes them: a product's 12x128x128x64 for a batch of 12, without a leading 1; another
    operator's shapes of its inputs, the first of them at length."""
    declared = operator(workload.operator)
    axes = [axis for axis in ("batch", "groups", "m", "n", "k") if axis in workload.size]
    if len(axes) == len(workload.size) and declared.product(workload) is not None:
        shape = tuple(workload.size[axis] for axis in axes)
        return "x".join(map(str, shape[1:] if shape[0] == 1 else shape))
    first = declared.operands(workload)[0]
    return "x".join(str(extent) for extent in first.shape if extent != 1) or "1"


def class_text(workload: Workload) -> str:
    """A class as a person names it: operator, element types, layouts of inputs, alignment in bytes."""
    declared = operator(workload.operator)
    *inputs, out = declared.names
    laid = " ".join(dict(workload.layout)[name] for name in inputs)
    aligned = "/".join(str(workload.align[name]) for name in declared.names)
    return f"{workload.operator} {workload.kind} {laid} -> {workload.dtype[out]}, alignment {aligned}"
