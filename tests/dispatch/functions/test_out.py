"""`out` where the array library serves: its functions write there, in races too, and never over what is read."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.operators.rows.views import workload
from tests.dispatch.calls import CALLS, X, takes_out
from tests.doubles.device import MARK, FakeDevice, Numpy, Race
from tests.doubles.kernels import kernels, put, runtime_of

ACTIVATIONS = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
#: Calls whose last operation does not write to `out`: they end in an assignment to it.
ASSIGNED = {
    *(name for name in CALLS if name.startswith(("einsum", "conv", "attention"))),
    *("matmul, strided", "matmul, integers", "matmul, mixed", "linear, int8 weights", "linear, int4 weights"),
    *("grouped_matmul, sizes", "max_pool2d", "var of bfloat16", "norm of order 3", "norm of a matrix, 2"),
    "logsumexp, weighted",
} - {"conv2d", "conv2d, copied", "conv2d, 1 x 1"}


class Watched(np.ndarray):
    """An array that refuses copies."""

    def __setitem__(self, where, value):
        raise AssertionError("a copy to out")


@pytest.mark.parametrize("name", filter(takes_out, CALLS))
def test_the_library_writes_to_out(monkeypatch, name):
    function, arguments, keywords = CALLS[name]
    put(monkeypatch, runtime_of(FakeDevice()))
    wanted = np.asarray(function(*arguments, **keywords))
    if name in ASSIGNED:
        wide = np.zeros((*wanted.shape[:-1], 2 * wanted.shape[-1]) if wanted.ndim else 2, wanted.dtype)
        out = wide[..., ::2] if wanted.ndim else wide[:1].reshape(())
    else:
        out = np.zeros_like(wanted).view(Watched)
    assert function(*arguments, **keywords, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-3 if wanted.dtype == np.float16 else 1e-6)
    for wrong in (np.zeros((*wanted.shape, 2), wanted.dtype), np.zeros(wanted.shape, bool)):
        with pytest.raises((TypeError, ValueError), match=r"[Oo]ut|is no bool"):
            function(*arguments, **keywords, out=wrong)


def test_activations_and_attention_of_float32_write_to_out(monkeypatch):
    put(monkeypatch, runtime_of(FakeDevice()))
    q = X.reshape(1, 2, 8, 32)
    calls = [*((gk.elementwise, X, [name]) for name in ACTIVATIONS), (gk.attention, q, q, q)]
    for function, *arguments in calls:
        out = np.zeros_like(arguments[0]).view(Watched)
        assert function(*arguments, out=out) is out
        np.testing.assert_allclose(out, function(*arguments), rtol=1e-5)


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
        gk.sum(memory, axis=0, out=np.zeros(32, np.float32))
    assert [each is None for each in given] == [True, False, True, False]
