"""benchmarks/kernel_counters.py: counters against the baseline."""

from __future__ import annotations

import sys

import pytest

from benchmarks import kernel_counters
from gensor_kernels.devices.emulator.run import COUNTERS
from gensor_kernels.families.registry import FAMILIES

#: Kernels that are built and run here; `python -m benchmarks.kernel_counters` runs all of them.
COUNTED = ("rows", "contraction_aligned")


@pytest.fixture(scope="module")
def shipped():
    return kernel_counters.shipped_kernels()


def test_every_family_of_the_shipped_kernels_has_a_baseline(shipped):
    found = kernel_counters.baseline()
    assert found.keys() == shipped.keys()
    families = {name.split()[1] for name in found}
    assert families <= FAMILIES.keys() and {"contraction_mma", "contraction_wgmma", "rows", "attention"} <= families
    counted = {counter for counts in found.values() for counter in counts}
    assert counted <= set(COUNTERS) and all(all(counts.values()) for counts in found.values())
    assert {"barriers", "matrix_multiplies", "group_multiplies", "shared_loads", "global_load_16"} <= counted


@pytest.mark.parametrize("family", COUNTED)
def test_the_counters_are_those_of_the_baseline(shipped, family):
    name = next(name for name in shipped if name.split()[1] == family)
    told = list(kernel_counters.differences({name: kernel_counters.baseline()[name]}, {name: shipped[name].counters()}))
    assert not told, "\n".join(told)


def test_a_change_of_one_per_cent_is_reported_with_the_command_that_accepts_it():
    name, command = "sm_87 rows softmax", "python -m benchmarks.kernel_counters --accept"
    accepted = {name: {"global_load_16": 1000, "barriers": 8}}
    assert not list(kernel_counters.differences(accepted, {name: dict(accepted[name])}))
    found = {name: {"global_load_16": 1010, "conflicts_load": 3}, "sm_90 gemv x": {}}
    assert list(kernel_counters.differences(accepted, found)) == [
        f"{name}: barriers fell from 8 to 0 (-100.0%); {command} makes that the baseline",
        f"{name}: conflicts_load rose from 0 to 3; {command} makes that the baseline",
        f"{name}: global_load_16 rose from 1000 to 1010 (+1.0%); {command} makes that the baseline",
        f"sm_90 gemv x is not in the baseline; {command} adds it",
    ]
    (gone,) = kernel_counters.differences(accepted, {})
    assert gone == f"{name} is in the baseline and no longer counted; {command} removes it"


def test_the_command_compares_and_accepts(shipped, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernel_counters, "BASELINE", tmp_path / "baseline.json")
    counts = {"rows": {"barriers": 4}}
    kernel = type("Kernel", (), {"counters": lambda self: counts["rows"]})()
    monkeypatch.setattr(kernel_counters, "shipped_kernels", lambda: {"sm_87 rows x": kernel})
    monkeypatch.setattr(kernel_counters.Counted, "counters", lambda each: each.counters())
    for option, code, said in (
        ([], 1, "is not in the baseline"),
        (["--accept"], 0, "is not in the baseline"),
        ([], 0, "1 kernels: every counter is as accepted"),
    ):
        monkeypatch.setattr(sys, "argv", ["kernel_counters", *option])
        assert kernel_counters.main() == code and said in capsys.readouterr().out
    counts["rows"] = {"barriers": 5}
    monkeypatch.setattr(sys, "argv", ["kernel_counters"])
    assert kernel_counters.main() == 1 and "barriers rose from 4 to 5 (+25.0%)" in capsys.readouterr().out
