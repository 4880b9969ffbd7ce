"""Validation of foreign rows: a closed grammar, checked before anything is stored.

A line is one JSON object: `table`, the row's columns, and the `digest` over them, which must match. Keys, classes and
Programs must be exactly as this version writes them, byte for byte; numbers are finite and in range.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

from gensor_database.record import TABLES, Binary, Kernel, Portfolio, Row, Source, Timing, Verification, text_digest
from gensor_kernels.errors import GensorError
from gensor_kernels.families.validation import class_of, program_of, workload_of
from gensor_tuner.output import json_text, printable

BY_TABLE = {kind.TABLE: kind for kind in TABLES}
#: Rows that contain code or vouch for it.
CODE = (Source, Binary, Verification)
DIGEST, ARCH, PART = re.compile(r"[0-9a-f]{64}"), re.compile(r"sm_[1-9][0-9]{1,2}a?"), re.compile(r"[!-~]{1,100}")
LONGEST_TEXT = 2**20  # characters; a walk has thousands
LARGEST_INTEGER = 2**53
LONGEST_INTEGER = 20  # characters


def to_json(row: Row) -> str:
    """Return a row as one line of a file, readable by `row_of`."""
    values = {name: getattr(row, name) for name in row.columns()}
    for name, value in values.items():
        if isinstance(value, bytes):
            values[name] = value.decode("utf-8") if isinstance(row, Source) else base64.b64encode(value).decode("ascii")
    return json_text({"table": row.TABLE, "digest": row.digest, **values})


def row_of(line: bytes) -> Row:
    """Return the row of a line; raise ValueError with the reason where it is malformed."""
    body = _parse(line)
    kind = BY_TABLE.get(body.pop("table", None)) if isinstance(body.get("table"), str) else None
    if kind is None:
        raise ValueError(f"'table' is not one of {', '.join(BY_TABLE)}")
    digest = body.pop("digest", None)
    if set(body) != set(kind.columns()):
        raise ValueError(f"a {kind.TABLE} has the columns digest, {', '.join(kind.columns())}")
    try:
        row = kind(**{name: _value(kind, name, value) for name, value in body.items()})
        if row.digest != digest:
            raise ValueError("the row does not match its digest")
        _check(row)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError, GensorError) as error:
        raise ValueError(f"is not a valid {kind.TABLE}: {printable(str(error))}") from None
    return row


def _parse(line: bytes) -> dict[str, Any]:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is not a number")

    def whole(text: str) -> int:
        if len(text) > LONGEST_INTEGER:  # int() takes quadratic time
            raise ValueError(f"a number has {len(text)} digits")
        return int(text)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    try:
        body = json.loads(line.decode("utf-8"), parse_constant=refuse, parse_int=whole, object_pairs_hook=unique)
    except (UnicodeDecodeError, RecursionError):
        raise ValueError("is not a JSON object in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg}") from None
    if not isinstance(body, dict):
        raise ValueError("is not a JSON object")
    return body


def _value(kind: type[Row], name: str, value: Any) -> Any:
    """Return a column's value after checks of kind and size; the row's own class checks the exact type."""
    if isinstance(value, str) and (kind, name) == (Source, "text"):
        return value.encode("utf-8")
    if isinstance(value, str) and kind is Binary and name == "cubin":
        return base64.b64decode(value, validate=True)
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT or "\0" in value:
            raise ValueError(f"'{name}' is too long, or holds a zero byte")
        value.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    elif isinstance(value, bool) or not (value is None or isinstance(value, (int, float))):
        raise ValueError(f"'{name}' is neither text nor a number")
    elif value is not None and not (math.isfinite(value) and 0 <= value <= LARGEST_INTEGER):
        raise ValueError(f"'{name}' is {value}, which is out of range")
    return value


#: Columns of any table that have a pattern, or hold JSON objects or lists.
PATTERNS = {"arch": ARCH, "target": ARCH, "part": PART} | dict.fromkeys(
    ("kernel_digest", "binary_digest", "source_digest"), DIGEST
)
JSON = ("walk", "provenance", "samples", "device", "constants", "facts", "cases", "counters")


def _check(row: Row) -> None:
    """Raise an error where a row is not exactly as this version writes it."""
    values = {name: getattr(row, name) for name in row.columns()}
    for name, value in values.items():
        if name in PATTERNS and value is not None and not PATTERNS[name].fullmatch(value):
            raise ValueError(f"'{name}' is malformed: {value[:80]!r}")
        if name in JSON:
            _json_text(name, value)
    if "key" in values:
        workload_of(values["key"])
    if isinstance(row, Kernel):
        program_of(row.family, row.abi, row.class_key, row.program, row.arch)
    elif isinstance(row, Portfolio):
        class_of(row.class_key)
    elif isinstance(row, Source):
        text_digest(row.text.decode("utf-8"))
    elif isinstance(row, Timing) and row.median_us <= 0:
        raise ValueError("'median_us' is not above 0")


def _json_text(name: str, text: str) -> None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON: {text[:80]!r}") from None
    if not isinstance(value, (dict, list)):
        raise ValueError(f"'{name}' is not a JSON object")
