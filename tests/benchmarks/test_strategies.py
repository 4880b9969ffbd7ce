"""benchmarks.strategies: its counts, its arguments, and Kernel Tuner beside our strategies."""

import json
import sys

import numpy as np
import pytest

from benchmarks import strategies
from benchmarks.spaces import counted_space, kernel_tuner_space
from benchmarks.spaces.counted_space import Counted, Foreseen, clocks
from benchmarks.spaces.measured_space import Space, load
from gensor_kernels.devices.emulator.run import Counters
from gensor_kernels.machine.arch import lookup

from .clblast_space import configurations, write_space


def test_a_trace_knows_the_best_after_evaluations_and_within_seconds():
    trace = strategies.Trace.of([np.array([5.0, 3.0]), np.array([4.0, 1.0])], [0.5, 2.0], runs=10)
    assert [trace.after(n) for n in (1, 2, 3, 4, 99)] == [5, 3, 3, 1, 1]
    assert trace.clock.tolist() == [50.5, 80.5, 122.0, 132.0]
    assert [trace.within(s) for s in (50, 51, 131, 133)] == [float("inf"), 5, 3, 1]


def test_figures_survive_their_file(tmp_path):
    walk = {"64": strategies.quartiles(np.array([3.0, 1.0, 2.0])), "1 s": [1.0, float("inf"), float("inf"), 1.0]}
    both = strategies.Compared(0.5, {"walk": walk, "random": {"64": [1.0, 1.5, 3.0, 1.0], "1 s": [1.0] * 4}})
    spaces = {"a": both, "b": strategies.Compared(None, {"walk": {"64": [2.0, 4.0, 4.0, 2.0]}})}
    (tmp_path / "f.json").write_text(strategies.written(spaces, 3, 32))
    assert strategies.read(tmp_path / "f.json", 3) == spaces
    assert spaces["a"].regrets()["walk"]["64"] == [1, 3, 3, 1] and spaces["b"].regrets()["walk"]["64"] == [0, 1, 1, 0]
    assert strategies.beaten(spaces, ["64"]) == ["on a, 64 evaluations, by random"]
    with pytest.raises(ValueError, match="has 3 seeds, not 4"):
        strategies.read(tmp_path / "f.json", 4)


@pytest.fixture
def data(tmp_path):
    """A small measured space as a file."""
    columns = configurations()
    analytic = Space(columns, np.ones(len(columns["MWG"])), lookup("rtx-3090")).analytic_ms
    return write_space(tmp_path / "space.csv.gz", columns, analytic**1.1)


def test_a_comparison_is_told_written_and_added_to(data, tmp_path, capsys, monkeypatch):
    pytest.importorskip("lightgbm")
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    common = (f"{data}:rtx-3090", "--seeds", "2", "--evaluations", "4,24", "--seconds", "1")
    files = ("--json", str(tmp_path / "f.json"), "--plot", str(tmp_path / "f.png"))
    assert strategies.main([*common, *files, "--only", "walk,random"]) == 0
    shown = capsys.readouterr()
    assert "walk is beaten: nowhere" in shown.out and "Kernel Tuner is not installed" in shown.err
    strategies.main([*common, *files, "--only", "paper,evolution"])
    body = json.loads((tmp_path / "f.json").read_text())
    found = body["spaces"]["rtx-3090"]["found"]
    assert set(found) == {"walk", "random", "paper", "evolution"} and set(found["walk"]) == {"4", "24", "1 s"}
    assert found["walk"]["24"][1] == body["spaces"]["rtx-3090"]["optimum"]
    assert (tmp_path / "f.png").exists() or "no plot" in shown.err


def test_kernel_tuner_searches_the_same_space(data):
    pytest.importorskip("kernel_tuner")
    space = load(data, "rtx-3090")
    with kernel_tuner_space.Simulator(space) as simulator:
        found, own = simulator.search("random_sample", 20, 1)
        again, _ = simulator.search("random_sample", 20, 1)
    assert len(found) == 20 and set(found) <= set(space.time_ms) and own > 0
    assert np.array_equal(found, again)


# ---- benchmarks.spaces.counted_space: our own kernels, searched by the emulator's counts


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
