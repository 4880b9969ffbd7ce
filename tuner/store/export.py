"""`gensor-tune export`: records as CSV, JSON, JSON lines or Parquet, by the file's ending."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from gensor_database.store import Store
from gensor_kernels import install
from gensor_kernels.errors import ConfigError, ToolMissingError
from gensor_tuner.output import json_text, output, printable

from .show import FIELDS, records

#: First characters of a spreadsheet formula, including full-width forms.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
Found = Sequence[dict[str, Any]]


def write_records(store: Store, out: Path, arch: str | None) -> int:
    """Write records to a file in the format of its ending; return how many."""
    piped = str(out) == "-" or (out.exists() and not out.is_file())
    write = _jsonl if piped and not out.suffix else WRITERS.get(out.suffix)
    if write is None:
        known, other = ", ".join(WRITERS), f"not '{printable(out.suffix, 40)}'" if out.suffix else "and - for stdout"
        raise ConfigError(f"{out}: export knows the endings {known} and .db, {other}")
    found = list(records(store, arch))
    with output(out) as file:
        write(found, file)
    return len(found)


def _csv(found: Found, file: TextIO) -> None:
    writer = csv.DictWriter(file, FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: spreadsheet(value) for name, value in each.items()} for each in found)


def _json(found: Found, file: TextIO) -> None:
    lines = ",\n".join(map(json_text, found))
    file.write(f"[\n{lines}\n]\n" if found else "[]\n")


def _jsonl(found: Found, file: TextIO) -> None:
    file.writelines(json_text(each) + "\n" for each in found)


def _parquet(found: Found, file: TextIO) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ToolMissingError(f"writing .parquet needs pyarrow: {install.command('parquet')}") from None
    types = {"calls": pyarrow.int64()} | {name: pyarrow.float64() for name in FIELDS if name.endswith("_us")}
    names = list(found[0]) if found else list(FIELDS)
    schema = pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in names])
    whole = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(found), schema=schema), whole)
    file.flush()
    getattr(file, "buffer").write(whole.getvalue())  # noqa: B009 - a text file's bytes


def spreadsheet(value: object) -> object:
    """Return a CSV cell; text that a spreadsheet would read as a formula gets a leading apostrophe."""
    if not isinstance(value, str):
        return value
    text = printable(value, None)
    return f"'{text}" if value.startswith(FORMULA) else text


#: By the file's ending; stdout, a pipe and a device get JSON lines.
WRITERS: dict[str, Callable[[Found, TextIO], None]] = {
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
