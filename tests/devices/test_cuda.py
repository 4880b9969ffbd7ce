"""The CuPy device on real `cupy.ndarray`s over the strict double of the driver; and on a GPU, if any."""

import os
import struct
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build import nvrtc
from gensor_kernels.devices import advice
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.selection import library
from gensor_kernels.errors import BuildError, ToolMissingError
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.tensor_maps import MAPS_OFFSET, TensorMap
from gensor_kernels.operators.types.geometry import Geometry, Strides
from tests.conftest import why_no_gpu
from tests.doubles.kernels import kernels, runtime_of, workload

cupy = pytest.importorskip("cupy")
from tests.doubles.strict import elf  # noqa: E402
from tests.doubles.strict.machine import installed, without_races  # noqa: E402


@pytest.fixture
def device(orin):
    return orin.device()


@pytest.fixture
def runtime(device):
    return runtime_of(device, kernels(workload()))


def test_a_call_that_no_map_describes_is_refused_before_anything_is_launched():
    launches = [Launch("mapped", 1, 256, 0, (TensorMap("a", False, 2, 64),)), Launch("plain", 500, 32, 0, per_sm=2)]
    sizes = {"mapped": MAPS_OFFSET + 128, "plain": params.SIZE}
    image = elf.written((9, 0), {name: elf.Entry(parameters=(size,)) for name, size in sizes.items()})
    with installed(["h200"]) as hopper:
        device = hopper.device()
        buffer, _ = device.local.arguments
        launch = device.load(library.code("int x;", {}, "sm_90", image), launches)
        for stride in (64, -64):
            a = Strides((0, 0, 0), stride, 1)
            buffer[:] = params.pack(Geometry((64, 64, 64), a=a), Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768))
            refused = pytest.raises(BuildError, match="no tensor copy reads a") if stride < 0 else nullcontext()
            with refused:
                launch(device.local.arguments, (), (), None)
            assert [(call[0], call[1]) for call in hopper.calls] == [("mapped", (1,)), ("plain", (264,))]
        assert BuildError in device.refusals


def test_views_of_any_kind_keep_their_addresses(runtime, orin):
    base = cupy.empty((256, 128), np.float32)
    b = cupy.empty((64, 32), np.float32)
    for a in (base[64:128, :64], base[::4, 64:], base[63:0:-1, 4:68]):
        made = runtime.call(a, b[:, :16], None, (), None, None)
        params = orin.calls[-1][-1]
        assert struct.unpack_from("<2Q", params) == (a.data.ptr, b.data.ptr)
        a_m, a_k = struct.unpack_from("<2q", params, 64)
        assert (4 * a_m, 4 * a_k) == a.strides and made.flags.c_contiguous
    assert len(runtime.plans) == 3


def test_modules_are_loaded_once_and_get_their_shared_memory(device, orin):
    (kernel, *_) = kernels(workload()).values()
    names = ("contraction_simt", "contraction_reduce")
    image = elf.written((8, 7), {name: elf.Entry(parameters=(params.SIZE,)) for name in names})
    code = replace(kernel.code, cubin=image)
    first = device.load(code, [Launch("contraction_simt", 3, 128, 70_000)])
    both = device.load(code, [Launch("contraction_simt", 5, 128, 1_000), Launch("contraction_reduce", 2, 256, 0)])
    assert len(orin.context.modules) == 1
    allowed = {each.name: each.dynamic_bytes for each in orin.context.functions.values()}
    assert allowed == {"contraction_simt": 70_000, "contraction_reduce": 48 * 1024}
    first(device.local.arguments, (), (), None)
    both(device.local.arguments, (), (), None)
    assert [call[:4] for call in orin.calls] == [
        ("contraction_simt", (3,), (128,), 70_000),
        ("contraction_simt", (5,), (128,), 1_000),
        ("contraction_reduce", (2,), (256,), 0),
    ]


def test_a_refused_cubin_is_compiled_here_or_given_up(device, orin, monkeypatch):
    (kernel, *_) = kernels(workload(), cubin=elf.written((8, 0), {"contraction_simt": elf.Entry()})).values()
    compiled = []

    def compile_cubin(source, target):
        compiled.append(target)
        assert "#define BLOCK_M" in source
        image = elf.written((8, 7), {"contraction_simt": elf.Entry(parameters=(params.SIZE,))})
        return nvrtc.Binary(target, image, toolchain="nvrtc")

    monkeypatch.setattr(nvrtc, "compile_cubin", compile_cubin)
    device.load(kernel.code, [Launch("contraction_simt", 1, 32, 0)])
    assert compiled == ["sm_87"] and len(orin.context.modules) == 1

    def missing(source, target):
        raise ToolMissingError("no NVRTC: pip install it")

    monkeypatch.setattr(nvrtc, "compile_cubin", missing)
    (other, *_) = kernels(workload(dtype="float64"), cubin=b"x").values()
    with pytest.raises(BuildError, match="refused the stored cubin, and no NVRTC"):
        device.load(other.code, [])


def test_free_memory_is_the_drivers_and_the_pools(device, orin, monkeypatch):
    pool, (before, _) = orin.pool, orin.cupy.cuda.runtime.memGetInfo()
    assert device.free_bytes() == before
    array = orin.cupy.empty((1 << 20,), np.float32)
    assert device.free_bytes() <= before - array.nbytes
    del array
    assert pool.in_use() == 0 < pool.free_bytes() <= before - orin.cupy.cuda.runtime.memGetInfo()[0]
    assert device.free_bytes() == orin.cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
    monkeypatch.setattr(pool, "get_limit", lambda: 1 << 20)
    monkeypatch.setattr(pool, "used_bytes", lambda: 3 << 18, raising=False)
    assert device.free_bytes() == 1 << 18


def test_operands_elsewhere_and_unsupported_devices_go_to_cupy(monkeypatch):
    with without_races(monkeypatch, *["orin-nano-8gb"] * 2) as two:
        device = two.device()
        made = runtime_of(device, kernels(workload()))
        monkeypatch.setattr(device, "product", lambda a, b, precision, out=None: "cupy")
        a = cupy.empty((64, 64), np.float32)
        with two.cupy.cuda.Device(1):
            far = cupy.empty((64, 64), np.float32)
        assert isinstance(made.call(a, a, None, (), None, None), cupy.ndarray)
        assert made.call(a, far, None, (), None, None) == "cupy"
        device.arch, device.unsupported = None, "compute capability 6.1 is not supported"
        assert made.call(cupy.empty((32, 64), np.float32), a, None, (), None, None) == "cupy"


def test_bfloat16_and_int8_arrays(device, orin):
    import ml_dtypes

    stored = kernels(workload(dtype="int8")) | kernels(workload(dtype="bfloat16", batch=2))
    made = runtime_of(device, stored)
    a = cupy.empty((64, 64), np.int8)
    assert made.call(a, a, None, (), np.int32, None).dtype == np.int32
    half = cupy.empty((2, 64, 64), ml_dtypes.bfloat16)
    assert made.call(half, half, None, (), None, None).dtype == ml_dtypes.bfloat16
    assert len(orin.calls) >= 2  # CuPy does neither in one call


def test_public_functions_use_the_current_device(device, monkeypatch):
    made = runtime_of(device)
    monkeypatch.setattr(current, "lookup", lambda: made)
    a = cupy.empty((4, 4), np.float32)
    why = gensor_kernels.explain(gensor_kernels.matmul, a, a)
    assert why.tier == 4 and "orin-nano-8gb" in why.arch
    with pytest.raises(TypeError, match=r"a must be a cupy array, not numpy\.ndarray"):
        gensor_kernels.matmul(np.zeros((4, 4)), a)


def test_tf32_follows_cupys_switch(runtime, monkeypatch):
    from cupy._core import _routines_linalg

    device, state, seen = runtime.device, [_routines_linalg.COMPUTE_TYPE_TF32], []
    assert not device.tf32() and runtime.precision(None) == "ieee"
    monkeypatch.setattr(device, "_switch", lambda dtype: state[0])
    monkeypatch.setattr(device, "_set_switch", lambda on: state.__setitem__(0, device._tf32 if on else 0))
    monkeypatch.setattr(device.cupy, "matmul", lambda *_, **__: seen.append(device.tf32()))
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
