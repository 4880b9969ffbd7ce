"""benchmarks/requests: who serves what CuPy's users asked for, results, and the table of them in the documentation."""

import re
import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks import requests
from benchmarks.gpu import felt, public_calls, summary
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.session import Session
from benchmarks.gpu.harness.supervise import COMPLETE
from gensor_kernels.devices import cuda, cupy_internals
from gensor_kernels.families.registry import FAMILIES
from tests.doubles.kernels import forget_gpus
from tests.doubles.strict.launches import emulated

pytest.importorskip("cupy")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "requests.md"
REQUESTS = requests.find_requests()


@pytest.fixture
def shipped(orin, monkeypatch, needs_emulator):
    """An Orin Nano with the packaged kernels, whose launches the emulator executes."""
    load = cuda.CudaDevice.load

    def loading(device, code, launches):
        orin.executes(code.cubin, partial(emulated, code.source, code.target))
        return load(device, code, launches)

    monkeypatch.setattr(cuda.CudaDevice, "load", loading)
    switch = [False]  # CuPy's for TF32 asks a GPU what it is
    set_switch = partial(switch.__setitem__, 0)
    monkeypatch.setattr(cupy_internals, "tf32_switch", lambda cupy: (lambda dtype: switch[0], True, set_switch))
    forget_gpus(monkeypatch)
    return orin


@pytest.mark.parametrize("name", REQUESTS)
def test_route_and_result(shipped, name):
    request = REQUESTS[name]
    drawn = requests.draw_arrays(request, small=True)
    arrays = [shipped.cupy.asarray(each) for each in drawn]
    with requests.switched(request, shipped.cupy), requests.serving(request, shipped.cupy, arrays) as call:
        result = call()
        shipped.synchronize()
    served = {entry for entry, *_ in shipped.calls if entry in FAMILIES} or {"CuPy"}
    assert served == {request.BY}
    wanted = requests.compute_meant(request, drawn)
    assert public_calls.error(result.get(), wanted, requests.tolerance(request)) <= 1


def test_the_step_runs_to_its_end(shipped, monkeypatch, tmp_path):
    """Every item that a GPU has, but for the arrays' sizes; times are the host's."""
    calls = []

    def profile(session, call):
        calls.append(call())
        session.synchronize()
        return {"host_us": 2.0, "device_us": 1.0}

    monkeypatch.setattr(felt, "profile", profile)
    monkeypatch.setattr(felt, "SUMMED", 1 << 12)
    draw = requests.draw_arrays
    monkeypatch.setattr(requests, "draw_arrays", lambda request, small: draw(request, True))
    journal = Journal(tmp_path / "results.jsonl")
    session = Session(tmp_path, journal, time.monotonic() + 600)
    session.device = shipped.device()
    monkeypatch.setattr(session, "healthy", lambda: True)
    assert session.work("felt", felt.items(session)) == COMPLETE
    ends = {item: end for (_, item), end in journal.results().items()}
    assert not {item: end["error"] for item, end in ends.items() if end["outcome"] != "ok"}
    assert {f"request {name}" for name in REQUESTS} < ends.keys()
    assert all("refused" in ends[f"request {name}"] for name in ("cupy_1096_matmul_in_fuse", "sigpy_151_convolve"))
    told = summary.lines(summary.collect(journal, ["felt"]))
    assert "matmul out, bound: host 2.0 us, CuPy 2.0; device 1.0 us, CuPy 1.0" in told
    assert ends["request cupy_8350_cumsum_twice"]["tiers"] == {"tier 3": 1} and len(calls) > 2 * len(REQUESTS)
    assert all("tier 3" in end["tiers"] for name, end in ends.items() if "accelerated" in name)


def test_the_page_has_every_request():
    """After a change: `python -c "from benchmarks import requests; print(requests.table())"` prints its table."""
    assert len(REQUESTS) >= 15 and requests.table() in PAGE.read_text(encoding="utf-8")
    for name, request in REQUESTS.items():
        project, number, *_ = name.split("_")
        assert re.search(rf"/{project}/(issues|pull)/{number}$", requests.text_of(request)["link"])
