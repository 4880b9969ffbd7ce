"""cuBLASLt computes the timed product by its fastest proposal."""

import ctypes
import gc
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.gpu import summary
from benchmarks.gpu.harness.rehearsal import RehearsedDevice
from benchmarks.gpu.vendors import cublaslt
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.dtypes import decode
from gensor_kernels.operators.windows import conv
from gensor_tuner.measure.operands import Noise, Operands
from gensor_tuner.measure.timer import HostClock

FAKE = Path(__file__).with_name("fake_cublaslt.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(path), str(FAKE), "-lm"], check=True)
    return str(path)


@pytest.fixture
def opponent(library):
    return cublaslt.CublasLt(HostClock().measure, path=library)


def operands(workload):
    device = RehearsedDevice(lookup("h200"))
    return Operands(device, workload, Noise(device))


def expected(made):
    a, b = (made.typed(made.blocks[name]).astype(np.float64) for name in "ab")
    value = a @ b
    for name, block, _ in made.steps:
        value = value + made.typed(block) if name == "bias" else np.maximum(value, 0)
    return value


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(
    "asked",
    [{"dtype": "float64", "batch": 3}, {"dtype": "int8", "out": "int32"}]
    + [{"dtype": "float32", "epilogue": each} for each in ("none", "relu", "bias", "bias_relu")],
)
def test_it_is_the_product_that_is_timed(opponent, trans_a, trans_b, asked):
    made = operands(matmul.workload(9, 20, 33, **asked, trans_a=trans_a, trans_b=trans_b))
    opponent.call(made)()
    assert np.allclose(made.typed(made.out), expected(made), rtol=1e-5, atol=1e-4)


def test_products_of_8_bit_floats_lie_along_k(opponent):
    asked = {"dtype": "float8_e4m3fn", "out": "float32"}
    made = operands(matmul.workload(9, 32, 48, trans_b=True, **asked))
    opponent.call(made)()
    a, b = (decode("float8_e4m3fn", made.blocks[name].view(np)) for name in "ab")
    assert np.allclose(made.typed(made.out), a @ b, rtol=1e-5, atol=1e-4) and np.abs(a @ b).max() > 1
    assert opponent.call(operands(matmul.workload(9, 32, 48, **asked))) is None  # B is contiguous along n


def test_the_library_of_a_wheel_is_found_and_a_missing_one_named(monkeypatch, library):
    from cuda import pathfinder

    found = SimpleNamespace(abs_path=library)
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lambda name: {"cublasLt": found}[name])
    monkeypatch.setattr(cublaslt, "_mapped_paths", list)
    assert cublaslt._load(None)._name == library
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", Mock(side_effect=RuntimeError("absent")))
    monkeypatch.setattr(cublaslt, "SONAMES", ("libnowhere.so",))
    with pytest.raises(ToolMissingError, match="libnowhere"):
        cublaslt._load(None)
    with pytest.raises(ToolMissingError, match="cuBLASLt: "):
        cublaslt.CublasLt(HostClock().measure, path="/nowhere/libcublasLt.so")


def test_the_fastest_proposal_is_taken_and_remembered_and_descriptors_end_with_their_calls(opponent, library):
    workload, loaded = matmul.workload(8, 8, 8, dtype="float32"), ctypes.CDLL(library)
    launches, alive = (ctypes.c_int * 3).in_dll(loaded, "launches"), ctypes.c_int.in_dll(loaded, "alive")
    first = opponent.call(operands(workload))
    before = list(launches)
    first()
    opponent.call(operands(workload))()  # another set of operands: nothing is timed again
    assert [now - then for now, then in zip(launches, before, strict=True)] == [0, 2, 0]
    gc.collect()
    before = alive.value
    call = opponent.call(operands(workload))
    assert alive.value > before
    del call
    gc.collect()
    assert alive.value == before


@pytest.mark.parametrize(
    "workload",
    [
        matmul.workload(8, 8, 8, dtype="float32", epilogue=("tanh",)),
        matmul.workload(8, 8, 8, dtype="complex64"),
        matmul.workload(8, 8, 8, dtype="float16"),  # the fake library has no such product
        conv.workload(n=1, h=8, w=8, c=8, k_out=8, r=3, s=3, dtype="float32"),
    ],
    ids=lambda each: f"{each.operator} {each.dtype['c' if 'c' in each.dtype else 'y']}",
)
def test_what_it_has_not_is_left_out(opponent, workload):
    assert opponent.call(operands(workload)) is None


def test_cublas_is_the_faster_of_its_two_ways():
    both = summary.with_cublas({"vendors_us": {"cupy": 5.0, "cublaslt": 4.0}})
    assert both["vendors_us"] == {"cupy": 5.0, "cublaslt": 4.0, "cublas": 4.0}
    one = {"vendors_us": {"cupy": 5.0}}
    assert summary.with_cublas(one) is one
