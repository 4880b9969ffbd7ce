"""GENSOR_TUNE=now waits for the first kernel; the rest of the tuning follows in the background."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_database import Record, Store
from gensor_database.timings import is_settled
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.selection.tiers import Choice
from gensor_kernels.dispatch.tuning import background as background_tuning
from gensor_kernels.dispatch.tuning.worker import Worker
from tests.dispatch.selection.test_tiers import request
from tests.doubles.device import FakeDevice, Race
from tests.doubles.kernels import ARCH, kernels, runtime_of, starters, workload
from tests.doubles.store_rows import ABI, SOURCE, kernel_rows


def record_rows():
    binary, kernel, verification = kernel_rows(0)
    record = Record(workload().key(), ARCH.name, ARCH.part, ABI, kernel.digest, 9.0, 1.0, "ok")
    return SOURCE, binary, kernel, verification, record


ECHO = """
import json, sys
for line in sys.stdin:
    with open({path!r}, "a") as file:
        asked = json.loads(line)
        print({name!r}, *(name for name in ("first", "background") if asked.get(name)), asked["device"], file=file)
    print(json.dumps({{"status": "ok"}}), flush=True)
"""


@pytest.fixture
def requests(no_databases, monkeypatch, tmp_path):
    """Requests to two tuning processes: of calls, and of the background."""
    monkeypatch.setenv("GENSOR_TUNE", "now")
    monkeypatch.delenv("GENSOR_BACKGROUND")
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))
    path = tmp_path / "asked"
    made = {
        name: Worker((sys.executable, "-c", ECHO.format(path=str(path), name=name))) for name in ("call", "background")
    }
    monkeypatch.setattr(background_tuning, "WORKER", made["call"])
    monkeypatch.setattr(background_tuning, "BACKGROUND_WORKER", made["background"])
    yield lambda: path.read_text().splitlines() if path.exists() else []
    for each in made.values():
        each.close()


def improve(runtime, choice=None):
    asked, choice = request(workload(), emulated=True), choice or Choice(4, "nothing")
    runtime.tuned.clear()
    found = background_tuning.improve(runtime, asked, choice)
    runtime.background.join(20)
    return found


@pytest.mark.parametrize("emulated", [False, True])
def test_a_call_waits_for_its_first_kernel_and_the_rest_follows(emulated, requests):
    runtime = runtime_of(FakeDevice(clock=Race(), emulated=emulated))
    runtime.device.integrated = True  # a board, on which background tuning is off
    improve(runtime)
    assert requests() == ["call first 0", "background background 0"]
    improve(runtime)  # tuned again, but refined once
    assert requests() == ["call first 0", "background background 0", "call first 0"]
    assert background_tuning.BACKGROUND_WORKER._process is None  # and with it its CUDA context


def test_with_no_background_the_call_waits_for_everything(requests, monkeypatch):
    monkeypatch.setenv("GENSOR_BACKGROUND", "0")
    improve(runtime_of(FakeDevice(clock=Race())))
    assert requests() == ["call 0"]


def test_requests_name_their_device(requests):
    runtime_of(FakeDevice(clock=Race(), number=1)).background._tune(workload())
    assert requests() == ["background background 1"]


@pytest.mark.parametrize("mode", ["now", "auto"])
@pytest.mark.parametrize("unsettled", [False, True])
def test_unfinished_tuning_of_an_earlier_program_is_finished(mode, unsettled, requests, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", mode)
    found = {each.digest: each for each in starters(workload())}
    key = workload().key()
    contents = library.Contents(found, {key: min(found)}, unsettled={key} if unsettled else ())
    runtime = runtime_of(FakeDevice(clock=Race()), kernels(workload()))
    runtime.library = library.Library(contents)
    for _ in range(2):
        if mode == "now":
            choice = Choice(2, "a record")
            assert improve(runtime, choice) is choice
        else:
            runtime.background.consider(workload())
            runtime.background.join(20)
    assert requests() == ["background background 0"] * unsettled


def test_a_stored_kernel_serves_while_another_process_refines_it(requests, tmp_path):
    with Store.open(tmp_path / "user.db") as store:
        store.add(*record_rows())
    with background_tuning.claim(tmp_path / "user.db", f"{ARCH.part} {workload().key()}", 0.0) as mine:
        assert mine and background_tuning.tune(workload(), ARCH) and requests() == []


def test_an_emulated_call_is_served_and_then_refined(no_databases, monkeypatch, tmp_path):
    """With both processes."""
    for name, value in (("GENSOR_TUNE", "now"), ("GENSOR_DB", str(tmp_path / "user.db"))):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GENSOR_BACKGROUND")
    a, b = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in [(48, 32), (32, 40)])
    with gensor_kernels.emulated("sm_87"):
        for settled in ([False], [False, True]):
            found = gensor_kernels.matmul(a, b)
            with Store.open(tmp_path / "user.db", readonly=True) as store:  # at once: the other process is at work
                records = sorted(store.rows(Record), key=is_settled)
            assert [is_settled(each) for each in records] == settled
            np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)
            why = gensor_kernels.explain(gensor_kernels.matmul, a, b)
            assert (why.tier, why.kernel) == (2, records[-1].kernel_digest), why
            for each in list(background_tuning._all):
                each.join(300)
    gensor_kernels.refresh()


def test_of_two_records_of_one_second_the_settled_one_counts(tmp_path):
    *parts, last = record_rows()
    unsettled = replace(last, provenance=json.dumps({"settled": False}, separators=(",", ":")))
    early = [replace(unsettled, predicted_us=float(us)) for us in range(8)]
    with Store.open(tmp_path / "user.db") as store:
        store.add(*parts, *early, last)
        assert [is_settled(row) for row in store.records(last.key, last.arch)] == [True] + [False] * 8
        assert store.find(last.key, last.arch, last.part).record.digest == last.digest
