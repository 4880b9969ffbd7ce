"""GENSOR_TUNE=now: the worker process, whatever it does, and what comes of its answer."""

import json
import sqlite3
import sys

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import config
from gensor_kernels.dispatch import library, problem, tiers, tierup
from gensor_kernels.dispatch.tiers import Choice
from gensor_kernels.operators.geometry import Geometry

from .emulated_store import isolate, stock
from .numpy_device import ARCH, starters, workload


@pytest.fixture(autouse=True)
def tuning(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("GENSOR_TUNE", "now")
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))
    yield
    gensor_kernels.refresh()


def worker(monkeypatch, code):
    """A worker that runs `code`."""
    monkeypatch.setattr(tierup, "WORKER", (sys.executable, "-c", code))


def request(**keywords):
    made = problem.Problem(workload(), False, Geometry((1, 1, 1)), ())
    return tiers.Request(made, ARCH, **{"emulated": True, "one_call": True, **keywords})


ANSWERS = {
    "exits": "raise SystemExit(3)",
    "dies": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "garbage": "print('not json')",
    "nothing": "",
    "half a line": "import sys; sys.stdout.write('{\"status\": ')",
    "hangs": "import time; time.sleep(60)",
    "fails": 'print(\'{"status": "failed", "kernel": null, "error": "no kernel verified"}\')',
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_worker_that_fails_costs_a_warning(name, monkeypatch, caplog):
    worker(monkeypatch, ANSWERS[name])
    monkeypatch.setattr(tierup, "PATIENCE", 1.0)
    choice, tried = Choice(4, "nothing"), set()
    shelf = library.Library()
    assert tierup.improve(request(), choice, shelf, tried) is choice
    assert "tuning" in caplog.text and tried == {workload().key()}
    worker(monkeypatch, "raise SystemExit('asked twice')")
    caplog.clear()
    assert tierup.improve(request(), choice, shelf, tried) is choice and not caplog.records


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
    stored = [library.Contents(kernels, {workload().key(): first}, {}), library.Contents()]
    shelf = library.Library(read=stored.pop)
    choice = tierup.improve(request(), Choice(4, "nothing"), shelf, set())
    assert choice.tier == 2 and choice.kernel.digest == first
    asked, mode = json.loads((tmp_path / "request.json").read_text())
    assert asked["workload"] == json.loads(workload().key()) and asked["arch"] == "orin-nano-8gb"
    assert asked["db"] == str(tmp_path / "user.db") and mode == "off"


def test_when_nothing_is_tuned(monkeypatch):
    worker(monkeypatch, "raise SystemExit('started')")
    monkeypatch.setattr(tierup, "tune", lambda *_: pytest.fail("tuned"))
    choice = Choice(4, "nothing")
    assert tierup.improve(request(captured=True), choice, library.Library(), set()) is choice
    known = library.Library(library.Contents({}, {workload().key(): "x"}, {}))
    assert tierup.improve(request(), choice, known, set()) is choice
    settings = [("GENSOR_DETERMINISTIC", "1"), *(("GENSOR_TUNE", mode) for mode in config.TUNE_MODES if mode != "now")]
    for name, value in settings:
        with monkeypatch.context() as only:
            only.setenv(name, value)
            tried = set()
            assert tierup.improve(request(), choice, library.Library(), tried) is choice and not tried


def test_tuning_an_emulated_call(tmp_path):
    """The whole way: a call, the real worker, its database, and the kernel it stored."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in [(48, 32), (32, 40)])
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b).tier == 3  # explaining tunes nothing
        found = gensor_kernels.matmul(a, b)
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b)
    gensor_kernels.refresh()
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)
    assert why.tier == 2, why
    with sqlite3.connect(tmp_path / "user.db") as database:
        assert [why.kernel] == [row[0] for row in database.execute("SELECT kernel_digest FROM record")]


def test_damaged_databases_are_warnings(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    (tmp_path / "user.db").write_bytes(b"no database at all" * 100)
    a = np.eye(4, dtype=np.float32)
    with pytest.warns(RuntimeWarning, match=r"user\.db"), gensor_kernels.emulated("sm_87"):
        np.testing.assert_array_equal(gensor_kernels.matmul(a, a), a)
    gensor_kernels.refresh()
    stock(
        tmp_path / "good.db", {"sm_87": {("float32", "float32", "ieee"): [("sss", False, "contraction_simt", False)]}}
    )
    data = bytearray((tmp_path / "good.db").read_bytes())
    place = data.index(b'"block_m":') + len(b'"block_m":')
    data[place] ^= 1
    (tmp_path / "flipped.db").write_bytes(data)
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "flipped.db"))
    with pytest.warns(RuntimeWarning, match="digest"), gensor_kernels.emulated("sm_87"):
        assert "default Programs" in gensor_kernels.explain(gensor_kernels.matmul, a, a).reason
