"""Undocumented parts of CuPy, on the installed CuPy: the driver calls that they cause.

`launched` runs the real CuPy over a driver that records launches (doubles/driver_double.py): the arguments of
cuLaunchKernel and cuLaunchKernelEx are checked. `make test-oldest` runs it with the oldest supported CuPy.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gensor_kernels.devices import cupy_internals
from gensor_kernels.errors import BuildError

cupy = pytest.importorskip("cupy")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def launched():
    """Return the output of `python -m tests.devices.launched`; CuPy 14's warning about the streams of CuPy 13 is an
    error."""
    keep = {"GENSOR_TUNE": "predicted", "GENSOR_DETERMINISTIC": "1"}
    command = [
        sys.executable,
        "-W",
        "error:ExternalStream is deprecated:DeprecationWarning",
        "-m",
        "tests.devices.launched",
    ]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **keep}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cupy"] == cupy.__version__
    return found


def test_launches_pass_the_bytes_of_params(launched):
    found = launched["several"]
    expected = [[*asked, passed] for passed in found["params"] for asked in found["asked"]]
    names = ("entry", "grid", "block", "shared", "dependent", "passed")
    assert [[each[name] for name in names] for each in found["launches"]] == expected
    assert len(expected) == 6 and sum(each["dependent"] for each in found["launches"]) == 4


def test_tensor_maps_lie_behind_params(launched):
    found = launched["mapped"]
    (launch,) = found["launches"]
    assert (launch["passed"], found["map"]) == (found["params"], "09" * 128)
    assert (launch["grid"], launch["block"]) == ([264, 1, 1], [128, 1, 1])
    assert (launch["shared"], found["allowed"]) == (100_000, 100_000)


def test_launches_are_on_the_current_stream(launched):
    assert launched["streams"] == [each for stream in (0, 0, 2, 0x5000, 0) for each in (stream, stream)]


def test_each_thread_passes_its_own_params(launched):
    assert launched["threads"] == [[number, turn] for number in range(8) for turn in range(20)]


def test_what_a_launch_takes_is_made_once_for_each_buffer(launched):
    assert launched["warm"] == {"first": 1, "all": 1, "launches": 20}


def test_a_refused_launch_raises_what_dispatch_expects(launched):
    assert [(text.partition(":")[0], ours) for text, ours in launched["refused"]] == [
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", True)
    ] * 2


def test_a_public_call_passes_its_arrays_every_time(launched):
    found = launched["public"]
    expected = "".join(pointer.to_bytes(8, "little").hex() for pointer in found["pointers"])
    assert [each["passed"][:48] for each in found["launches"]] == [expected] * 3
    assert set(launched["images"]) == {b"\x7fELF".hex()}


def test_the_device_is_known_by_cupys_names(launched):
    said = launched["state"]
    assert said["part"] == "h200" and said["integrated"] is False and said["capturing"] == [False, True]
    assert said["attributes"] == {
        **{"ClockRate": 1_980_000, "MultiProcessorCount": 132, "L2CacheSize": 60 << 20, "Integrated": 0},
        **{"MemoryClockRate": 3_201_000, "GlobalMemoryBusWidth": 6144},
    }


def test_cupys_own_switch_for_tf32_is_read_and_set(launched, monkeypatch):
    assert launched["state"]["tf32"] == [False, True, False]
    query, on, switch = cupy_internals.tf32_switch(SimpleNamespace(_core=SimpleNamespace()))  # if CuPy drops it
    for value, expected in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("CUPY_TF32", value)
        switch(not expected)
        assert (query(cupy_internals.FLOAT32) == on) is expected


def test_errors_are_told_from_others():
    for kind in cupy_internals.errors(cupy):
        assert issubclass(kind, RuntimeError) and cupy_internals.raised_by_cupy(kind.__new__(kind))
    assert not any(map(cupy_internals.raised_by_cupy, (RuntimeError("x"), BuildError("x"), MemoryError())))


def test_the_version_of_cublas_is_asked_by_names_that_exist():
    assert callable(cupy.cuda.get_cublas_handle) and importlib.util.find_spec("cupy_backends.cuda.libs.cublas")
    cublas = SimpleNamespace(getVersion={7: 120800}.__getitem__)
    fake = SimpleNamespace(cuda=SimpleNamespace(cublas=cublas, get_cublas_handle=lambda: 7))
    assert cupy_internals.cublas_version(fake) == 120800


UNDOCUMENTED = re.compile(
    r"cupy_backends|cupy\._(?!_version__)|_routines_linalg|cuda\.(function|driver|cublas|device)\b|"
    r"C(Pointer|NumpyArray)\b|from_external|ExternalStream|get_cublas_handle|funcSetAttribute|\.get_function\("
)


def test_nothing_undocumented_is_used_elsewhere():
    folders = ("gensor_kernels", "tuner", "benchmarks", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    users = {path: UNDOCUMENTED.findall(path.read_text()) for path in files}
    assert [path.name for path, found in users.items() if found] == ["cupy_internals.py"] and len(files) > 100
