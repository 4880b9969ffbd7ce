"""Rows as values: their digest covers every bit, and survives SQLite."""

import dataclasses
import lzma
import math
import re
import sqlite3
import time
import zlib
from xml.etree import ElementTree

import numpy
import pytest

from gensor_database import (
    TABLES,
    Record,
    Row,
    Source,
    StoreWarning,
    Timing,
    Verification,
    canonical,
    duration,
    row_digest,
)
from gensor_kernels.build import source as build_source
from tests.doubles.store_rows import ARCH, PART, key, portfolio, rows

SAMPLES: dict[type[Row], Row] = {type(row): row for row in [*rows(3), *portfolio([3])]}


def through_sqlite(row: Row) -> list[object]:
    connection = sqlite3.connect(":memory:")
    try:
        marks = ", ".join("?" * (1 + len(row.columns())))
        return list(connection.execute(f"SELECT {marks}", row.to_sql()).fetchone())
    finally:
        connection.close()


def test_there_is_a_sample_of_every_table():
    assert set(SAMPLES) == set(TABLES)


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.TABLE)
def test_a_row_survives_storage(kind):
    row = SAMPLES[kind]
    assert kind.from_sql(through_sqlite(row)) == row
    assert kind.from_sql(through_sqlite(row)).digest == row.digest


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.TABLE)
def test_any_changed_value_is_refused(kind):
    stored = through_sqlite(SAMPLES[kind])
    for index, value in enumerate(stored):
        others = [None, 7, 7.5, "other", b"other", value.encode() if isinstance(value, str) else str(value)]
        if isinstance(value, float):
            others += [int(value), math.nextafter(value, math.inf)]
        for other in others:
            if other == value and type(other) is type(value):
                continue
            assert kind.from_sql([*stored[:index], other, *stored[index + 1 :]]) is None, (index, other)


def test_every_bit_of_a_compressed_value_counts_or_changes_nothing():
    row = SAMPLES[Source]
    digest, blob = through_sqlite(row)
    accepted = 0
    for position in range(8 * len(blob)):
        flipped = bytearray(blob)
        flipped[position // 8] ^= 1 << position % 8
        found = Source.from_sql([digest, bytes(flipped)])
        assert found is None or found == row
        accepted += found is not None
    assert accepted < 16  # xz has a few bits, such as the size of its dictionary, that mean little


def test_digests_tell_types_tables_columns_and_boundaries_apart():
    values = [("a",), (b"a",), (1,), (1.0,), (None,), ("1",), ("",), (b"",)]
    digests = [row_digest("t", ("x",), value) for value in values]
    digests += [row_digest("u", ("x",), ("a",)), row_digest("t", ("y",), ("a",))]
    digests += [row_digest("t", ("x", "y"), value) for value in [("a", "bc"), ("ab", "c"), ("abc", "")]]
    assert len(set(digests)) == len(digests)


def test_source_digest_is_the_builders():
    text = "// naïve\n#define X 1\n"
    assert Source.of(text).digest == build_source.digest(text)


def test_numbers_are_stored_as_their_column_says():
    record = Record(key(1), ARCH, PART, numpy.int64(1), None, numpy.float32(2), 3, "failed", created=0)
    assert type(record.abi) is int and type(record.predicted_us) is float and type(record.bound_us) is float
    assert Timing(key(1), ARCH, PART, None, "cublas", -0.0, created=0).median_us.hex() == "0x0.0p+0"


@pytest.mark.parametrize(
    "change",
    [
        {"predicted_us": math.nan},
        {"outcome": "fine"},
        {"key": {"operator": "matmul"}},
        {"key": None},
        {"abi": 1.5},
        {"walk": b"{}"},
    ],
)
def test_what_cannot_be_stored_is_refused(change):
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(SAMPLES[Record], **change)


def test_a_verification_names_its_method_and_a_timing_its_subject():
    with pytest.raises(ValueError, match="method"):
        Verification("0" * 64, "guess", "ok")
    with pytest.raises(ValueError, match="kernel or of a vendor"):
        Timing(key(1), ARCH, PART, "0" * 64, "cublas", 1.0)


def test_canonical_json_is_one_text():
    assert canonical({"b": [1, 2.5], "a": None}) == canonical({"a": None, "b": (1, 2.5)}) == '{"a":null,"b":[1,2.5]}'
    with pytest.raises(ValueError):
        canonical({"x": math.inf})


def test_reproducible_builds_can_fix_the_clock(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234")
    assert Timing(key(1), ARCH, PART, None, "cublas", 1.0).created == 1234


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "9" * 30, "253402300800", "\u0661"])
def test_a_date_that_no_calendar_has_is_ignored(value, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    with pytest.warns(StoreWarning, match="is no number of seconds since 1970 and is ignored"):
        row = Timing(key(1), ARCH, PART, None, "cublas", 1.0)
    assert abs(row.created - time.time()) < 60


@pytest.mark.parametrize("created", [-1, 2**62, 253402300799])
def test_a_foreign_date_is_drawn(created):
    row = Timing(key(1), ARCH, PART, None, "cublas", 1.0, created=created)
    assert ("9999-12-31 23:59:59 UTC" if created == 253402300799 else str(created)) in row._repr_html_()


@pytest.mark.parametrize("compress", [zlib.compress, lzma.compress])
def test_an_oversized_blob_is_refused_without_being_unpacked(compress):
    assert Source.from_sql(["0" * 64, compress(bytes(80 * 2**20))]) is None


def test_a_dictionary_that_takes_too_much_memory_is_refused():
    row = SAMPLES[Source]
    digest, blob = through_sqlite(row)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**28}]
    wasteful = lzma.compress(row.text, check=lzma.CHECK_NONE, filters=filters)
    assert Source.from_sql([digest, blob]) == row and Source.from_sql([digest, wasteful]) is None


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.TABLE)
def test_notebooks_draw_a_row(kind):
    """Names and values, without the bytes of data, in a table that is XML."""
    row = SAMPLES[kind]
    cells = [cell.text or "" for cell in ElementTree.fromstring(row._repr_html_()).iter() if cell.tag in ("th", "td")]
    drawn = dict(zip(cells[::2], cells[1::2], strict=True))
    assert cells[:2] == [kind.__name__.lower(), row.digest[:12]]
    for name in row.columns():
        value = getattr(row, name)
        if isinstance(value, bytes):
            assert drawn[name] == f"{len(value)} bytes"
        elif name.endswith("_us") and value is not None:
            assert drawn[name.removesuffix("_us")] == duration(value)


def test_a_drawn_row_is_escaped_and_short():
    hostile = "<script>alert(1)</script>" + "x" * 10_000
    drawn = dataclasses.replace(SAMPLES[Record], error=hostile, outcome="failed", predicted_us=1840.2)._repr_html_()
    assert "<script>" not in drawn and "&lt;script&gt;" in drawn and "(10025 characters)" in drawn
    assert (
        len(drawn) < 10_000 and "1.84 ms" in drawn and not re.search(r"color:(?!inherit)|background:(?!transp)", drawn)
    )
