"""The convolutions by FFT that `accelerate` reaches: calls that look for a kernel, and what kernels compute."""

import sys
from types import ModuleType

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.functions.window import ReplacedConvolution
from tests.doubles.kernels import put, runtime_of

cupy = pytest.importorskip("cupy")
signal = pytest.importorskip("scipy.signal")


@pytest.fixture
def asked(orin, monkeypatch):
    """A Runtime without kernels, and the calls of a module in the place of `cupyx.scipy.signal`, which needs cuBLAS."""
    monkeypatch.setattr(sys.modules[__name__], "cupy", orin.cupy)
    put(monkeypatch, runtime_of(orin.device()))
    calls, module = [], ModuleType("cupyx.scipy.signal")
    made = orin.cupy.empty((20, 30), np.float32)
    for name in ("fftconvolve", "oaconvolve"):
        own = lambda *args, name=name, **keywords: calls.append((name, args, keywords)) or made  # noqa: E731
        setattr(module, name, own)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.signal", module)
    return module, calls


@pytest.mark.parametrize("name", ["fftconvolve", "oaconvolve"])
def test_calls_look_for_a_kernel_and_reach_cupys_function_once(asked, name):
    module, calls = asked
    own = getattr(module, name)
    x, w = cupy.empty((20, 30), "f"), cupy.empty((3, 5), "f")
    with gensor_kernels.accelerate():
        for number in range(3):
            before = gensor_kernels.counters()["fallbacks"]
            assert getattr(module, name)(x, w, mode="same").shape == (20, 30)
            assert gensor_kernels.counters()["fallbacks"] == before + 1, number
            (called, args, keywords), *others = calls
            assert called == name and not others and args[0].shape == x.shape
            assert (args[1].data.ptr, args[1].strides) == (w.data.ptr, w.strides)
            assert [*args[2:], *keywords.values()] == ["same"]
            calls.clear()
    assert getattr(module, name) is own


def test_other_calls_are_cupys_unchanged(asked):
    """Of other dtypes or numbers of axes, with `axes`, and with filters that an FFT suits better."""
    module, calls = asked
    x, w = cupy.empty((40, 50), "f"), cupy.empty((3, 5), "f")
    before = gensor_kernels.counters()["fallbacks"]
    others = [
        ((x, cupy.empty((3, 5), "d")), {}), ((x.astype, w), {}), ((cupy.empty(9, "f"), cupy.empty(3, "f")), {}),
        ((x, w), {"axes": 1}), ((x, w, "circular"), {}), ((w, x), {}), ((x, cupy.empty((1, 5), "f")), {}),
        ((x, cupy.empty((33, 33), "f")), {}), ((cupy.empty((9, 9), "e"), cupy.empty((3, 3), "e")), {}),
    ]  # fmt: skip
    with gensor_kernels.accelerate("signal"):
        for args, keywords in others:
            module.fftconvolve(*args, **keywords)
            assert calls.pop() == ("fftconvolve", args, keywords)
    assert gensor_kernels.counters()["fallbacks"] == before


@pytest.mark.usefixtures("needs_emulator")
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_kernels_compute_scipys_results(mode):
    rng, function = np.random.default_rng(0), ReplacedConvolution("signal", mode, None)
    with gensor_kernels.emulated("sm_87"):
        for dtype, image, taps in (("f", (20, 33), (4, 7)), ("d", (9, 12), (3, 3)), ("f", (8, 8), (8, 2))):
            x, w = (rng.standard_normal(shape).astype(dtype) for shape in (image, taps))
            arrays = x[None, None], w[None, None, ::-1, ::-1]
            found = current.current_runtime().serve(function, arrays, function.parameters(taps), None, (), "ieee")[0, 0]
            wanted = signal.convolve2d(x.astype("d"), w.astype("d"), mode)
            size = signal.convolve2d(abs(x).astype("d"), abs(w).astype("d"), mode)
            assert found.dtype == x.dtype and found.shape == signal.fftconvolve(x, w, mode).shape
            assert (abs(found - wanted) <= 2 * w.size * np.finfo(dtype).eps * size).all()
