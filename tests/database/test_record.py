"""Rows as values: their digest covers every bit, and survives SQLite."""

import dataclasses
import lzma
import math
import re
import sqlite3
import time
import zlib
from contextlib import closing, suppress
from xml.etree import ElementTree

import numpy
import pytest

from gensor_database import TABLES, Record, Row, Source, StoreWarning, Timing, Verification, duration, row_digest
from gensor_database.record import compressed
from gensor_kernels.families.core import source as build_source
from tests.doubles.store_rows import ARCH, PART, key, portfolio, rows

SAMPLES: dict[type[Row], Row] = {type(row): row for row in [*rows(3), *portfolio([3])]}


def through_sqlite(row: Row) -> list[object]:
    with closing(sqlite3.connect(":memory:")) as connection:
        marks = ", ".join("?" * (1 + len(row.columns())))
        return list(connection.execute(f"SELECT {marks}", row.to_sql()).fetchone())


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.TABLE)
def test_a_row_survives_storage_and_any_changed_value_is_refused(kind):
    row = SAMPLES[kind]
    stored = through_sqlite(row)
    assert kind.from_sql(stored) == row and kind.from_sql(stored).digest == row.digest
    for index, value in enumerate(stored):
        others = [None, 7, 7.5, "other", b"other", value.encode() if isinstance(value, str) else str(value)]
        if isinstance(value, float):
            others += [int(value), math.nextafter(value, math.inf)]
        for other in others:
            if other == value and type(other) is type(value):
                continue
            assert kind.from_sql([*stored[:index], other, *stored[index + 1 :]]) is None, (index, other)


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.TABLE)
def test_values_of_other_types_are_refused_although_their_digest_fits(kind):
    """SQLite stores any type in any column, and a digest over it is soon computed."""
    row, refused = SAMPLES[kind], 0
    for place, name in enumerate(kind.columns()):
        more_than_types = name in ("outcome", "method", "vendor", "kernel_digest")  # digests cover these rules
        for strange in (b"abc",) if more_than_types else ("abc", b"abc", None):
            values = [getattr(row, each) for each in kind.columns()]
            values[place] = strange
            try:
                kind(*values)
            except (TypeError, ValueError):
                with suppress(TypeError, AttributeError):  # there is no such digest
                    stored = [kind.digest_of(values), *row.to_sql()[1:]]
                    stored[1 + place] = compressed(strange) if name in kind.COMPRESSED and strange else strange
                    assert kind.from_sql(stored) is None, (name, strange)
                    refused += 1
    assert refused >= len(kind.columns()) or kind is Source


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
    text = "// naïve\n#define X 1\n"
    assert Source.of(text).digest == build_source.digest(text)


def test_values_are_stored_as_their_column_says_or_refused():
    record = Record(key(1), ARCH, PART, numpy.int64(1), None, numpy.float32(2), 3, "failed", created=0)
    assert type(record.abi) is int and type(record.predicted_us) is float and type(record.bound_us) is float
    assert Timing(key(1), ARCH, PART, None, "cublas", -0.0, created=0).median_us.hex() == "0x0.0p+0"
    changes = {"predicted_us": math.nan, "outcome": "fine", "abi": 1.5, "walk": b"{}"}
    for name, value in [*changes.items(), ("key", {"operator": "matmul"}), ("key", None)]:
        with pytest.raises((TypeError, ValueError)):
            dataclasses.replace(SAMPLES[Record], **{name: value})
    with pytest.raises(ValueError, match="method"):
        Verification("0" * 64, "guess", "ok")
    with pytest.raises(ValueError, match="kernel or of a vendor"):
        Timing(key(1), ARCH, PART, "0" * 64, "cublas", 1.0)


def test_dates_that_no_calendar_has(monkeypatch):
    """SOURCE_DATE_EPOCH fixes the clock of a reproducible build; other values are ignored, and foreign rows drawn."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234")
    assert Timing(key(1), ARCH, PART, None, "cublas", 1.0).created == 1234
    for value in ("abc", "-1", "1.5", "9" * 30, "253402300800", "\u0661"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
        with pytest.warns(StoreWarning, match="is no number of seconds since 1970 and is ignored"):
            row = Timing(key(1), ARCH, PART, None, "cublas", 1.0)
        assert abs(row.created - time.time()) < 60
    for created in (-1, 2**62, 253402300799):
        row = Timing(key(1), ARCH, PART, None, "cublas", 1.0, created=created)
        assert ("9999-12-31 23:59:59 UTC" if created == 253402300799 else str(created)) in row._repr_html_()


def test_compressed_data_that_inflates_or_goes_on_is_refused():
    row = SAMPLES[Source]
    for oversized in (zlib.compress(bytes(80 * 2**20)), lzma.compress(bytes(80 * 2**20), preset=0)):
        assert Source.from_sql(["0" * 64, oversized]) is None
    digest, blob = through_sqlite(row)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**28}]
    wasteful = lzma.compress(row.text, check=lzma.CHECK_NONE, filters=filters)
    assert Source.from_sql([digest, blob]) == row
    assert Source.from_sql([digest, wasteful]) is None and Source.from_sql([digest, blob + b"x"]) is None


def test_notebooks_draw_rows():
    """Names and values, escaped, short and without the bytes of data, in a table that is XML."""
    for kind, row in SAMPLES.items():
        tree = ElementTree.fromstring(row._repr_html_())
        cells = [each.text or "" for each in tree.iter() if each.tag in ("th", "td")]
        drawn = dict(zip(cells[::2], cells[1::2], strict=True))
        assert cells[:2] == [kind.__name__.lower(), row.digest[:12]]
        for name in row.columns():
            value = getattr(row, name)
            if isinstance(value, bytes):
                assert drawn[name] == f"{len(value)} bytes"
            elif name.endswith("_us") and value is not None:
                assert drawn[name.removesuffix("_us")] == duration(value)
    hostile = "<script>alert(1)</script>" + "x" * 10_000
    drawn = dataclasses.replace(SAMPLES[Record], error=hostile, outcome="failed", predicted_us=1840.2)._repr_html_()
    assert "<script>" not in drawn and "&lt;script&gt;" in drawn and "(10025 characters)" in drawn
    assert len(drawn) < 10_000 and "1.84 ms" in drawn
    assert not re.search(r"color:(?!inherit)|background:(?!transp)", drawn)
