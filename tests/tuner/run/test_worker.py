"""The worker process answers one request with one line, whatever the request is."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest

from gensor_database import Timing, quiet
from gensor_database.store import Store
from gensor_kernels.devices import cuda
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.measure import timer
from gensor_tuner.measure.timer import HostClock, Timer
from gensor_tuner.run import worker
from tests.doubles.device import FakeDevice, emulate

WORKLOAD = matmul.workload(16, 16, 32, dtype="float64")


@pytest.fixture
def asked(tmp_path):
    """A request for WORKLOAD, into a new database."""
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


def test_memory_beyond_the_limit_ends_the_process():
    code = "import os; from gensor_tuner.parent_watch import watch; watch(os.getppid(), 1.0)"
    done = subprocess.run([sys.executable, "-c", code], start_new_session=True, timeout=60)
    assert done.returncode == -9


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


def test_a_device_is_a_number(asked):
    for number in (-1, "1", True, 1.0, [0]):
        found = worker.answer(asked | {"device": number})
        assert found["status"] == "failed" and "device must be the number of a GPU" in found["error"]


def test_tuning_next_to_a_program_has_a_low_priority():
    code = (
        "import json, os, sys; from gensor_tuner.run import worker\n"
        "worker.answer = lambda request, say: {'status': 'failed', 'kernel': os.nice(0), 'error': None}\n"
        "worker.main()\n"
    )
    for background, nice in ((True, min(19, os.nice(0) + 5)), (False, os.nice(0))):
        lines = 2 * (json.dumps({"background": background}) + "\n")
        done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True)
        assert [json.loads(line)["kernel"] for line in done.stdout.splitlines()] == [nice] * 2
