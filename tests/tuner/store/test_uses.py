"""The rows of shapes files: a database speaks of a model as its author does, in its order, with its calls."""

import csv
import json
import re
from dataclasses import replace

import pytest

from gensor_database import Record, Store, canonical
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.result import find_result, provenance
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.store.uses import Use, name_records, newest, read, uses_of, with_uses, without
from tests.doubles.stored import ARCH, kernel_rows, record_of

SHAPES = """name,op,dtype,m,n,k,h,w,c,k_out,r,s,count,set
zeta,matmul,fp16,64,64,64,,,,,,,12,
pointwise,conv2d,fp16,,,,14,14,64,32,1,1,3,
alpha,matmul,fp16,64,64,64,,,,,,,2,head
"""


@pytest.fixture
def net(tmp_path):
    """A database with a record for each Workload of net.csv, by a run with default options; the rows."""
    (tmp_path / "net.csv").write_text(SHAPES)
    rows = read_shapes(tmp_path / "net.csv")
    with Store.open(tmp_path / "k.db") as store:
        for workload in {row.workload.key(): row.workload for row in rows}.values():
            found = kernel_rows(workload, 1)
            record = replace(record_of(workload, found[0][2]), provenance=provenance(Options()), bound_us=2.0)
            store.add(*found[0], record)
        name_records(store, ARCH.name, ARCH.part, "net", uses_of(rows, "net"))
    return rows


def test_names_order_words_and_calls_are_the_authors(gensor_tune, net, tmp_path):
    code, out, _ = gensor_tune("show", "--db", "{}/k.db")
    first = [line.split()[:3] for line in out.splitlines()[1:4]]
    assert code == 0
    assert first == [["net", "zeta", "matmul"], ["net", "pointwise", "conv2d"], ["head", "alpha", "matmul"]]
    assert "14x14x64 -> 32, 1x1" in out
    assert re.search(r"^net +zeta .* 12 .*\n(.*\n)*net on .*: 15 calls take ", out, re.M)
    assert re.search(r"^head on .*: 2 calls take ", out, re.M)
    gensor_tune("export", "{}/k.csv", "--db", "{}/k.db")
    with (tmp_path / "k.csv").open(newline="") as file:
        told = [(row["model"], row["name"], row["operator"], row["calls"]) for row in csv.DictReader(file)]
    calls = ("12", "3", "2")
    assert told == [(*each, count) for each, count in zip(map(tuple, first), calls, strict=True)]
    _, one, _ = gensor_tune("show", "--db", "{}/k.db", "--kernel", "")
    assert one.count("serves    zeta, alpha: 64x64x64 on ") == 1
    gensor_tune("report", "--db", "{}/k.db", "-o", "{}/r.html")
    page = (tmp_path / "r.html").read_text().replace("<wbr>", "")
    assert "zeta, alpha" in page and "net: 15 calls take" in page
    assert page.index(">zeta, alpha<") < page.index(">pointwise<")


def test_a_run_with_the_same_names_adds_no_record_and_resumes(net, tmp_path):
    with Store.open(tmp_path / "k.db") as store:
        before = set(store.rows(Record))
        name_records(store, ARCH.name, ARCH.part, "net", uses_of(net, "net"))
        assert set(store.rows(Record)) == before
        for record in newest(store):
            entry = store.find(record.key, record.arch, record.part)
            assert entry.record == record and without(record.provenance) == provenance(Options())
        stored = find_result(store, Workload.from_json(record.key), ARCH, Options(verify="none"))
        assert stored is not None and stored.stored


def test_rows_that_left_the_file_and_other_files_are_told_apart(net, tmp_path):
    with Store.open(tmp_path / "k.db") as store:
        name_records(store, ARCH.name, ARCH.part, "other", uses_of(net[:1], "other"))
        name_records(store, ARCH.name, ARCH.part, "net", uses_of(net[1:], "net"))
        found = sorted((use for record in newest(store) for use in read(record.provenance)), key=lambda use: use.name)
        assert [(use.file, use.name) for use in found] == [("net", "alpha"), ("net", "pointwise"), ("other", "zeta")]
        assert found[2].calls == 12 and found[1].op == "conv2d"


def test_a_new_record_takes_over_the_rows_of_other_files():
    use = Use("net", 2, "a", "net", 1, "matmul", "1x1x1")
    first = with_uses('{"seed":0}', "{}", "net", [use])
    second = with_uses('{"seed":1}', first, "other", [replace(use, file="other", name="b")])
    assert json.loads(second)["seed"] == 1 and [each.name for each in read(second)] == ["a", "b"]
    assert without(second) == '{"seed":1}' == with_uses(with_uses(second, second, "net", []), "{}", "other", [])


def test_malformed_rows_of_a_foreign_file_are_left_out():
    named = ({"line": 1}, {"name": "\x1b[31m", "line": "x"})
    for rows in (1, [], {"net": 1}, {"net": [1]}, *({"net": [each]} for each in named)):
        assert read(canonical({"rows": rows})) == [] == read('{"rows":' * 100_000)


def test_a_shipped_database_names_no_rows(monkeypatch, tmp_path):
    from gensor_tuner.cli import tuning

    asked = []
    monkeypatch.setattr(tuning, "tune", lambda settings, _: asked.append(settings) or 0)
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    Store.open(tmp_path / "pretune-sm_87.db").close()
    tuning.pretune("sm_87", tmp_path / "net.csv", tmp_path / "out.db", Options(), 0)
    assert asked[0].named is False
