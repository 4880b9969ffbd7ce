"""Reductions, softmax and norms: the library's own path and what does not fit; tests/public_cases draws calls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.dispatch.functions.rows import COMPOSED, ONE_CALL, Parameters
from tests.doubles.device import FakeDevice

FOLDS = ("sum", "mean", "max", "min", "prod", "var")
special = pytest.importorskip("scipy.special")


@st.composite
def arrays(draw):
    """Small arrays of up to four axes, some of one element, contiguous, stepped, reversed or transposed in memory."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 33]), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal(shape).astype(draw(st.sampled_from(["float32", "float64", "float16"])))
    how = draw(st.sampled_from(["plain", "plain", "transposed", "stepped", "reversed"]))
    if how == "transposed":
        x = np.ascontiguousarray(x.T).T
    if how == "stepped":
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
        wide[..., ::2] = x
        x = wide[..., ::2]
    return np.ascontiguousarray(x[::-1])[::-1] if how == "reversed" else x


def close(found, wanted, dtype):
    assert np.shape(found) == np.shape(wanted)
    tolerance = {"float16": 3e-2, "float32": 1e-4, "float64": 1e-11}[np.dtype(dtype).name]
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=tolerance, atol=tolerance)


@settings(max_examples=60)
@given(arrays(), st.data())
def test_the_library_computes_the_same(x, data):
    x = x.astype(np.float64)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    keepdims = data.draw(st.booleans())

    def library(name, **more):
        parameters = Parameters(name, axes, keepdims, **more)
        found = COMPOSED.library(FakeDevice(), (x,), parameters, None)
        assert COMPOSED.result((x,), parameters).shape == np.shape(found)
        return found

    for name in FOLDS:
        close(library(f"reduce_{name}"), getattr(np, name)(x, axes, keepdims=keepdims), x.dtype)
    close(library("logsumexp"), special.logsumexp(x, axes, keepdims=keepdims), x.dtype)
    close(library("softmax"), special.softmax(x, axes), x.dtype)
    close(library("l2_norm"), np.sqrt((x * x).sum(axes, keepdims=keepdims)), x.dtype)
    flat = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*np.delete(x.shape, axes), -1)
    np.testing.assert_array_equal(np.ravel(library("argmin")), np.ravel(flat.argmin(-1)))


def test_the_library_sums_in_the_type_that_is_asked_for():
    x = np.full((2, 3000), 60, np.float16)
    found = ONE_CALL.library(FakeDevice(), (x,), Parameters("reduce_sum", (1,), False, "float32"), None)
    assert found.dtype == np.float32 and (found == 180000).all()
    spread = COMPOSED.library(FakeDevice(), (x,), Parameters("reduce_var", (1,), False, "float64"), None)
    assert spread.dtype == np.float64 and (spread == 0).all()


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
