"""The CuPy device on real `cupy.ndarray`s over a fake allocator, a fake driver, and no GPU; and on a GPU, if any."""

import ctypes
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices import advice, cuda, tensor_maps
from gensor_kernels.dispatch.api import current
from gensor_kernels.errors import BuildError, ToolMissingError
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.params import Tiling
from gensor_kernels.programs.core.tensor_maps import MAPS_OFFSET, TensorMap
from tests.conftest import why_no_gpu
from tests.doubles.kernels import kernels, runtime_of, workload

cupy = pytest.importorskip("cupy")
from tests.doubles.fake_cuda import FakeCudaDevice, FakeDriver, FakeFunction, FakeModule, Refused  # noqa: E402


@pytest.fixture
def device(fake_cupy):
    return FakeCudaDevice()


@pytest.fixture
def runtime(device, monkeypatch):
    """A Runtime on that device whose kernels serve aligned float32 products."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    return runtime_of(device, kernels(workload()))


def test_the_struct_arrives_by_value(runtime):
    a, b, out = (cupy.empty((64, 64), np.float32) for _ in range(3))
    assert runtime.call(a, b, out, (), None, None) is out
    (name, grid, block, _, params) = FakeFunction.calls[-1]
    assert name.startswith("contraction_") and grid[0] >= 1 and block[0] % 32 == 0
    assert struct.unpack_from("<3Q", params) == (a.data.ptr, b.data.ptr, out.data.ptr)
    assert struct.unpack_from("<4i", params, 200) == (64, 64, 64, 1)


def test_maps_arrive_behind_the_struct_of_the_launches_that_have_them(device, monkeypatch):
    monkeypatch.setattr(
        tensor_maps, "_driver_function", lambda name: lambda place, *rest: ctypes.memset(place, 9, 128) * 0
    )
    maps = (TensorMap("a", False, 2, 64), TensorMap("b", False, 2, 64))
    pairs = [
        (FakeFunction("mapped"), Launch("mapped", 1, 256, 0, maps)),
        (FakeFunction("plain"), Launch("plain", 500, 32, 0, per_sm=2)),
    ]
    packed = params.pack(
        Geometry((64, 64, 64), a=Strides((0, 0, 0), 64, 1), b=Strides((0, 0, 0), 64, 1)),
        Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768),
    )  # fmt: skip
    buffer, _ = device.local.arguments
    buffer[:] = packed
    cuda._mapped(pairs, device._handle, 132)(device.local.arguments, (), (), None)
    assert [(call[0], call[-1]) for call in FakeFunction.calls] == [("mapped", packed), ("plain", packed)]
    assert [call[1] for call in FakeFunction.calls] == [(1,), (264,)]
    assert ctypes.string_at(FakeFunction.addresses[0] + MAPS_OFFSET, 256) == b"\t" * 256
    # A call that no map describes is refused before anything is launched: the library serves it.
    buffer[:] = params.pack(Geometry((64, 64, 64), a=Strides((0, 0, 0), -64, 1)), Tiling(1, 1, 1, 64, 1))
    with pytest.raises(BuildError, match="no tensor copy reads a"):
        cuda._mapped(pairs, device._handle, 132)(device.local.arguments, (), (), None)
    assert len(FakeFunction.calls) == 2 and BuildError in cuda_refusals(device)


def cuda_refusals(device):
    made = cuda.CudaDevice.__new__(type(device))
    made.cupy = cupy
    made._prepare(several=False)
    return made.refusals


def test_views_of_any_kind_keep_their_addresses(runtime):
    base = cupy.empty((256, 128), np.float32)
    b = cupy.empty((64, 32), np.float32)
    for a in (base[64:128, :64], base[::4, 64:], base[63:0:-1, 4:68]):
        made = runtime.call(a, b[:, :16], None, (), None, None)
        params = FakeFunction.calls[-1][-1]
        assert struct.unpack_from("<2Q", params) == (a.data.ptr, b.data.ptr)
        a_m, a_k = struct.unpack_from("<2q", params, 64)
        assert (4 * a_m, 4 * a_k) == a.strides and made.flags.c_contiguous
    assert len(runtime.plans) == 3


def test_modules_are_loaded_once_and_get_their_shared_memory(device):
    (kernel, *_) = kernels(workload()).values()
    first = device.load(kernel.code, [Launch("contraction_simt", 3, 128, 70_000)])
    both = device.load(
        kernel.code, [Launch("contraction_simt", 5, 128, 1_000), Launch("contraction_reduce", 2, 256, 0)]
    )
    assert FakeModule.loads == 1
    assert FakeDriver.allowed == {FakeFunction("contraction_simt").ptr: 70_000}
    first(device.local.arguments, (), (), None)
    both(device.local.arguments, (), (), None)
    assert [call[:4] for call in FakeFunction.calls] == [
        ("contraction_simt", (3,), (128,), 70_000),
        ("contraction_simt", (5,), (128,), 1_000),
        ("contraction_reduce", (2,), (256,), 0),
    ]


def test_a_refused_cubin_is_compiled_here_or_given_up(device, monkeypatch):
    (kernel, *_) = kernels(workload(), cubin=b"other ELF").values()
    compiled = []

    def compile_cubin(source, target):
        compiled.append(target)
        assert "#define BLOCK_M" in source
        return type("Binary", (), {"error": None, "cubin": b"\x7fELF", "toolchain": "nvrtc"})()

    monkeypatch.setattr(cuda.nvrtc, "compile_cubin", compile_cubin)
    device.load(kernel.code, [Launch("contraction_simt", 1, 32, 0)])
    assert compiled == ["sm_90a"] and FakeModule.loads == 2

    def missing(source, target):
        raise ToolMissingError("no NVRTC: pip install it")

    monkeypatch.setattr(cuda.nvrtc, "compile_cubin", missing)
    (other, *_) = kernels(workload(dtype="float64"), cubin=b"x").values()
    with pytest.raises(BuildError, match="refused the stored cubin, and no NVRTC"):
        device.load(other.code, [])


def test_a_launch_the_driver_refuses_goes_to_cupy(runtime, monkeypatch):
    a = cupy.empty((64, 64), np.float32)
    out = cupy.empty((64, 64), np.float32)

    def refuse(self, *arguments):
        raise Refused("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")

    monkeypatch.setattr(FakeFunction, "__call__", refuse)
    calls = []
    monkeypatch.setattr(runtime.device, "product", lambda *arguments: calls.append(arguments) or out)
    assert runtime.call(a, a, out, (), None, None) is out
    assert runtime.call(a, a, out, (), None, None) is out
    assert len(calls) == 2 and calls[0][3] is out


def test_operands_elsewhere_and_unsupported_devices_go_to_cupy(device, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    several = FakeCudaDevice(several=True)
    made = runtime_of(several, kernels(workload()))
    monkeypatch.setattr(several, "product", lambda a, b, precision, out=None: "cupy")
    a = cupy.empty((64, 64), np.float32)
    far = cupy.ndarray((64, 64), np.float32, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(4096, 16384, None, 1), 0))
    assert isinstance(made.call(a, a, None, (), None, None), cupy.ndarray)
    assert made.call(a, far, None, (), None, None) == "cupy"
    several.arch, several.unsupported = None, "compute capability 6.1 is not supported"
    assert made.call(cupy.empty((32, 64), np.float32), a, None, (), None, None) == "cupy"


def test_bfloat16_and_int8_arrays(device):
    import ml_dtypes

    stored = kernels(workload(dtype="int8")) | kernels(workload(dtype="bfloat16", batch=2))
    made = runtime_of(device, stored)
    a = cupy.empty((64, 64), np.int8)
    assert made.call(a, a, None, (), np.int32, None).dtype == np.int32
    half = cupy.empty((2, 64, 64), ml_dtypes.bfloat16)
    assert made.call(half, half, None, (), None, None).dtype == ml_dtypes.bfloat16
    assert len(FakeFunction.calls) >= 2  # CuPy does neither in one call


def test_public_functions_use_the_current_device(device, monkeypatch):
    made = runtime_of(device)
    monkeypatch.setattr(current, "lookup", lambda: made)
    a = cupy.empty((4, 4), np.float32)
    why = gensor_kernels.explain(gensor_kernels.matmul, a, a)
    assert why.tier == 4 and "h200" in why.arch
    with pytest.raises(TypeError, match=r"a must be a cupy array, not numpy\.ndarray"):
        gensor_kernels.matmul(np.zeros((4, 4)), a)


def test_tf32_follows_cupys_switch(runtime, monkeypatch):
    from cupy._core import _routines_linalg

    device, state, seen = runtime.device, [_routines_linalg.COMPUTE_TYPE_TF32], []
    assert not device.tf32() and runtime.precision(None) == "ieee"
    monkeypatch.setattr(device, "_switch", lambda dtype: state[0])
    monkeypatch.setattr(device, "_set_switch", lambda on: state.__setitem__(0, device._tf32 if on else 0))
    monkeypatch.setattr(cupy, "matmul", lambda *_, **__: seen.append(device.tf32()))
    assert device.tf32() and runtime.precision(None) == "tf32" and runtime.precision("ieee") == "ieee"
    single, double = cupy.empty((64, 64), np.float32), cupy.empty((4, 4))
    device.product(single, single, "ieee")
    device.product(single, single, "tf32")
    device.product(single, single)
    device.product(double, double, "ieee")
    assert seen == [False, True, True, True] and device.tf32()


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU")
def test_without_a_gpu_one_sentence_says_so():
    code = "import cupy, gensor_kernels; gensor_kernels.matmul(None, None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    last = done.stderr.strip().splitlines()[-1]
    assert "ToolMissingError: CuPy reaches no GPU" in last and "emulated" in last


def test_advice_names_the_command(monkeypatch):
    monkeypatch.setattr(advice, "cupy_distributions", lambda: [])
    assert advice.about_import(ImportError("x")).startswith("CuPy is not installed: pip install")
    monkeypatch.setattr(advice, "cupy_distributions", lambda: ["cupy-cuda12x"])
    assert "CUPY_CACHE_DIR" in advice.about_import(PermissionError("read-only"))
    assert "does cupy-cuda12x match" in advice.about_import(ImportError("libcudart.so.13"))
    monkeypatch.setattr(advice, "cupy_distributions", lambda: ["cupy-cuda12x", "cupy-cuda13x"])
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in advice.about_import(ImportError("twice"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
def test_on_a_gpu_kernels_agree_with_cupy(dtype):
    rng = np.random.default_rng(0)
    a, b = (cupy.asarray(rng.integers(-4, 5, shape).astype(dtype)) for shape in [(200, 130), (130, 90)])
    bias = cupy.asarray(rng.integers(-4, 5, 90).astype("float32"))
    found = gensor_kernels.matmul(a, b, bias=bias, activation="relu", dtype="float32" if dtype == "int8" else None)
    expected = np.maximum(cupy.asnumpy(a).astype(float) @ cupy.asnumpy(b) + cupy.asnumpy(bias), 0)
    np.testing.assert_allclose(cupy.asnumpy(found).astype(float), expected)
