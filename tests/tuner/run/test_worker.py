"""The worker process: one line per request, a verified kernel soon, and in the end the kernels of an ordinary run."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest

import gensor_database
from gensor_database import Timing, quiet
from gensor_database.record import Binary, Kernel, Record, Source
from gensor_database.store import Store
from gensor_database.timings import is_settled
from gensor_kernels.build import nvrtc
from gensor_kernels.devices import cuda
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.measure import timer
from gensor_tuner.measure.timer import HostClock, Timer
from gensor_tuner.run import worker
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.first import FirstKernels
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import Row
from gensor_tuner.verify.verify import Verdict
from tests.doubles.device import FakeDevice, emulate

WORKLOAD = matmul.workload(16, 16, 32, dtype="float64")


@pytest.fixture
def asked(tmp_path):
    return {"workload": json.loads(WORKLOAD.key()), "arch": "sm_87", "db": str(tmp_path / "user.db")}


def test_a_bad_request_is_answered_and_the_next_is_read(tmp_path, asked):
    empty = json.dumps({**asked, "workload": {}})
    bad = ["", "not json", "[]", "{}", '{"workload": 1}', empty, '{"workload": null}']
    text = "\n".join([*bad, json.dumps(asked), ""])
    command = [sys.executable, "-m", "gensor_tuner.run.worker"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    *failed, found = map(json.loads, (line for line in done.stdout.splitlines() if '"status"' in line))
    assert [(each["status"], each["kernel"]) for each in failed] == [("failed", None)] * len(bad)
    assert all(each["error"] for each in failed) and found["status"] == "ok", found
    with Store.open(tmp_path / "user.db", readonly=True) as store:
        entry = store.find(WORKLOAD.key(), "sm_87")
        assert entry is not None and entry.usable and entry.kernel.digest == found["kernel"]
    for number in (-1, "1", True, 1.0, [0]):
        found = worker.answer(asked | {"device": number})
        assert found["status"] == "failed" and "device must be the number of a GPU" in found["error"]


def test_kernels_are_stored_and_named_before_they_run(tmp_path, monkeypatch, asked):
    """With the emulator as the device: each candidate is announced, then timed, and at the end none is."""
    said = []
    monkeypatch.setattr(worker, "open_timer", lambda arch, number: Timer(EmulatorDevice(arch), HostClock()))
    found = worker.answer(asked, said.append)
    assert found["status"] == "ok" and said[-1] == {"trying": None} and len(said) > 1
    with Store.open(tmp_path / "user.db", readonly=True) as store:
        named = [each["trying"] for each in said if each["trying"] is not None]
        assert named and all(store.kernel(name) is not None for name in named)
        assert lookup("sm_87").part in {row.part for row in store.timings(WORKLOAD.key(), "orin-nano-8gb")}


@pytest.mark.parametrize("number", [0, 1])
def test_kernels_are_timed_on_the_device_that_asks(tmp_path, monkeypatch, asked, number):
    """Two devices, both the emulator's: a request for the second runs there, and not on the first."""
    current, launched = [0], []

    def opened(number):
        noted = partial(emulate, after=lambda *_: launched.append((number, current[0])))
        return FakeDevice(execute=noted, emulated=True, number=number)

    monkeypatch.setattr(cuda, "CudaDevice", opened)
    monkeypatch.setattr(cuda, "current_device", lambda: lambda: current[0])
    monkeypatch.setattr(cuda, "make_current", lambda wanted: current.__setitem__(0, wanted))
    monkeypatch.setattr(timer, "CudaClock", lambda device: HostClock())
    found = worker.answer({**asked, "device": number, "background": bool(number)})
    assert found["status"] == "ok" and set(launched) == {(number, number)}
    with Store.open(tmp_path / "user.db", readonly=True) as store:
        rows = list(store.rows(Timing))
        assert len(quiet(rows)) == (0 if number else len(rows)) and rows  # times taken while a program runs say so


def test_tuning_next_to_a_program_has_a_low_priority_and_a_limit_of_memory():
    code = (
        "import json, os, sys; from gensor_tuner.run import worker\n"
        "worker.answer = lambda request, say: {'status': 'failed', 'kernel': os.nice(0), 'error': None}\n"
        "worker.main()\n"
    )
    for background, nice in ((True, min(19, os.nice(0) + 5)), (False, os.nice(0))):
        lines = 2 * (json.dumps({"background": background}) + "\n")
        done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True)
        assert [json.loads(line)["kernel"] for line in done.stdout.splitlines()] == [nice] * 2
    code = "import os; from gensor_tuner.parent_watch import watch; watch(os.getppid(), 1.0)"
    done = subprocess.run([sys.executable, "-c", code], start_new_session=True, timeout=60)
    assert done.returncode == -9


ARCH = lookup("sm_87")
SMALL = partial(matmul.workload, 16, 16, dtype="float64")


@pytest.fixture(autouse=True)
def shelf(monkeypatch, tmp_path):
    """The folder of the packaged databases, empty."""
    folder = tmp_path / "pretuned"
    folder.mkdir()
    monkeypatch.setattr(gensor_database.layers, "PRETUNED", folder)
    return folder


def results(kind, path, *workloads, **options):
    with Store.open(path) as store:
        rows = [Row(line, "", workload=workload) for line, workload in enumerate(workloads)]
        return [result for _, result in kind(ARCH, store, Options(jobs=2, **options)).rows(rows)]


def rows_of(path, *kinds):
    with Store.open(path, readonly=True) as store:
        return {kind: {row.digest for row in store.rows(kind)} for kind in kinds}


WORKLOADS = [
    matmul.workload(256, 128, 192, dtype="float16"),
    matmul.workload(40, 40, 300, dtype="float32", epilogue=("bias", "relu")),
]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_kernels_in_the_end_are_those_of_a_run_that_nobody_waited_for(workload, tmp_path):
    (first,) = results(FirstKernels, tmp_path / "served.db", workload)
    assert first.status == "ok" and first.verified == "emulator"
    with Store.open(tmp_path / "served.db", readonly=True) as store:
        (record,) = store.rows(Record)
        assert not is_settled(record) and store.find(workload.key(), "sm_87").usable
        served = store.kernel(first.kernel).kernel
    (refined,) = results(Run, tmp_path / "served.db", workload)
    (whole,) = results(Run, tmp_path / "whole.db", workload)
    assert replace(refined, seconds={}) == replace(whole, seconds={}) and not refined.stored
    with Store.open(tmp_path / "served.db", readonly=True) as store:
        entry = store.find(workload.key(), "sm_87")
        assert is_settled(entry.record) and entry.kernel.digest == whole.kernel
    made, wanted = (rows_of(tmp_path / name, Source, Binary, Kernel) for name in ("served.db", "whole.db"))
    for kind, mine in ((Source, ""), (Binary, served.binary_digest), (Kernel, served.digest)):
        assert made[kind] - {mine} <= wanted[kind] <= made[kind]


def test_a_stored_kernel_of_the_class_serves_without_a_walk_or_a_compilation(tmp_path, shelf):
    (whole,) = results(Run, tmp_path / "user.db", SMALL(64))
    before = nvrtc.compile_count()
    (first,) = results(FirstKernels, tmp_path / "user.db", SMALL(80))
    assert (first.status, first.kernel, nvrtc.compile_count()) == ("ok", whole.kernel, before)
    (tmp_path / "user.db").rename(shelf / "sm_87.db")
    (first,) = results(FirstKernels, tmp_path / "other.db", SMALL(96))
    assert (first.status, first.kernel, nvrtc.compile_count()) == ("ok", whole.kernel, before)
    (again,) = results(FirstKernels, tmp_path / "other.db", SMALL(96))
    assert again.kernel == first.kernel and again.stored
    with Store.open(tmp_path / "other.db", readonly=True) as store:  # it needs no other database
        entry = store.find(SMALL(96).key(), "sm_87")
        assert entry.usable and entry.binary() is not None and entry.stored.source() is not None


def test_a_stored_kernel_that_is_predicted_slow_does_not_serve(tmp_path, monkeypatch):
    (whole,) = results(Run, tmp_path / "user.db", SMALL(64))
    monkeypatch.setattr("gensor_tuner.run.first.NEAR_BOUND", 0.0)
    (first,) = results(FirstKernels, tmp_path / "user.db", SMALL(80))
    assert first.kernel == whole.kernel  # the walk finds nothing much better
    monkeypatch.setattr("gensor_tuner.run.first.GOOD_ENOUGH", 0.0)
    before = nvrtc.compile_count()
    (first,) = results(FirstKernels, tmp_path / "user.db", SMALL(96))
    assert first.status == "ok" and nvrtc.compile_count() > before


def test_a_kernel_that_is_wrong_is_stored_as_such_and_the_next_serves_if_there_is_one(tmp_path, monkeypatch):
    judged, wrong = [], False

    def verify(each, workload):
        judged.append(each.name)
        return Verdict("wrong" if wrong or each.name == judged[0] else "ok", "planted")

    monkeypatch.setattr("gensor_tuner.run.first.verify", verify)
    monkeypatch.setattr("gensor_tuner.verify.verify.verify", verify)
    (first,) = results(FirstKernels, tmp_path / "user.db", SMALL(64))
    assert first.status == "ok" and len(set(judged)) == 2
    with Store.open(tmp_path / "user.db", readonly=True) as store:
        verified = [store.kernel(row.digest).verified for row in store.rows(Kernel)]
    assert sorted(verified) == ["emulator", "rejected"]
    wrong = True
    (result,) = results(FirstKernels, tmp_path / "other.db", SMALL(64), top=2)
    assert result.status == "failed" and "planted" in result.error


def test_a_program_that_does_not_compile_is_passed_over(tmp_path, monkeypatch):
    asked = []

    def refusing(source, target):
        asked.append(source)
        made = nvrtc.compile_cubin(source, target)
        return replace(made, error="planted", cubin=b"") if source == asked[0] else made

    monkeypatch.setattr("gensor_tuner.build.binaries.compile_cubin", refusing)
    (first,) = results(FirstKernels, tmp_path / "user.db", SMALL(64))
    assert first.status == "ok" and len(asked) == 2


def test_the_worker_answers_with_a_first_kernel_and_tunes_to_the_end_when_asked(tmp_path):
    request = {"workload": json.loads(SMALL(64).key()), "arch": "sm_87", "db": str(tmp_path / "user.db")}
    settled = []
    for more in ({"first": True}, {"first": True}, {}, {"first": True}):
        assert worker.answer({**request, **more})["status"] == "ok"
        with Store.open(tmp_path / "user.db", readonly=True) as store:
            settled.append(is_settled(store.find(SMALL(64).key(), "sm_87").record))
    assert settled == [False, False, True, True]
