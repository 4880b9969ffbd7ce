"""benchmarks/bench_kernels.py: counters against the baseline, and times next to CuPy's call in the JSON of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import kernel_counters
from gensor_kernels.devices.emulator.run import COUNTERS
from gensor_kernels.families.registry import FAMILIES
from gensor_tuner.regression.runs import read

ROOT = Path(__file__).resolve().parents[2]
#: Kernels that are built and run here; benchmarks/bench_kernels.py runs all of them.
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


BENCH = """
import time
import pytest
from benchmarks.bench_kernels import DEVICE_TIME, Kernels, kernels, rows, test_kernel
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.session import Session
from gensor_database.store import Store
from tests.benchmarks.stored_kernel import stored_kernel

@pytest.mark.benchmark(timer=DEVICE_TIME)
def test_emulated(benchmark, tmp_path):
    workload = next(each for each in rows().values() if each.operator == "softmax")
    with Store.open(tmp_path / "kernels.db") as store:
        store.add(*stored_kernel(workload))
    session = Session(tmp_path, Journal(tmp_path / "results.jsonl"), time.monotonic() + 60, emulate=True)
    session.db, session.vendors = tmp_path / "kernels.db", ("cupy",)
    Kernels(session).measure(benchmark, workload)
"""


def test_a_run_holds_times_beside_cupys_and_is_skipped_with_a_reason_without_a_gpu(tmp_path):
    """pytest-benchmark itself, over the emulator and NumPy in place of a GPU and CuPy."""
    run_json = tmp_path / "run.json"
    (tmp_path / "bench_emulated.py").write_text(BENCH)
    (tmp_path / "bench.ini").write_text("[pytest]\nmarkers = gpu\npython_files = bench_*.py\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin"]
    command += ["-c", str(tmp_path / "bench.ini"), str(tmp_path / "bench_emulated.py"), f"--benchmark-json={run_json}"]
    command += ["-k", "test_emulated or test_kernel and gpt2_small_prefill128_b1_c_attn"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    alone |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout and "SKIPPED [1]" in done.stdout
    (run,) = read(run_json)
    (sample,) = run.samples.values()
    assert sample.ours_us > 0 and sample.controls["cupy"] > 0
    (entry,) = json.loads(run_json.read_text())["benchmarks"]
    info = entry["extra_info"]
    assert info["group"] == "rows softmax" and len(info["kernels"]) == 1 and info["predicted_us"][0] > 0
