"""Undocumented parts of CuPy, on the installed CuPy; tests/driver_standin/ has the driver calls that they cause."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from gensor_kernels.devices import cupy_internals
from gensor_kernels.errors import BuildError

cupy = pytest.importorskip("cupy")
ROOT = Path(__file__).resolve().parents[2]


def test_cupys_switch_for_tf32_is_an_environment_variable_elsewhere(monkeypatch):
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
