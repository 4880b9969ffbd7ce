"""The whole of benchmarks.device, rehearsed on the emulator: resuming, budgets, failing kernels and processes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import device as command
from benchmarks.gpu import claims, graphs, summary, timing
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.supervise import Step, Supervisor
from benchmarks.gpu.kernels.fitting import shrunk
from gensor_database.record import Kernel, Timing, Verification
from gensor_database.store import Store
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.windows import conv

from .stored_kernel import ARCH, stored_kernel

ROOT = Path(__file__).resolve().parents[2]
#: PyTorch's calls are tested in this process: importing it in every worker takes longer than all other steps.
COMMAND = (sys.executable, "-m", "benchmarks.device", "--emulate", "--vendors", "cupy,cublaslt")
STEPS = set("facts claims families shipped timing graphs compiled public felt suite fault_injection".split())


def device(out, *arguments, check=None):
    command = [*COMMAND, "--out", str(out), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def rows(workload, built_for):
    """Return the rows of the kernel of `workload` with the constants that fit `built_for`, its epilogue compiled in."""
    return stored_kernel(workload, built_for, epilogue_fixed=int(bool(built_for.epilogue)))


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    """A rehearsal over a good kernel, one with the epilogue of another, and one that takes B for its transpose."""
    folder = tmp_path_factory.mktemp("device")
    sizes, single = {"m": 72, "n": 48, "k": 48}, {"m": 72, "n": 48, "k": 48, "dtype": "float32"}
    good = matmul.workload(**sizes, epilogue="bias_relu")
    with Store.open(folder / "kernels.db") as store:
        store.add(*rows(good, good))
        store.add(*rows(matmul.workload(**sizes, epilogue="relu"), matmul.workload(**sizes, epilogue="tanh")))
        store.add(*rows(matmul.workload(**single), matmul.workload(**single, trans_b=True)))
    done = device(folder / "out", "--db", folder / "kernels.db", "--budget", 300, check=1)
    return folder, done, Journal(folder / "out" / "results.jsonl").results()


@pytest.mark.nightly
def test_a_rehearsal_runs_every_step_rejects_planted_kernels_and_times_the_other(rehearsal):
    folder, done, ends = rehearsal
    out = folder / "out"
    assert {path.name for path in out.iterdir()} == {"device.db", "results.jsonl", "summary.json"}
    assert {step for step, _ in ends} == STEPS and all(end["emulated"] for end in ends.values())
    found = json.loads((out / "summary.json").read_text())
    assert "EMULATED" in done.stdout and found["emulated"] and found["part"] == f"{ARCH.part}-emulated"
    broken = sorted((each["step"], each["outcome"]) for each in found["broken"])
    assert broken == [("shipped", "failed"), ("shipped", "wrong")]
    outcomes = {item: end["outcome"] for (step, item), end in ends.items() if step == "shipped"}
    assert sorted(outcomes.values()) == ["failed", *["ok"] * 5, "wrong"]  # one kernel of each family is made
    with Store.open(out / "device.db", readonly=True) as store:
        verdicts = {row.kernel_digest: row for row in store.rows(Verification)}
        bad = {row.outcome: row for row in verdicts.values() if row.outcome != "ok"}
        assert bad["wrong"].worst > 1 and "KernelFault" in bad["failed"].error
        assert {row.method for row in verdicts.values()} == {"emulator"}
        assert not any(store.kernel(row.kernel_digest).usable for row in bad.values())
        timings = list(store.rows(Timing))
        # A rehearsal's times are stored under a part that no device has.
        assert {row.part for row in timings} == {f"{ARCH.part}-emulated"}
        assert not {row.kernel_digest for row in bad.values()} & {row.kernel_digest for row in timings}
        assert all(json.loads(row.samples)["machine"]["emulated"] for row in timings) and timings
        claimed = {digest for end in ends.values() if "families" in end for digest in end["kernels"]}
        assert claimed and len({row.digest for row in store.rows(Kernel)} - claimed) == 6


def of_step(ends, step):
    return {item: end for (each, item), end in ends.items() if each == step}


@pytest.mark.nightly
def test_families_claims_models_and_planted_faults_of_a_rehearsal(rehearsal):
    folder, done, ends = rehearsal
    timed = {end["group"]: end for end in of_step(ends, "timing").values()}
    assert {"contraction_mma matmul", "rows softmax", "window max_pool2d", "attention attention"} <= timed.keys()
    assert all(end["vendors_us"]["cupy"] > 0 for end in timed.values()) and "rows softmax" in done.stdout
    ((name, end),) = of_step(ends, "graphs").items()
    assert name == "mobilenet_v2_small float32" and end["outcome"] == "ok", end
    assert end["difference"] < 1e-5 and end["live_bytes"] <= end["arena_bytes"] <= 1.05 * end["live_bytes"]
    assert end["tiers"].get("4", 0) == 0 and "launch by launch" in end["runs"], end
    own = of_step(ends, "claims")
    times = {end["claim"]: end for item, end in own.items() if item.endswith(": times")}
    assert {end["outcome"] for end in own.values()} == {"ok"} and times.keys() == set(claims.REHEARSED)
    for name, end in times.items():
        assert len(own[f"{name}: kernels"]["kernels"]) == len(end["measured_us"]) >= 1 and name in done.stdout
        assert all(0 < worst <= 1 for worst in end["worst"]) and end["vendors_us"]["cupy"] > 0
    found = {each["name"]: each for each in json.loads((folder / "out" / "summary.json").read_text())["claims"]}
    assert found["softmax_4096"]["family"] == "rows" and found["softmax_4096"]["vendors"]["cupy"] > 0
    plants = of_step(ends, "fault_injection")
    assert {end["outcome"] for end in plants.values()} == {"ok"} and len(plants) == 4
    assert "KernelFault" in plants["null pointer"]["noticed"]
    assert "outside the bound" in plants["sum cut short"]["noticed"]
    assert done.stderr.count("benchmarks.device: fault_injection") == 3  # two faults, each ending its process


@pytest.mark.nightly
def test_a_second_run_does_nothing_again_and_an_interrupted_one_goes_on(rehearsal):
    folder, _, ends = rehearsal
    journal = Journal(folder / "out" / "results.jsonl")
    before = journal.path.read_text()
    device(folder / "out", "--db", folder / "kernels.db", "--budget", 300, check=1)
    assert journal.path.read_text() == before
    # As if the power had failed: a torn line at the end, one family item and the step's end missing.
    name = next(item for step, item in ends if step == "families")
    lost = [json.dumps(name), '"complete"']
    kept = [line for line in before.splitlines() if '"families"' not in line or not any(each in line for each in lost)]
    journal.path.write_text("\n".join(kept) + '\n{"event": "be\n')
    device(folder / "out", "--db", folder / "kernels.db", "--budget", 300, check=1)
    added = journal.path.read_text().splitlines()[len(kept) + 1 :]
    assert [json.loads(line)["item"] for line in added if '"end"' in line] == [name]
    assert journal.results().keys() == ends.keys()
    # A broken item is left alone, except with --retry.
    journal.write(event="end", step="families", item=name, outcome="timeout")
    device(folder / "out", "--db", folder / "kernels.db", "--steps", "families", check=1)
    assert journal.results()["families", name]["outcome"] == "timeout"
    device(folder / "out", "--db", folder / "kernels.db", "--steps", "families", "--retry", check=1)
    assert journal.results()["families", name]["outcome"] == "ok"
    assert "holds results of" in device(folder / "out", "--arch", "sm_80", "--steps", "facts", check=2).stderr


def test_two_steps_run_and_planted_faults_are_noticed(tmp_path):
    done = device(tmp_path, "--steps", "facts,fault_injection", check=0)
    ends = Journal(tmp_path / "results.jsonl").results()
    assert {step for step, _ in ends} == {"facts", "fault_injection"} and "EMULATED" in done.stdout
    assert {end["outcome"] for end in ends.values()} == {"ok"}


def test_a_spent_budget_ends_the_run_with_what_there_is(tmp_path):
    done = device(tmp_path, "--budget", 1, check=0)
    assert "not reached" in done.stdout and not (tmp_path / "results.jsonl").exists()


def test_only_some_items_and_steps(tmp_path, monkeypatch):
    out, seen = ["--out", str(tmp_path), "--emulate"], []
    some, all_of_them = (command.parser().parse_args([*out, *more]) for more in (["--only", "^rows "], []))
    assert command.worker_command(some, "families", 5.0)[-3:] == ["--only", "^rows ", "--emulate"]
    assert command.inputs(some) != command.inputs(all_of_them)  # what is complete for some is not for all
    monkeypatch.setattr(Supervisor, "run", lambda self, steps: seen.extend(steps))
    assert command.main([*out, "--steps", "timing,facts"]) == 2
    assert [step.name for step in seen] == ["facts", "timing"]


def test_vendors_are_timed_in_tf32_and_users_calls_are_not(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(command.Session, "work", lambda self, step, items: made.append((step, self.timed)) or 0)
    monkeypatch.setattr(command.Session, "part", "orin-nano-8gb-emulated")
    for step in ("claims", "timing", "compiled", "public", "graphs", "families"):
        command.main(["--out", str(tmp_path), "--emulate", "--worker", step])
    assert [step for step, timed in made if timed] == ["claims", "timing", "compiled"]


def test_only_names_a_step_or_items(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Supervisor, "run", lambda self, steps: seen.append([step.name for step in steps]))
    for words in ("felt", "^felt"):
        command.main(["--out", str(tmp_path), "--emulate", "--only", words])
    assert seen == [["felt"], [step.name for step in command.STEPS]]


WORKER = """
import json, os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.session import Item, Session
journal = Journal(Path({path!r}))
session = Session(Path({folder!r}), journal, time.monotonic() + 60, emulate=True)
def outside():
    raise ValueError("planted")
sys.exit(session.work("step", [
    Item("first", dict), Item("raises", outside), Item("dies", os.abort), Item("hangs", lambda: time.sleep(60)),
    Item("last", dict),
]))
"""


def test_items_that_raise_die_or_hang_are_recorded_and_passed(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    code = WORKER.format(root=str(ROOT), path=str(journal.path), folder=str(tmp_path))
    supervisor = Supervisor(journal, lambda step, seconds: [sys.executable, "-c", code], 60.0, item_seconds=1.0)
    assert supervisor.run([Step("step", 1.0)])
    outcomes = {item: end["outcome"] for (_, item), end in journal.results().items()}
    assert outcomes == {"first": "ok", "raises": "error", "dies": "crashed", "hangs": "timeout", "last": "ok"}
    assert "planted" in journal.results()["step", "raises"]["traceback"]
    assert journal.is_complete("step", "")


def test_a_worker_that_dies_before_its_first_item_is_not_started_for_ever(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    supervisor = Supervisor(journal, lambda step, seconds: [sys.executable, "-c", "import os; os.abort()"], 30.0)
    supervisor.run([Step("step", 1.0)])
    assert journal.results()["step", "(worker)"]["outcome"] == "crashed"
    assert len(list(journal.events())) == 2  # one in its share of the time, one in the remaining time


def test_shrinking_keeps_the_class():
    workload = matmul.workload(4099, 4096, 1000, batch=12, dtype="float16", trans_b=True)
    small = shrunk(workload, 40)
    assert small.class_key() == workload.class_key() and max(small.size.values()) < 56
    assert all((small.size[axis] - workload.size[axis]) % 16 == 0 for axis in "mnk")
    image = conv.workload(n=4, h=56, w=56, c=256, k_out=256, r=3, s=3, layout="nchw")
    small = shrunk(image, 40)
    assert small.class_key() == image.class_key() and max(small.size.values()) < 56


def test_figures_of_rankings_and_summaries():
    assert timing.kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert timing.kendall_tau([1, 2, float("inf")], [1, 2, 3]) is timing.kendall_tau([1, 1, 1], [1, 2, 3]) is None
    assert timing.best_of(range(10), [5, 9, 9, 9, 9, 9, 9, 9, 4, 9]) == 5 / 4
    assert timing.best_of(range(8), [1] * 8) is None
    base = {"group": "rows softmax", "class": "x", "kernels": ["a"], "predicted_us": [2.0], "measured_us": [4.0]}
    base |= {"tau": None, "regret_at_8": None, "refused": {"torch": "why"}, "record_us": 4.0, "best_us": 4.0}
    ends = [
        {**base, "asked": "first", "vendors_us": {"cupy": 8.0}, "bound_us": 2.0},
        {**base, "asked": "second", "vendors_us": {"cupy": 2.0, "torch": 4.0}, "bound_us": 2.0},
    ]
    found = summary.timing(ends)
    cupy = found["families"]["rows"]["vendors"]["cupy"]
    assert (cupy["best"], cupy["wins"], cupy["of"]) == (pytest.approx(1.0), 1, 2)
    assert [(each["ratio"], each["workload"]) for each in cupy["worst"]] == [(0.5, "second"), (2.0, "first")]
    assert found["all"]["vendors"]["torch"]["of"] == 1 and found["refused"] == {"torch: why": 2}
    assert found["measured_over_predicted"] == pytest.approx(2.0)
    assert np.isclose(found["groups"]["rows softmax"]["of_bound"], 2.0)
    exact, off = [np.array([1.0, -2.0])], [np.array([1.0, -1.0])]
    assert graphs._differences(exact, exact) == [0.0] and graphs._differences(off, exact) == [0.5]
    assert not graphs._differences([np.array([1.0, np.nan])], exact)[0] <= graphs.most("float16")
