"""GENSOR_TUNE=now: the tuning process, its faults, and the use of its answer."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from gensor_database import Record, Store, Timing, Verification
from gensor_kernels import config
from gensor_kernels.dispatch.plans import trial
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.dispatch.selection.tiers import Choice
from gensor_kernels.dispatch.tuning import background as background_tuning
from gensor_kernels.dispatch.tuning.background import Background
from gensor_kernels.dispatch.tuning.worker import Worker
from tests.dispatch.selection.test_tiers import request
from tests.doubles.device import FakeDevice, Race
from tests.doubles.kernels import ARCH, kernels, products, runtime_of, starters, workload
from tests.doubles.stored import stock

from .test_faults_worker import ends_soon


@pytest.fixture(autouse=True)
def tuning(no_databases, monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_TUNE", "now")
    monkeypatch.delenv("GENSOR_BACKGROUND")
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))


def worker(monkeypatch, code, patience=20.0):
    """A worker that runs `code`."""
    made = Worker((sys.executable, "-c", code), patience)
    monkeypatch.setattr(background_tuning, "WORKER", made)
    monkeypatch.setattr(background_tuning, "BACKGROUND_WORKER", made)
    return made


REQUEST, NOTHING = request(workload(), emulated=True), Choice(4, "nothing")


def improve(runtime, asked=REQUEST):
    """The choice for a call that waits for all of its tuning."""
    with pytest.MonkeyPatch.context() as only:
        only.setenv("GENSOR_BACKGROUND", "0")
        return background_tuning.improve(runtime, asked, NOTHING)


def with_library(shelf=None):
    """A Runtime with other stored kernels, by default none."""
    made = runtime_of()
    made.library = shelf or library.Library()
    return made


#: Processes that fail; test_faults_worker.py has more.
ANSWERS = {
    "exits": "raise SystemExit(3)",
    "answers before it dies": 'import os; print(\'{"status": "failed"}\', flush=True); os._exit(9)',
    "fails": 'print(\'{"status": "failed", "kernel": null, "error": "no kernel verified"}\')',
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_worker_that_fails_costs_a_warning(name, monkeypatch, caplog):
    worker(monkeypatch, ANSWERS[name], patience=1.0)
    made = with_library()
    assert improve(made) is NOTHING
    assert "tuning" in caplog.text and made.tuned == {workload().key()}
    worker(monkeypatch, "raise SystemExit('asked twice')")
    caplog.clear()
    assert improve(made) is NOTHING and not caplog.records


def test_without_a_writable_database_nothing_is_tuned(monkeypatch, tmp_path, caplog):
    worker(monkeypatch, "raise SystemExit('started')")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "file" / "user.db"))
    assert not background_tuning.tune(workload(), ARCH) and not background_tuning.tune(workload(64), ARCH)
    assert background_tuning.WORKER._process is None
    assert [record.levelname for record in caplog.records if record.levelname != "INFO"] == ["WARNING"]
    assert "nothing is tuned" in caplog.text


DIES = """
import json, os, sys, sqlite3
for line in sys.stdin:
    done = {folder!r} + "/once"
    if not os.path.exists(done):
        open(done, "w").close()
        print(json.dumps({{"trying": "d" * 64}}), flush=True)
        {end}
    print(json.dumps({{"trying": None}}))
    print(json.dumps({{"status": "ok"}}), flush=True)
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 11)", "import time; time.sleep(60)"])
def test_a_kernel_that_kills_or_hangs_the_worker_is_marked_and_the_rest_is_tuned(end, monkeypatch, tmp_path, caplog):
    made = worker(monkeypatch, DIES.format(folder=str(tmp_path), end=end), patience=3.0)
    assert background_tuning.tune(workload(), ARCH)
    with Store.open(tmp_path / "user.db") as store:
        (row,) = store.rows(Verification)
    assert (row.kernel_digest, row.method, row.outcome) == ("d" * 64, "device", "failed") and "process" in row.error
    assert "did not finish" in caplog.text
    made.close()


def test_the_worker_does_not_outlive_a_parent_that_is_killed(tmp_path):
    code = """
import os, signal, sys, time
from gensor_kernels.dispatch.tuning import worker
made = worker.Worker()
made._send({})
made._message(time.monotonic() + 60)
print(made._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ends_soon(int(done.stdout), 10.0)


def test_hot_kinds_of_calls_are_tuned_while_the_program_runs(monkeypatch, tmp_path):
    """A kernel that the worker stores is raced and serves, without a restart."""
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    found = kernels(workload(64, 64, 64))
    load = [library.Contents(), library.Contents(found)]
    runtime = Runtime(FakeDevice(clock=Race()), library.Library(read=lambda: load[0]))
    asked = []

    def tune(wanted, arch, notes, device, background):
        asked.append(wanted)
        load.pop(0)
        return True

    monkeypatch.setattr(background_tuning, "tune", tune)
    assert products(runtime, trial.HOT_RUN) == [0] * trial.HOT_RUN  # one more could meet the new kernel already
    runtime.background.join(10)
    assert len(asked) == 1 and products(runtime, 3) == [0, 55, 55]
    assert products(runtime, trial.HOT_RUN) and len(asked) == 1  # once is enough


@pytest.mark.parametrize(
    ("ours", "settings", "expected"),
    [
        (5.0, {}, [0, 55, 55]),
        (20.0, {}, [0, 0, 0]),
        (5.0, {"GENSOR_RACE": "0"}, [0, 0, 0]),
        (5.0, {"GENSOR_DETERMINISTIC": "1"}, [0, 0, 0]),
        (5.0, {"GENSOR_TUNE": "off"}, [0, 0, 0]),
    ],
)
def test_a_kernel_tuned_in_the_background_serves_after_a_race_only(ours, settings, expected, monkeypatch, tmp_path):
    """The worker's times say that the kernel wins, but the program used the GPU meanwhile: one race decides."""
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    runtime, wanted = background_tuned(
        tmp_path / "user.db", FakeDevice(clock=Race(ours)), '{"background":true,"rounds":15}'
    )
    assert products(runtime, 3) == expected and len(runtime.device.races) == (not settings)
    assert not settings or not runtime.library.timings(wanted)
    if not settings:  # the race decided for other processes as well
        again = Runtime(FakeDevice(clock=Race(ours)), load.library(ARCH))
        assert products(again, 3) == [expected[-1]] * 3 and not again.device.races


def test_times_of_a_tuning_that_blocks_count_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    runtime, _ = background_tuned(tmp_path / "user.db", FakeDevice(clock=Race()), '{"rounds":15}')
    assert products(runtime, 3) == [55, 55, 55] and not runtime.device.races


def background_tuned(path, device, samples):
    """A Runtime over a database that tuning left, and the Workload of `products`."""
    (wanted,) = stock(path, [(64, 64, 64)], kernels=1)
    with Store.open(path) as store:
        (digest,) = {row.kernel_digest for row in store.rows(Record)}
        place = (wanted.key(), ARCH.name, ARCH.part)
        store.add(
            Timing(*place, digest, None, 5.0, samples, Race.conditions),
            Timing(*place, None, "cupy.matmul", 50.0, samples, Race.conditions),
        )
    return Runtime(device, load.library(ARCH)), wanted


@pytest.mark.parametrize(
    ("settings", "integrated", "tuned"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"GENSOR_BACKGROUND": "1"}, True, True),
        ({"GENSOR_BACKGROUND": "0"}, False, False),
        ({"GENSOR_TUNE": "off"}, False, False),
        ({"GENSOR_DETERMINISTIC": "1"}, False, False),
    ],
)
def test_settings_of_background_tuning(settings, integrated, tuned, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    asked = []
    monkeypatch.setattr(background_tuning, "tune", lambda *request, **more: asked.append(request) or False)
    made = runtime_of(FakeDevice(clock=Race()))
    made.device.integrated = integrated
    made.background.consider(workload())
    made.background.join(10)
    assert bool(asked) == tuned
    if not integrated:  # refining obeys the same settings
        made.background.refine(workload(32))
        made.background.join(10)
        assert len(asked) == 2 * tuned
        asked[tuned:] = []
    load = kernels(workload())
    good = runtime_of(FakeDevice(clock=Race()), load, {workload().key(): next(iter(load))})
    Background(good).consider(workload())
    assert len(asked) == tuned  # a record is there


def test_after_repeated_failures_nothing_is_tuned(monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    asked = []
    monkeypatch.setattr(background_tuning, "tune", lambda *request: asked.append(request) or False)
    made = runtime_of(FakeDevice(clock=Race()))
    for size in range(8, 80, 8):
        made.background.consider(workload(size))
        made.background.join(10)
    assert len(asked) == background_tuning.MOST_FAILURES


def test_the_worker_gets_the_request_and_its_kernel_is_used(monkeypatch, tmp_path):
    code = f"""
import json, os, sys
request = json.loads(sys.stdin.readline())
json.dump([request, os.environ["GENSOR_TUNE"]], open({str(tmp_path / "request.json")!r}, "w"))
print("a library's chatter")
print(json.dumps({{"status": "ok", "kernel": "x", "error": None}}))
"""
    worker(monkeypatch, code)
    kernels = {kernel.digest: kernel for kernel in starters(workload())}
    first = min(kernels)
    load = [library.Contents(kernels, {workload().key(): first}, {}), library.Contents()]
    shelf = library.Library(read=load.pop)
    choice = improve(with_library(shelf))
    assert choice.tier == 2 and choice.kernel.digest == first
    asked, mode = json.loads((tmp_path / "request.json").read_text())
    assert asked["workload"] == json.loads(workload().key()) and asked["arch"] == "orin-nano-8gb"
    assert asked["db"] == str(tmp_path / "user.db") and mode == "off"


def test_calls_that_are_not_tuned(monkeypatch):
    worker(monkeypatch, "raise SystemExit('started')")
    monkeypatch.setattr(background_tuning, "tune", lambda *_: pytest.fail("tuned"))
    assert improve(with_library(), replace(REQUEST, captured=True)) is NOTHING
    known = library.Library(library.Contents({}, {workload().key(): "x"}, {}))
    assert improve(with_library(known)) is NOTHING
    settings = [("GENSOR_DETERMINISTIC", "1"), *(("GENSOR_TUNE", mode) for mode in config.TUNE_MODES if mode != "now")]
    for name, value in settings:
        with monkeypatch.context() as only:
            only.setenv(name, value)
            made = with_library()
            assert improve(made) is NOTHING and not made.tuned
