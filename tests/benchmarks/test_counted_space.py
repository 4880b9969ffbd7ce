"""benchmarks.spaces.counted_space: our own kernels, searched by the emulator's counts."""

import numpy as np
import pytest

from benchmarks import strategies
from benchmarks.spaces import counted_space
from benchmarks.spaces.counted_space import Counted, Foreseen, clocks
from gensor_kernels.devices.emulator.run import Counters


def test_clocks_are_of_what_was_counted():
    quiet = {"shared_loads": 100, "shared_stores": 20, "barriers": 2, "global_load_16": 320}
    assert clocks(Counters(quiet)) == 100 + 20 + 2 * counted_space.BARRIER + 320 * 16 / 128
    assert clocks(Counters(quiet | {"conflicts_load": 7})) == clocks(Counters(quiet)) + 7
    narrow = Counters({"global_load_1": 320})
    assert clocks(narrow) == 10  # a byte per thread still takes a whole access of its warp


def test_a_program_runs_once_and_is_remembered(tmp_path, monkeypatch):
    space = Counted()
    points = space.every()[[0, -1]]
    seconds = space.potential(points)
    assert (seconds > 0).all() and seconds[0] != seconds[1]
    space.keep(tmp_path / "kept.csv.gz")
    monkeypatch.setattr(counted_space, "executed", lambda program: pytest.fail("ran again"))
    again = Foreseen()
    again.recall(tmp_path / "kept.csv.gz")
    assert np.array_equal(again.potential(points), seconds)
    assert np.isfinite(again.prior(points)).all() and np.isfinite(again.features(points)).all()


def test_strategies_search_what_was_counted(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lightgbm")
    space = Counted()
    points = space.every()
    space.clocks = dict(zip(space.encode(points).tolist(), (points @ np.arange(points.shape[1])) + 9.0, strict=True))
    space.keep(tmp_path / "kept.csv.gz")
    monkeypatch.setattr(counted_space, "executed", lambda program: pytest.fail("everything is known"))
    arguments = ["--counted", str(tmp_path / "kept.csv.gz"), "--seeds", "1", "--evaluations", "16", "--seconds", "1"]
    assert strategies.main([*arguments, "--only", "walk,random"]) in (0, 1)
    shown = capsys.readouterr().out
    assert "counted on the emulator: % slower than the optimum" in shown and "walk " in shown
