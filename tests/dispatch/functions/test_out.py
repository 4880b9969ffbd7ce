"""`out` where the array library serves: its functions write there, in races too, and never over what is read."""

from contextlib import nullcontext

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.operators.rows.views import workload
from tests.doubles.device import MARK, FakeDevice, Numpy, Race
from tests.doubles.kernels import kernels, put, runtime_of

X = np.linspace(-2, 2, 60).reshape(4, 15).astype(np.float32)
W = np.linspace(1, 2, 90).reshape(6, 15).astype(np.float32)
IMAGE, ROWS = np.ones((1, 2, 6, 6), np.float32), np.ones((1, 2, 4, 16), np.float32)
HALF = ROWS.astype(np.float16)
BIAS, SCALE = W[:, 0].copy(), W[0].copy()
REDUCTIONS = ("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", "norm", "logsumexp")
REDUCTIONS += ("nansum", "nanmean", "nanmax", "nanmin")
ACTIVATIONS = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
#: Calls without `out`, whose last operation can write to one.
CALLS = {
    **{name: lambda out, f=name: getattr(gk, f)(X, axis=1, out=out) for name in REDUCTIONS},
    "all axes": lambda out: gk.sum(X, out=out),
    "keepdims": lambda out: gk.logsumexp(X, axis=0, keepdims=True, out=out),
    "float64": lambda out: gk.sum(X, axis=0, dtype="float64", out=out),
    "integers": lambda out: gk.max(X.astype(np.int16), axis=0, out=out),
    "norm of order 1": lambda out: gk.norm(X, 1, axis=1, out=out),
    "norm of a matrix": lambda out: gk.norm(X, np.inf, out=out),
    **{name: lambda out, f=name: getattr(gk, f)(X, out=out) for name in ("softmax", "log_softmax")},
    "float16 softmax": lambda out: gk.softmax(X.astype(np.float16), out=out),
    "layer_norm": lambda out: gk.layer_norm(X, 15, SCALE, SCALE, out=out),
    "layer_norm without weights": lambda out: gk.layer_norm(X, 15, out=out),
    "rms_norm": lambda out: gk.rms_norm(X.astype(np.float16), 15, SCALE, out=out),
    **{name: lambda out, f=name: gk.elementwise(X, [f], out) for name in ACTIVATIONS},
    "scale": lambda out: gk.elementwise(X, [("scale", 3)], out),
    "matmul": lambda out: gk.matmul(X, W.T, out),
    "bias": lambda out: gk.matmul(X, W.T, out, bias=BIAS),
    "gate": lambda out: gk.matmul(X, W.T, out, activation="swiglu"),
    "norm after a product": lambda out: gk.matmul(X, W.T, out, epilogue=["layernorm", ("mul", BIAS)]),
    "prologue": lambda out: gk.matmul(X, W.T, out, prologue=["relu"]),
    "linear": lambda out: gk.linear(X, W, out=out),
    "linear with an activation": lambda out: gk.linear(X, W, BIAS, "relu", out=out),
    "int8 weights": lambda out: gk.linear(X, W.astype(np.int8), scales=BIAS, out=out),
    "dot": lambda out: gk.dot(X, SCALE, out),
    "outer": lambda out: gk.outer(SCALE, BIAS, out),
    "attention": lambda out: gk.attention(ROWS, ROWS, ROWS, out=out),
    "avg_pool2d": lambda out: gk.avg_pool2d(IMAGE, 2, out=out),
}
#: Calls that end in assignments to `out`.
ASSIGNED = {
    "einsum": lambda out: gk.einsum("ij,kj->ik", X, W, out=out),
    "einsum of one": lambda out: gk.einsum("ij->j", X, out=out),
    "einsum of three": lambda out: gk.einsum("ij,kj,k->i", X, W, BIAS, out=out),
    "einsum with a prologue": lambda out: gk.einsum("ij,kj->ik", X, W, prologue=["relu"], out=out),
    "norm of order 3": lambda out: gk.norm(X, 3, axis=1, out=out),
    "largest singular value": lambda out: gk.norm(X, 2, out=out),
    "weighted logsumexp": lambda out: gk.logsumexp(X, axis=1, b=SCALE, out=out),
    "max_pool2d": lambda out: gk.max_pool2d(IMAGE, 2, out=out),
    "grouped_matmul": lambda out: gk.grouped_matmul(X, W.T[None], [4], out=out),
    "sequences": lambda out: gk.attention(HALF, HALF, HALF, sizes=[4], out=out),
    "conv2d": lambda out: gk.conv2d(IMAGE, np.ones((2, 2, 3, 3), np.float32), out=out),
}


class Watched(np.ndarray):
    """An array that refuses copies."""

    def __setitem__(self, where, value):
        raise AssertionError("a copy to out")


def watched(like):
    return np.zeros(like.shape, like.dtype).view(Watched)


@pytest.mark.parametrize("name", CALLS)
def test_the_library_writes_to_out(monkeypatch, name):
    put(monkeypatch, runtime_of(FakeDevice()))
    wanted = CALLS[name](None)
    out = watched(np.asarray(wanted))
    assert CALLS[name](out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-3 if wanted.dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("emulated", [False, True], ids=["library", "emulator"])
@pytest.mark.parametrize("name", ASSIGNED)
def test_out_of_any_strides_is_checked_and_returned(monkeypatch, name, emulated):
    if not emulated:
        put(monkeypatch, runtime_of(FakeDevice()))
    with gk.emulated("sm_87") if emulated else nullcontext():
        wanted = np.asarray(ASSIGNED[name](None))
        out = np.zeros((*wanted.shape[:-1], 2 * wanted.shape[-1]) if wanted.ndim else 2, wanted.dtype)
        out = out[..., ::2] if wanted.ndim else out[0:1].reshape(())
        assert ASSIGNED[name](out) is out
        np.testing.assert_allclose(out, wanted, rtol=1e-5)
        for wrong in (np.zeros((*wanted.shape, 2), wanted.dtype), np.zeros(wanted.shape, bool)):
            with pytest.raises((TypeError, ValueError), match="out"):
                ASSIGNED[name](wrong)


def test_races_time_the_library_with_its_own_out(monkeypatch, user_database):
    given = []

    def total(x, axis, keepdims, out):
        given.append(out)
        return np.sum(x, axis=axis, keepdims=keepdims, out=out)

    def execute(device, code, launches):
        return lambda arguments, arrays, steps, workspace: np.copyto(arrays[0], MARK)

    x, wanted = np.ones((64, 512), np.float32), workload("reduce_sum", (64, 512), (1,), "float32")
    device = FakeDevice(execute=execute, clock=Race(ours=20), xp=Numpy(sum=total))
    put(monkeypatch, runtime_of(device, kernels(wanted)))
    out = np.zeros(64, np.float32).view(Watched)
    for _ in range(3):
        assert gk.sum(x, axis=1, out=out) is out and (out == 512).all()
    assert device.races and len(given) >= 4 and all(each is out for each in given)


def test_an_out_over_an_operand_is_no_business_of_the_library(monkeypatch):
    """CuPy's reductions write while others still read."""
    given = []

    def total(x, axis, keepdims, out):
        given.append(out)
        return np.sum(x, axis=axis, keepdims=keepdims, out=out)

    put(monkeypatch, runtime_of(FakeDevice(xp=Numpy(sum=total))))
    for _ in range(2):
        memory = X.copy()
        assert gk.sum(memory, axis=0, out=memory[1]) is not None
        np.testing.assert_allclose(memory[1], X.sum(0), rtol=1e-5)
        gk.sum(memory, axis=0, out=np.zeros(15, np.float32))
    assert [each is None for each in given] == [True, False, True, False]
