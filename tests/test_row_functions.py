"""Reductions, softmax and norms through the public functions, against NumPy and SciPy, and the library's own path."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.dispatch.row_functions import COMPOSED, Parameters

from .numpy_device import NumpyDevice

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


@settings(max_examples=24)
@given(arrays(), st.data())
def test_any_axes_of_any_array(x, data):
    axis = data.draw(st.one_of(st.none(), st.integers(-x.ndim, x.ndim - 1)))
    if x.ndim > 1 and data.draw(st.booleans()):
        axis = tuple(data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=2, unique=True)))
    keepdims, wide = data.draw(st.booleans()), x.astype(np.float64)
    name = data.draw(st.sampled_from(FOLDS))
    with gensor_kernels.emulated("sm_87"):
        found = getattr(gensor_kernels, name)(x, axis, keepdims=keepdims)
        assert found.dtype == x.dtype
        close(found, getattr(np, name)(wide, axis, keepdims=keepdims), x.dtype)
        close(gensor_kernels.logsumexp(x, axis, keepdims), special.logsumexp(wide, axis, keepdims=keepdims), x.dtype)
        if not isinstance(axis, tuple):
            position = gensor_kernels.argmax(x, axis, keepdims=keepdims)
            assert position.dtype == np.int64
            np.testing.assert_array_equal(position, np.argmax(x, axis, keepdims=keepdims))
            one = -1 if axis is None else axis
            close(gensor_kernels.softmax(x, one), special.softmax(wide, one), x.dtype)
            close(gensor_kernels.log_softmax(x, one), special.log_softmax(wide, one), x.dtype)


@settings(max_examples=60)
@given(arrays(), st.data())
def test_the_library_computes_the_same(x, data):
    x = x.astype(np.float64)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    keepdims = data.draw(st.booleans())

    def library(name, **more):
        parameters = Parameters(name, axes, keepdims, **more)
        found = COMPOSED.library(NumpyDevice(), (x,), parameters, None)
        assert COMPOSED.result((x,), parameters).shape == np.shape(found)
        return found

    for name in FOLDS:
        close(library(f"reduce_{name}"), getattr(np, name)(x, axes, keepdims=keepdims), x.dtype)
    close(library("logsumexp"), special.logsumexp(x, axes, keepdims=keepdims), x.dtype)
    close(library("softmax"), special.softmax(x, axes), x.dtype)
    close(library("l2_norm"), np.sqrt((x * x).sum(axes, keepdims=keepdims)), x.dtype)
    flat = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*np.delete(x.shape, axes), -1)
    np.testing.assert_array_equal(np.ravel(library("argmin")), np.ravel(flat.argmin(-1)))


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


def test_nan_and_infinity_are_numpys():
    x = np.random.default_rng(0).standard_normal((6, 37)).astype(np.float32)
    x[1, 5], x[2, 0], x[3, 36], x[4] = np.nan, np.inf, -np.inf, -np.inf
    with gensor_kernels.emulated("sm_87"), np.errstate(all="ignore"):
        for name in ("sum", "max", "min", "argmax", "argmin"):
            np.testing.assert_allclose(getattr(gensor_kernels, name)(x, 1), getattr(np, name)(x, 1), rtol=1e-5)
        np.testing.assert_allclose(gensor_kernels.logsumexp(x, 1), special.logsumexp(x, 1), rtol=1e-5)
        assert np.isnan(gensor_kernels.softmax(x, 1)[[1, 2, 4]]).all()


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
