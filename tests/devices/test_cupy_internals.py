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


@pytest.fixture
def versions(monkeypatch):
    """Libraries of CuPy with these versions, cuBLAS 12.8.1 and cuTENSOR 2.1."""
    assert importlib.util.find_spec("cupy_backends.cuda.libs.cublas")

    def ask(part, number):
        number._obj.value = (12, 8, 1)[part]
        return 0

    library = {"cublas.so": SimpleNamespace(cublasGetProperty=ask)}
    monkeypatch.setattr(cupy_internals.ctypes, "CDLL", library.__getitem__)
    named = {"cupy_backends.cuda.libs.cutensor": SimpleNamespace(get_version=lambda: 20100)}
    monkeypatch.setattr(cupy_internals, "import_module", named.__getitem__)
    return SimpleNamespace(cuda=SimpleNamespace(cublas=SimpleNamespace(__file__="cublas.so")))


@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("", {}),
        ("CUB, cutensor", {"accelerators": "cub,cutensor", "cutensor": 20100}),
        ("cub", {"accelerators": "cub"}),
    ],
)
def test_backends_are_named_without_a_handle(setting, more, versions, monkeypatch):
    monkeypatch.setenv("CUPY_ACCELERATORS", setting)
    assert cupy_internals.backends(versions) == {"cublas": 120801, **more}
    lost = SimpleNamespace(cuda=SimpleNamespace())
    assert "cublas" not in cupy_internals.backends(lost)


UNDOCUMENTED = re.compile(
    r"cupy_backends|cupy\._(?!_version__)|_routines_linalg|cuda\.(function|driver|cublas|device)\b|"
    r"C(Pointer|NumpyArray)\b|from_external|ExternalStream|get_cublas_handle|funcSetAttribute|\.get_function\("
)


def test_nothing_undocumented_is_used_elsewhere():
    folders = ("gensor_kernels", "tuner", "benchmarks", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    users = {path: UNDOCUMENTED.findall(path.read_text()) for path in files}
    assert [path.name for path, found in users.items() if found] == ["cupy_internals.py"] and len(files) > 100
