"""benchmarks.strategies: its counts, its arguments, and Kernel Tuner beside our strategies."""

import json
import sys

import numpy as np
import pytest

from benchmarks import strategies
from benchmarks.spaces import kernel_tuner_space
from benchmarks.spaces.measured_space import Space, load
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
