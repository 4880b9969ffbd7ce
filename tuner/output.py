"""Where commands write: files that people name, and stdout for `-`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

from gensor_database.writing import written
from gensor_kernels.errors import ConfigError

from .shapes.cells import printable

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


def beside(path: Path | None) -> TextIO:
    """Where a command prints for people while it writes `path`."""
    return sys.stderr if str(path) == STDOUT else sys.stdout


def _cannot(path: Path, option: str, error: OSError) -> ConfigError:
    where = f"{option} {path}:" if option else f"{path}"
    return ConfigError(f"{where} cannot be written: {error.strerror or error}")
