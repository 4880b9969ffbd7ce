"""The benchmark of shapes that no database has asks for what it says it asks for."""

import json

import pytest

from benchmarks import new_class
from gensor_database.store import Store


def test_there_are_40_shapes_and_most_have_another_size_of_their_class(tmp_path):
    rows = new_class.shapes()
    assert len({str(row) for row in rows}) == len(rows) == 40
    known = 0
    for row in rows:
        workload, other = new_class.read(row, tmp_path), new_class.other_size(row)
        assert workload is not None
        more = None if other is None else new_class.read(other, tmp_path)
        known += more is not None and more.class_key() == workload.class_key() and more.key() != workload.key()
    assert known >= 30


@pytest.mark.parametrize("ways", [("warm", "known"), ("whole",)])
def test_each_way_has_its_seconds(ways, tmp_path, monkeypatch, capsys):
    small = {"op": "matmul", "dtype": "fp64", "m": "16", "n": "16", "k": "64"}
    monkeypatch.setattr(new_class, "shapes", lambda: [small])
    assert new_class.main(["--ways", *ways, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found["figures"]) == set(ways)
    for way in ways:
        assert found["rows"][0][way]["seconds"] > 0 and found["figures"][way]["processor"]["shapes"] == 1
    assert all(f"{way:6} seconds" in capsys.readouterr().out for way in ways[:1])


def test_a_known_class_needs_no_compilation(tmp_path):
    process = new_class.Process(tmp_path / "cache")
    try:
        for m in ("16", "48"):
            row = {"op": "matmul", "dtype": "fp64", "m": m, "n": "16", "k": "64"}
            process.ask(new_class.read(row, tmp_path), "sm_87", tmp_path / "user.db")
    finally:
        process.close()
    with Store.open(tmp_path / "user.db", readonly=True) as store:
        assert store.counts()["record"] == 2 and store.counts()["kernel"] == 1
