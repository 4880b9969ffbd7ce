"""gensor-tune export: the same records in every format, and no file of an unknown one."""

import csv
import json
import sys

import pytest

from gensor_tuner.store.show import FIELDS
from tests.doubles.stored import lines, stock


@pytest.fixture
def exported(gensor_tune, tmp_path):
    """exported("x.csv") -> path of the file."""
    stock(tmp_path / "k.db", ((64, 64, 64), (32, 32, 32)), kernels=1)

    def made(name):
        code, out, _ = gensor_tune("export", tmp_path / name, "--db", "{}/k.db")
        assert code == 0 and out == f"2 records in {tmp_path / name}\n"
        return tmp_path / name

    return made


def test_every_format_has_the_same_records(exported):
    records = lines(exported("x.jsonl"))
    assert len(records) == 2 and json.loads(exported("x.json").read_text()) == records
    with exported("x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sizes"] for row in rows] == [record["sizes"] for record in records] and list(rows[0]) == list(FIELDS)
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(exported("x.parquet"))
    assert table.to_pylist() == records
    assert str(table.schema.field("measured_us").type) == "double"


def test_parquet_without_pyarrow_says_what_to_install(gensor_tune, exported, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = gensor_tune("export", "{}/x.parquet", "--db", "{}/k.db")
    assert code == 2 and err == "gensor-tune: writing .parquet needs pyarrow: pip install 'gensor-kernels[parquet]'\n"
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.parametrize("name", ["x.xlsx", "x.tsv", "x.csv.gz"])
def test_other_endings_are_refused(gensor_tune, exported, tmp_path, name):
    code, out, err = gensor_tune("export", tmp_path / name, "--db", "{}/k.db")
    assert code == 2 and not out and not (tmp_path / name).exists()
    assert "export knows the endings .csv, .json, .jsonl, .parquet and .db, not '." in err and err.count("\n") == 1
