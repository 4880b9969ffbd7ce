"""Drawn Workloads, whose kernels a shipped database may have in addition to those of its rows."""

import json
import shutil

from gensor_database.record import Kernel, Portfolio, Record
from gensor_database.store import Store
from gensor_kernels.dispatch.selection import load
from gensor_kernels.dispatch.selection.library import Contents, Library
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.cli import tuning
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.drawn import DRAW, MENDING, attentions, find_missed, mending, products, rows
from gensor_tuner.run.tune import Run
from gensor_tuner.tasks.local import Local

ARCH = lookup("sm_87")


def test_a_database_is_mended_by_other_workloads_than_it_is_judged_by():
    drawn = [each.key() for each in mending()]
    assert len(drawn) == DRAW * len(MENDING) == 3600 and drawn[: len(MENDING)] == [each.key() for each in mending(18)]
    for draw in (products, rows, attentions):
        judging = {each.key() for each in draw(DRAW, 1)}
        assert len(judging & set(drawn)) <= 1  # of small products, one is drawn twice by chance
        assert {json.loads(key)["operator"] for key in judging} <= {json.loads(key)["operator"] for key in drawn}


def test_what_nothing_serves_is_missed_and_what_is_tuned_is_not():
    drawn = list(products(5, 7))
    with Local(1) as executor:
        assert find_missed(drawn, ARCH, Library(Contents(), arch=ARCH), executor) == drawn
        assert len(find_missed(drawn, ARCH, load.library(ARCH), executor)) < len(drawn)


def test_kernels_of_drawn_products_are_stored_without_records(tuned, monkeypatch, tmp_path, capsys):
    asked = [matmul.workload(16, 24, 40, dtype="float64"), matmul.workload(40, 16, 24, dtype="float64")]
    monkeypatch.setattr(tuning, "tune", lambda *_: 0)
    monkeypatch.setattr(tuning, "mending", lambda count: iter(asked[:count]))
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    scratch, target = tmp_path / "pretune-sm_87.db", tmp_path / "out.db"
    shutil.copy(tuned[0], scratch)
    assert tuning.pretune("sm_87", tmp_path / "none.csv", target, Options(top=2, jobs=1), 2) == 0
    assert "2 of 2 drawn Workloads are tuned for further kernels" in capsys.readouterr().err
    with Store.open(target, readonly=True) as store, Local(1) as executor:
        classes = {row.class_key for row in store.rows(Portfolio)}
        assert asked[0].class_key() in classes and {row.class_key for row in store.rows(Kernel)} >= classes
        assert {row.key for row in store.rows(Record)} == {each.key() for each in tuned[1]}
        assert not find_missed(asked, ARCH, tuning.library_of(store, ARCH), executor)
    assert not scratch.exists()


def test_a_run_stocks_what_serves_any_epilogue(tmp_path):
    asked = [matmul.workload(16, 24, 40, dtype="float64", epilogue=("relu",))]
    with Store.open(tmp_path / "k.db") as store, Local(1) as executor:
        Run(ARCH, store, Options(top=2, jobs=1)).stock(asked, executor)
        assert all('"epilogue_fixed":1' not in row.program for row in store.rows(Kernel))
        assert not list(store.rows(Record))
