"""Predicted times that another process has kept: predicted once, equal, and of equal conditions only."""

import os

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.graph import conditions
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.lowerings import kept_times, predicted
from gensor_kernels.graph.readers.onnx_file import Source

from ..execution.test_saved import X, build

MADE = build()


def ask(part="sm_87"):
    """Plan a network as a new process does; return the nodes whose times were predicted, and the plan."""
    asked, run = [], predicted._dry_run
    gensor_kernels.refresh()
    with gensor_kernels.emulated(part), pytest.MonkeyPatch.context() as within:
        within.setattr(predicted, "_dry_run", lambda *given: asked.append(given) or run(*given))
        plan = Model(Source(MADE), "model")._plan({"x": X})
    return len(asked), plan


def test_times_are_predicted_once(cache):
    (first, plan), (second, again) = ask(), ask()
    assert first > 2 and second == 0
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 or os.name != "posix"
    assert (plan.graph.nodes, plan.graph.decisions, plan.layouts) == (
        *(again.graph.nodes, again.graph.decisions, again.layouts),
    )
    for name, constant in plan.graph.constants.items():
        np.testing.assert_array_equal(again.graph.constants[name], constant)
        assert again.graph.constants[name].strides == constant.strides
    assert ask("sm_90")[0] > 2
    assert len([*cache.iterdir()]) == 2
    assert ask("sm_90")[0] == ask()[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda within: within.setenv("GENSOR_TUNE", "predicted"),
        lambda within: within.setenv("GENSOR_PLANS", "0"),
        lambda within: within.setattr(conditions, "sources", lambda: "others"),
        lambda within: within.setattr(conditions, "packaged_digest", lambda arch: "others"),
    ],
)
def test_times_of_other_conditions_are_predicted_again(cache, monkeypatch, change):
    first, _ = ask()
    with monkeypatch.context() as within:
        change(within)
        assert ask()[0] == first
    assert ask()[0] == 0


def test_files_that_were_changed_are_ignored(cache, emulator):
    runtime = current_runtime()
    kept = kept_times.KeptTimes(runtime)
    kept.add("a", kept_times.CallTime(1.5, False))
    kept.keep(runtime)
    (file,) = cache.iterdir()
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert kept_times.KeptTimes(runtime).find("a") is None, place
        file.write_bytes(data[:place])
        assert kept_times.KeptTimes(runtime).find("a") is None, place
    file.write_bytes(data)
    assert kept_times.KeptTimes(runtime).find("a") == (1.5, False)
    if os.name == "posix":
        file.chmod(0o666)
        assert kept_times.KeptTimes(runtime).find("a") is None


def test_times_of_two_processes_are_joined_up_to_a_number(cache, monkeypatch, emulator):
    runtime = current_runtime()
    ours, theirs = (kept_times.KeptTimes(runtime) for _ in range(2))
    ours.add(("a", 1), kept_times.CallTime(1.5, False))
    theirs.add(("b", 2), kept_times.CallTime(None, True))
    for each in (ours, theirs):
        each.keep(runtime)
    found = kept_times.KeptTimes(runtime)
    assert (found.find(("a", 1)), found.find(("b", 2)), found.find("c")) == ((1.5, False), (None, True), None)
    monkeypatch.setattr(kept_times, "MOST_TIMES", 2)
    found.find(("a", 1))
    found.add("c", kept_times.CallTime(0.1, False))
    found.keep(runtime)
    assert len(kept_times.KeptTimes(runtime)._times) == 2
