"""Reductions, softmax, norms and elementwise: dtypes, special values, splits, and what is refused.

tests/public_cases draws calls of all of them.
"""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.reductions import rows_parameters
from gensor_kernels.dispatch.functions.rows import COMPOSED, ONE_CALL, Parameters
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from tests.campaign_size import sample
from tests.dispatch.rows_harness import ROWS, Call
from tests.doubles.device import FakeDevice

NAN, INF = float("nan"), float("inf")


def by_library(name, x, axes, **keywords):
    """The result of the array library, here NumPy."""
    function, parameters = rows_parameters(name, axes, x.ndim, **keywords)
    return function.by_library(FakeDevice(), (x,), None, (), parameters, function.result((x,), parameters), None)


def test_the_library_sums_in_the_type_of_the_result():
    x = np.full((2, 3000), 60, np.float16)
    total = ONE_CALL.library(FakeDevice(), (x,), Parameters("reduce_sum", (1,), False, "float32"), None)
    assert total.dtype == np.float32 and (total == 180000).all()
    spread = COMPOSED.library(FakeDevice(), (x,), Parameters("reduce_var", (1,), False, "float64"), None)
    assert spread.dtype == np.float64 and (spread == 0).all()


# ---- special values

FUNCTIONS = {f"reduce_{name}": getattr(gk, name) for name in ("sum", "mean", "max", "min", "prod", "var")}
FUNCTIONS |= {name: getattr(gk, name) for name in ("argmax", "argmin", "logsumexp", "softmax", "log_softmax")}
FUNCTIONS |= {"l2_norm": gk.norm}


@pytest.mark.parametrize("dtype", sample(["float16", "float32", "float64"], 1))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_and_the_library_agree_on_nan_and_infinities(dtype):
    values = (1.0, -0.0, NAN, INF, -INF)
    x = np.array([[a, b, c] for a in values for b in values for c in values], dtype)
    with gk.emulated("sm_87"):
        for name, function in FUNCTIONS.items():
            np.testing.assert_allclose(function(x, axis=1), by_library(name, x, 1), rtol=1e-3, err_msg=name)
        for name, function in (("layernorm", gk.layer_norm), ("rmsnorm", gk.rms_norm)):
            for eps in (0.0, 1e-5, -2.0, INF, NAN):
                wanted = by_library(name, x, 1, value=eps)
                np.testing.assert_allclose(function(x, 3, eps=eps), wanted, rtol=1e-3, atol=1e-7, err_msg=name)
        for ddof in (INF, -INF, np.float32(1.5), True):
            wanted = by_library("reduce_var", x, 1, ddof=ddof)
            np.testing.assert_allclose(gk.var(x, axis=1, ddof=ddof), wanted, rtol=1e-3)


# ---- sums


def test_a_million_ones_and_a_little_more_do_not_lose():
    x = np.full((1, 1_000_000), 1.0009765625, np.float32)
    call = Call("reduce_sum", x, (1,), "float32", "float32")
    for which in (0, 3):
        assert abs(call.run(which=which)[0][0] / 1_000_976.5625 - 1) < 2e-6


def test_a_split_is_deterministic_and_takes_every_part():
    x = np.random.default_rng(8).standard_normal((3, 5000)).astype(np.float32)
    call = Call("reduce_var", x, (1,), "float32", "float32", ddof=1)
    splits = [p for p in ROWS.starters(call.plan().workload, lookup("sm_87")) if p["split_k"] > 1]
    assert splits
    first, counters = call.run(splits[0])
    assert counters.branches["split_reduce"] and np.allclose(first, x.astype(np.float64).var(axis=1, ddof=1))
    assert np.array_equal(first, call.run(splits[0], which=7)[0])


def test_integers_are_exact():
    x = np.random.default_rng(9).integers(-(2**31), 2**31, (4, 1000)).astype(np.int32)
    assert np.array_equal(Call("reduce_sum", x, (1,), "int32", "int64").run()[0], x.astype(np.int64).sum(axis=1))
    assert np.array_equal(Call("reduce_min", x, (0,), "int32", "int32").run()[0], x.min(axis=0))


def test_axes_that_are_not_merged_have_no_kernel():
    x = np.ones((4,) * 6, np.float16)[(slice(None, None, 2),) * 6]
    for name, axes in (("reduce_sum", range(6)), ("softmax", (0, 2))):
        with pytest.raises(UnsupportedError):
            Call(name, x, tuple(axes), "float16", "float16").plan()


# ---- elementwise


# ---- arguments that do not fit


def test_arguments_that_do_not_fit():
    x = np.ones((4, 5), np.float16)
    refused = [
        (ValueError, "ddof must be a number, not", lambda: gk.var(x, axis=1, ddof=NAN)),
        (TypeError, "ddof must be a number, not", lambda: gk.var(x, axis=1, ddof="1")),
        (TypeError, "ddof must be a number, not", lambda: gk.var(x, axis=1, ddof=1j)),
        (ValueError, "without elements", lambda: gk.max(x[:, :0], 1)),
        (ValueError, "normalized_shape", lambda: gk.layer_norm(x, 4)),
        (ValueError, "weight has shape", lambda: gk.layer_norm(x, 5, x[0, :4])),
        (TypeError, "must be a numpy array", lambda: gk.mean([1.0, 2.0])),
        (ValueError, "shape-mismatch", lambda: gk.tensordot(x, x, 2**40)),
        (ValueError, "axis is one of its last two", lambda: gk.prepack(x, axis=2**40)),
    ]
    for dtype in ("float32", "uint64", "bool", "complex64"):
        out = np.zeros(4, dtype)
        for function in (gk.argmax, gk.argmin):
            refused.append((TypeError, f"out has dtype {dtype}", lambda f=function, out=out: f(x, axis=1, out=out)))
    with gk.emulated("sm_87"):
        for error, words, call in refused:
            with pytest.raises(error, match=words):
                call()
        out = np.empty(4, np.float32)
        assert gk.sum(x, 1, "float32", out) is out and (out == 5).all()


@pytest.mark.parametrize("axis", [2**40, -(2**70), (0, 2**40), 2, -3])
def test_an_axis_that_does_not_exist(axis):
    x = np.ones((2, 3), np.float32)
    along = (gk.sum, gk.mean, gk.prod, gk.max, gk.min, gk.argmax, gk.argmin, gk.var, gk.norm, gk.logsumexp)
    calls = [lambda f=f: f(x, axis=axis) for f in (*along, gk.softmax, gk.log_softmax)]
    pair = axis if isinstance(axis, tuple) else (axis,)
    calls += [lambda: gk.tensordot(x, x, (pair, (0, 1))), lambda: gk.tensordot(x, x, ((0, 1), pair))]
    with gk.emulated("sm_87"):
        for call in calls:
            with pytest.raises(np.exceptions.AxisError, match="out of bounds"):
                call()
