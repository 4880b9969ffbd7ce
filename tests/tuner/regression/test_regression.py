"""gensor-tune check: files in, verdicts, exit codes and JUnit out; the figures are in tests/campaigns."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gensor_tuner.regression.runs import Run, Sample, read
from gensor_tuner.regression.verdicts import MOST, change, compare

#: Which of 17 runs are new.
NEW = np.arange(17) >= 12
GPU = {"name": "NVIDIA H200", "driver_version": "550.54", "clocks.sm": "1500"}


@pytest.fixture
def check(gensor_tune):
    """check("--baseline", DIR) -> (exit code, stdout, stderr)."""
    return partial(gensor_tune, "check")


def pytest_run(path, number, times, gpu=GPU, **more):
    """A file of pytest-benchmark, as far as it is read: `times` are name -> (seconds, extra_info)."""
    entries = [
        {"name": name, "fullname": f"bench.py::{name}", "stats": {"median": seconds}, "extra_info": info}
        for name, (seconds, info) in times.items()
    ]
    when = datetime.fromtimestamp(1_700_000_000 + number, timezone.utc).isoformat()
    info = {"python_version": "3.12.1", "cpu": {"brand_raw": "EPYC", "count": 4}, **({"gpu": gpu} if gpu else {})}
    path.mkdir(parents=True, exist_ok=True)
    data = {"machine_info": info, "datetime": when, "benchmarks": entries, **more}
    (path / f"{number:04}.json").write_text(json.dumps(data))


def kernel_runs(path, count, first=0, slower=0.0, clock=1.0, gpu=GPU):
    """Runs of a kernel that brings its vendor's time, of one whose control is another benchmark, and of host code."""
    rng = np.random.default_rng(first)

    def seconds(us, factor=1.0):
        return us * 1e-6 * clock * factor * float(np.exp(rng.normal(0, 0.004)))

    for number in range(first, first + count):
        times = {
            "test_matmul": (seconds(100, 1 + slower), {"vendor_us": {"cupy": seconds(120) * 1e6}}),
            "test_softmax": (seconds(50, 1 + slower), {"control": "test_cupy_softmax"}),
            "test_cupy_softmax": (seconds(60), {}),
            "test_machine": (seconds(1000), {"is_control": True}),
            "test_host": (seconds(500, 1 + slower), {}),
        }
        pytest_run(path, number, times, gpu)


def verdicts(out):
    """Benchmark -> verdict, as the table says."""
    rows = [line for line in out.splitlines() if "::" in line]
    return {line.split("::")[1].split(":")[0]: line[:15].strip() for line in rows}


def one_kernel(path, ours, theirs=None, newer=GPU):
    """Write 12 runs and 5 of a kernel with these times in microseconds, and its vendor's; return the arguments."""
    for number, us in enumerate(ours):
        info = {} if theirs is None else {"vendor_us": {"cupy": theirs[number]}}
        folder, gpu = ("new", newer) if NEW[number] else ("old", GPU)
        pytest_run(path / folder, number, {"test_matmul": (us * 1e-6, info)}, gpu)
    return "--baseline", path / "old", "--results", path / "new"


def test_a_slowdown_of_ours_fails(check, tmp_path):
    kernel_runs(tmp_path / "old", 12)
    kernel_runs(tmp_path / "new", 5, first=20, slower=0.05)
    junit = tmp_path / "junit.xml"
    results = [part for path in (tmp_path / "new").iterdir() for part in ("--results", path)]
    code, out, _ = check("--baseline", tmp_path / "old", *results, "--junit", junit)
    ours = dict.fromkeys(("test_matmul", "test_softmax", "test_host"), "slower")
    assert code == 1 and verdicts(out) == {**ours, "test_cupy_softmax": "unchanged"}
    assert out.splitlines()[-1] == "3 slower, 1 unchanged" and "+5." in out
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    failed = {case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None}
    assert suite.get("failures") == "3" and suite.get("tests") == "4" and "bench.py::test_matmul" in failed
    assert {case.get("classname") for case in suite.iter("testcase")} == {"NVIDIA H200"}


def test_a_slower_clock_does_not(check, tmp_path):
    kernel_runs(tmp_path / "old", 12)
    kernel_runs(tmp_path / "new", 5, first=20, clock=1.12, gpu={**GPU, "clocks.sm": "1340"})
    code, out, said = check("--baseline", tmp_path / "old", "--results", tmp_path / "new")
    assert code == 0 and "SM clock, MHz was 1500, is 1340" in said
    assert {verdicts(out)[name] for name in ("test_matmul", "test_softmax", "test_host")} == {"machine slower"}


def test_a_faster_vendor_does_not_where_its_software_changed(check, tmp_path):
    """With the same software a vendor's call does not become faster by itself: then it was the machine, and we lost."""
    ours, theirs = np.exp(np.random.default_rng(3).normal(0, 0.004, (2, 17)))
    for driver, wanted, code in (("560.35", "vendor faster", 0), ("550.54", "slower", 1)):
        times = 100 * ours, np.where(NEW, 110, 120) * theirs
        asked = one_kernel(tmp_path / driver, *times, newer={**GPU, "driver_version": driver})
        found, out, _ = check(*asked)
        assert found == code and verdicts(out)["test_matmul"] == wanted


def test_without_a_control_a_changed_machine_leaves_it_open(check, tmp_path):
    us = 100 * np.exp(np.random.default_rng(4).normal(0, 0.004, 17)) * np.where(NEW, 1.08, 1.0)
    for driver, wanted, allowed in (("550.54", "slower", 1), ("560.35", "unclear", 0)):
        asked = one_kernel(tmp_path / driver, us, newer={**GPU, "driver_version": driver})
        code, out, _ = check(*asked)
        assert code == 1 and verdicts(out)["test_matmul"] == wanted
        assert check(*asked, "--allow-unclear")[0] == allowed


@pytest.mark.parametrize("slower", [0.2, 0.51, 0.65, 0.8])
def test_a_noisy_control_does_not_excuse_a_slowdown(check, tmp_path, slower):
    """The control rose by 0.7 %, so the machine did not become slower, however noisy the ratio is."""
    junit = tmp_path / "junit.xml"
    for seed in range(3):
        logs = []
        for width, rise in ((0.004, slower), (0.5, 0.007)):  # as logarithms: the noise alone, then the change
            noise = np.random.default_rng(seed if width < 0.1 else seed + 100).normal(0, width, 17)
            logs.append(noise + NEW * (np.log1p(rise) - change((noise[~NEW], noise[NEW]))))
        asked = one_kernel(tmp_path / str(seed), 100 * np.exp(logs[0]), 120 * np.exp(logs[1]))
        code, out, said = check(*asked, "--junit", junit)
        assert code == 1 and verdicts(out)["test_matmul"] in ("slower", "unclear") and "+0.7%" in out
        if verdicts(out)["test_matmul"] == "unclear":
            assert "1 benchmark may have become slower" in said and "--allow-unclear" in said
            suite = ElementTree.parse(junit).getroot().find("testsuite")
            assert suite.get("failures") == "1" and next(suite.iter("failure")).get("type") == "unclear"
            code, _, said = check(*asked, "--junit", junit, "--allow-unclear")
            suite = ElementTree.parse(junit).getroot().find("testsuite")
            assert code == 0 and "may have become slower" not in said
            assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")


def compared(ours, control=None):
    """The verdict on the last five of runs, given the times of a kernel and of its control."""
    controls = [{} for _ in ours] if control is None else [{"cupy": each} for each in control]
    samples = map(Sample, ours, controls)
    runs = [Run(Path(f"run-{i}"), i, "gpu", {}, {"kernel": sample}) for i, sample in enumerate(samples)]
    (found,) = compare(runs[-6::-1], runs[-5:])
    return found


def test_the_machine_is_blamed_only_where_the_control_rose_by_as_much():
    """A control that has risen by itself, noisily, does not make a slowdown of ours the machine's."""
    rng = np.random.default_rng(21)
    ours, theirs, shift = rng.normal(0, 0.01, 25), rng.normal(0, 0.01, 25), np.arange(25) >= 20
    drifting, two_speeds = theirs + 0.01 * np.arange(25), theirs + 0.35 * (rng.random(25) < 0.5)
    for a, b, verdict in (
        (ours + 0.2 * shift, theirs + 0.2 * shift, "machine slower"),
        (ours + 0.2 * shift, theirs, "slower"),
        (ours + 0.2 * shift, drifting, "unclear"),
        (ours + 0.2 * shift, two_speeds, "unclear"),
        (ours, drifting, "unchanged"),
        (ours + 0.1 * shift, theirs + 0.3 * shift, "faster"),
    ):
        assert compared(100 * np.exp(a), 80 * np.exp(b)).verdict == verdict


def test_noisy_runs_are_unclear_and_only_the_newest_of_a_long_baseline_are_compared():
    """Of 400 runs the oldest, on a machine twice as fast, say nothing; all pairs of them would not fit into memory."""
    rng = np.random.default_rng(22)
    for width, wanted in ((0.01, "unchanged"), (0.4, "unclear")):
        times = np.exp(rng.normal(0, width, (25, 2))) * 100
        for columns in (times.T, times.T[:1]):
            assert compared(*columns).verdict == wanted
    times = np.exp(np.random.default_rng(23).normal(0, 0.01, 400)) * np.where(np.arange(400) < 300, 50, 100)
    found = compared(times)
    assert (found.verdict, found.before, found.after) == ("unchanged", MOST, 5)


def test_other_machines_are_not_compared(check, tmp_path):
    kernel_runs(tmp_path / "old", 12, gpu={**GPU, "name": "NVIDIA A100"})
    kernel_runs(tmp_path / "new", 5, first=20, slower=0.3)
    code, out, said = check("--baseline", tmp_path / "old", "--results", tmp_path / "new")
    assert code == 2 and set(verdicts(out).values()) == {"too few runs"} and "0 runs before and 5 now" in out
    assert "no benchmark has 5 runs" in said


def device_run(folder, at, best, vendor, emulated=False):
    """A folder of benchmarks.device, with a line that a power failure cut short."""
    folder.mkdir(parents=True)
    facts = {"gpu": "NVIDIA H200", "part": "h200", "cuda_driver": 12040, "smi": {"clocks.sm": "1500"}, "power_mode": ""}
    timing = {"step": "timing", "item": "1024x1024x1024"}
    times = {"best_us": best, "vendors_us": {"torch": vendor * 1.1, "cupy": vendor}, "emulated": emulated}
    events = [
        {"event": "end", "step": "facts", "item": "environment", "outcome": "ok", "at": at, **facts},
        {"event": "begin", **timing, "at": at},
        {"event": "end", **timing, "outcome": "ok", "at": at + 1, **times},
    ]
    text = "\n".join(map(json.dumps, events)) + '\n{"event": "end", "st'
    (folder / "results.jsonl").write_text(text)
    (folder / "summary.json").write_text("{}")


def test_device_results(check, tmp_path):
    rng = np.random.default_rng(5)
    for number in range(13):
        new = number >= 8
        times = np.exp(rng.normal(0, 0.004, 2)) * (100 * (1.06 if new else 1), 90)
        device_run(tmp_path / ("new" if new else "old") / str(number), 1000.0 * number, *times)
    code, out, _ = check("--baseline", tmp_path / "old", "--results", tmp_path / "new")
    assert code == 1 and "timing: 1024x1024x1024" in out and re.search(r"\+[56]\.\d% +8/5", out)
    (run, *_) = read(tmp_path / "old")
    assert run.machine == "NVIDIA H200 (h200)" and run.conditions == {"CUDA driver": "12040", "SM clock, MHz": "1500"}
    device_run(tmp_path / "rehearsal", 0.0, 1.0, 1.0, emulated=True)
    assert check("--baseline", tmp_path / "rehearsal")[0] == 2


def test_unusable_files_are_named(check, tmp_path):
    kernel_runs(tmp_path / "old", 6)
    strange = '{"benchmarks": [{"fullname": 1}], "machine_info": {}}'
    empty = '{"benchmarks": [], "machine_info": {}, "datetime": "2026-01-01"}'
    for text in ("{", "[]", strange, empty, "[" * 100_000):
        (tmp_path / "bad.json").write_text(text)
        code, _, err = check("--baseline", tmp_path / "old", "--results", tmp_path / "bad.json")
        said = "holds no times" if text == empty else "is not a run of benchmarks"
        assert code == 2 and said in err and "bad.json" in err and "Traceback" not in err


def test_nothing_to_read(check, tmp_path):
    code, _, err = check("--baseline", tmp_path / "nowhere")
    assert code == 2 and "does not exist" in err
    code, _, err = check("--baseline", tmp_path)
    assert code == 2 and "neither a JSON file of pytest-benchmark nor" in err
    kernel_runs(tmp_path / "old", 12)
    code, _, err = check("--baseline", tmp_path / "old", "--junit", tmp_path / "no" / "junit.xml")
    assert code == 2 and "--junit" in err and "cannot be written" in err


def test_times_that_cannot_be_are_left_out(tmp_path):
    good = (1e-6, {"vendor_us": {"cupy": -1.0}})
    pytest_run(tmp_path, 1, {"test_nan": (float("nan"), {}), "test_zero": (0.0, {}), "test_good": good})
    (run,) = read(tmp_path)
    assert set(run.samples) == {"bench.py::test_good"} and not run.samples["bench.py::test_good"].controls


def test_names_reach_terminal_and_junit_harmless(check, tmp_path):
    name = "test_<b>&\x1b[31m\x00]]>"
    for number in range(15):
        pytest_run(tmp_path, number, {name: (1e-6 * (2 if number > 11 else 1), {})})
    code, out, _ = check("--baseline", tmp_path, "--junit", tmp_path / "junit.xml")
    assert code == 1 and "\x1b" not in out and "\\x1b[31m" in out
    assert "<b>&" in next(ElementTree.parse(tmp_path / "junit.xml").iter("testcase")).get("name")


def test_what_pytest_benchmark_writes_is_read(tmp_path):
    (tmp_path / "bench_it.py").write_text(
        "def test_ours(benchmark):\n    benchmark.extra_info['vendor_us'] = {'numpy': 3.5}\n    benchmark(sum, [1])\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin"]
    command += ["bench_it.py", "--benchmark-json=run.json", "--benchmark-max-time=0.01", "--benchmark-min-rounds=3"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}  # no worker of xdist
    alone["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=alone)
    (run,) = read(tmp_path / "run.json")
    assert set(run.samples) == {"bench_it.py::test_ours"} and run.when > 1_700_000_000
    assert run.samples["bench_it.py::test_ours"].controls == {"numpy": 3.5}
    assert 0 < run.samples["bench_it.py::test_ours"].ours_us < 1000 and "Python" in run.conditions
