"""Reductions, softmax and norms: dtypes, weights, and what does not fit; test_library.py draws calls, too."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.reductions import rows_parameters
from gensor_kernels.dispatch.functions.rows import COMPOSED, ONE_CALL, Parameters
from gensor_kernels.operators.rows.views import workload
from tests.doubles.device import FakeDevice


def test_the_library_sums_in_the_type_that_is_asked_for():
    x = np.full((2, 3000), 60, np.float16)
    found = ONE_CALL.library(FakeDevice(), (x,), Parameters("reduce_sum", (1,), False, "float32"), None)
    assert found.dtype == np.float32 and (found == 180000).all()
    spread = COMPOSED.library(FakeDevice(), (x,), Parameters("reduce_var", (1,), False, "float64"), None)
    assert spread.dtype == np.float64 and (spread == 0).all()


def by_library(name, x, axes, **asked):
    """The library's way of a whole call, on NumPy's arrays."""
    function, parameters = rows_parameters(name, axes, x.ndim, **asked)
    return function.by_library(FakeDevice(), (x,), None, (), parameters, function.result((x,), parameters), None)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("axes", [None, 0, (0, 2)])
def test_norms_and_variances_of_complex_numbers_are_real(dtype, axes):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((3, 4, 5)) + 1j * rng.standard_normal((3, 4, 5))).astype(dtype)
    for name, want in (("reduce_var", np.var(x, axes)), ("l2_norm", np.sqrt((abs(x) ** 2).sum(axes)))):
        found = by_library(name, x, axes)
        assert found.dtype == want.dtype and np.allclose(found, want, rtol=1e-5)
    assert np.allclose(by_library("layernorm", x, -1, value=0.0).var(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("ddof", [0.5, -1, 5, 7, 7.5, float("inf"), -float("inf"), np.float32(1.5), True])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_variance_takes_any_ddof(ddof):
    x = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    x[1] = 2
    want = np.var(x.astype(np.float64), axis=1, ddof=ddof)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.var(x, axis=1, ddof=ddof)
    for each in (found, by_library("reduce_var", x, 1, ddof=ddof)):
        assert np.allclose(each, want, rtol=1e-5, equal_nan=True)


NAN, INF = float("nan"), float("inf")
FUNCTIONS = {f"reduce_{name}": getattr(gensor_kernels, name) for name in ("sum", "mean", "max", "min", "prod", "var")}
FUNCTIONS |= {
    name: getattr(gensor_kernels, name) for name in ("argmax", "argmin", "logsumexp", "softmax", "log_softmax")
}
FUNCTIONS |= {"l2_norm": gensor_kernels.norm}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_and_the_library_agree_on_nan_and_infinities(dtype):
    values = (1.0, -0.0, NAN, INF, -INF)
    x = np.array([[a, b, c] for a in values for b in values for c in values], dtype)
    with gensor_kernels.emulated("sm_87"):
        for name, function in FUNCTIONS.items():
            np.testing.assert_allclose(function(x, axis=1), by_library(name, x, 1), rtol=1e-3, err_msg=name)
        for name, function in (("layernorm", gensor_kernels.layer_norm), ("rmsnorm", gensor_kernels.rms_norm)):
            for eps in (0.0, 1e-5, -2.0, INF, NAN):
                wanted = by_library(name, x, 1, value=eps)
                np.testing.assert_allclose(function(x, 3, eps=eps), wanted, rtol=1e-3, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(("ddof", "error"), [(float("nan"), ValueError), ("1", TypeError), (1j, TypeError)])
def test_a_ddof_is_a_number(ddof, error):
    with gensor_kernels.emulated("sm_87"), pytest.raises(error, match="ddof must be a number, not"):
        gensor_kernels.var(np.ones((2, 3), np.float32), axis=1, ddof=ddof)


@pytest.mark.parametrize("dtype", ["float32", "uint64", "bool", "complex64"])
def test_positions_are_integers(dtype):
    x, out = np.ones((2, 3), np.float32), np.zeros(2, dtype)
    with gensor_kernels.emulated("sm_87"):
        for function in (gensor_kernels.argmax, gensor_kernels.argmin):
            with pytest.raises(TypeError, match=f"out has dtype {dtype}"):
                function(x, axis=1, out=out)


@pytest.mark.parametrize("axis", [2**40, -(2**70), (0, 2**40), 2, -3])
def test_an_axis_that_does_not_exist(axis):
    x = np.ones((2, 3), np.float32)
    gk = gensor_kernels
    along = (gk.sum, gk.mean, gk.prod, gk.max, gk.min, gk.argmax, gk.argmin, gk.var, gk.norm, gk.logsumexp)
    calls = [lambda f=f: f(x, axis=axis) for f in (*along, gk.softmax, gk.log_softmax)]
    pair = axis if isinstance(axis, tuple) else (axis,)
    calls += [lambda: gk.tensordot(x, x, (pair, (0, 1))), lambda: gk.tensordot(x, x, ((0, 1), pair))]
    with gk.emulated("sm_87"):
        for call in calls:
            with pytest.raises(np.exceptions.AxisError, match="out of bounds"):
                call()
        with pytest.raises(ValueError, match="shape-mismatch"):
            gk.tensordot(x, x, 2**40)
        with pytest.raises(ValueError, match="axis is one of its last two"):
            gk.prepack(x, axis=2**40)


def test_norms_with_weights_agree_with_pytorch():
    functional = pytest.importorskip("torch.nn.functional")
    from torch import from_numpy

    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6, 40), (6, 40), (6, 40)))
    with gensor_kernels.emulated("sm_87"):
        for rank, (weight, bias) in ((2, (w, b)), (1, (w[0], b[0])), (1, (None, None))):
            shape = x.shape[-rank:]
            tensors = [None if each is None else from_numpy(each) for each in (weight, bias)]
            wanted = functional.layer_norm(from_numpy(x), shape, *tensors, eps=1e-3).numpy()
            found = gensor_kernels.layer_norm(x, shape, weight, bias, 1e-3)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
            wanted = functional.rms_norm(from_numpy(x), shape, tensors[0]).numpy()
            np.testing.assert_allclose(gensor_kernels.rms_norm(x, shape, weight), wanted, rtol=1e-5, atol=1e-5)


def test_out_dtype_and_what_does_not_fit():
    x = np.ones((4, 5), np.float16)
    with gensor_kernels.emulated("sm_87"):
        out = np.empty(4, np.float32)
        assert gensor_kernels.sum(x, 1, "float32", out) is out and (out == 5).all()
        assert gensor_kernels.sum(np.full((3, 200), 100, np.int8), 1).tolist() == [20000] * 3
        assert gensor_kernels.softmax(x[:0]).shape == (0, 5)
        with pytest.raises(ValueError, match="without elements"):
            gensor_kernels.max(x[:, :0], 1)
        with pytest.raises(ValueError, match="axis 2 is out of bounds"):
            gensor_kernels.sum(x, 2)
        with pytest.raises(ValueError, match="normalized_shape"):
            gensor_kernels.layer_norm(x, 4)
        with pytest.raises(ValueError, match="weight has shape"):
            gensor_kernels.layer_norm(x, 5, x[0, :4])
        with pytest.raises(TypeError, match="must be a numpy array"):
            gensor_kernels.mean([1.0, 2.0])
        assert gensor_kernels.explain(gensor_kernels.softmax, x).family == "rows"


def test_operations_on_every_element_are_one_kernel():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    column, row = rng.standard_normal((3, 1, 1)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    with gensor_kernels.emulated("sm_87"):
        for given in (x, x.transpose(3, 1, 0, 2), x[:, :, ::2]):
            factor = column if given.shape[1] == 3 and given.ndim == 4 else np.float32([2])
            steps = [("mul", factor), ("add", given), ("scale", 0.5), "relu"]
            found = gensor_kernels.elementwise(given, steps)
            np.testing.assert_allclose(found, np.maximum((given * factor + given) * 0.5, 0), rtol=1e-6, atol=1e-6)
            assert gensor_kernels.explain(gensor_kernels.elementwise, given, steps).family == "rows"
        np.testing.assert_allclose(gensor_kernels.elementwise(x, [("bias", row)]), x + row, rtol=1e-6)
        out = np.empty_like(x)
        assert gensor_kernels.elementwise(x, ["tanh"], out) is out
        np.testing.assert_allclose(out, np.tanh(x), rtol=1e-5, atol=1e-6)
        assert gensor_kernels.elementwise(x[:0], ["relu"]).shape == (0, 3, 4, 5)
        with pytest.raises(ValueError, match="square"):
            gensor_kernels.elementwise(x, ["square"])
    with pytest.raises(ValueError, match=r"elementwise reduces no axes, not \(1,\)"):
        workload("elementwise", (2, 3), (1,), "float32")
